"""``calgrid compare``: the paired bootstrap of the Python interface, from files."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from tests.cli.conftest import overconfident, write
from tests.metrics.cases import softmax

from calgrid.statistics import paired_bootstrap
from calgrid.storage.logits import Logits, write_logits

FEW = ("--bootstrap", 50)


@pytest.fixture
def two(files, data, tmp_path):
    """The test file, and one of the same samples with calibrated logits, a third as large."""
    _, sharp = files()
    return sharp, write(tmp_path / "soft", "parquet", data.test / 3, data.test_labels)


def test_json_is_what_the_python_interface_gives(succeeds, two, data):
    done = succeeds("compare", f"sharp={two[0]}", f"soft={two[1]}", "--json", *FEW)
    scales = {"sharp": 1, "soft": 3}
    runs = {name: [softmax(data.test / scale)] for name, scale in scales.items()}
    shown = ("accuracy", "nll", "brier", "squared_ce", "ece_debiased")
    expected = paired_bootstrap(runs, data.test_labels, metrics=shown, n_resamples=50)
    found = json.loads(done.out)["differences"]
    assert [row["metric"] for row in found] == expected["metric"].tolist()
    for row, wanted in zip(found, expected.itertuples(), strict=True):
        assert row["difference"] == pytest.approx(wanted.difference, abs=1e-6)
        assert (row["verdict"], row["std_seed"]) == (wanted.verdict, None)


def test_text_says_which_is_better_and_by_which_metric(succeeds, two):
    metrics = ("nll", "accuracy", "mce", "cece", "brier_calibration")
    asked = ("--metrics", *metrics, *FEW, "--networks")
    done = succeeds("compare", f"sharp={two[0]}", f"soft={two[1]}", *asked)
    lines = {line.split()[0]: line for line in done.out.splitlines() if line[:1].strip()}
    rows = {line.split()[0]: line for line in done.out.splitlines() if "  " in line}
    assert rows["nll"].endswith("worse")
    assert rows["accuracy"].endswith("  tie")
    assert lines["tie:"] == "tie: 1.2 points of accuracy would have been found"
    assert rows["mce"].endswith("worse")
    assert "sharp - soft (seeds: 1; interval and verdict: these networks only, " in done.out
    assert lines["mce:"] == "mce: the verdict is that of squared_ce, which has no bias."
    assert rows["cece"].endswith("worse")
    assert lines["brier_calibration:"] == "brier_calibration: no verdict; it has no test."


def test_a_tie_says_what_could_have_been_found(calgrid, two, data, tmp_path):
    noise = np.random.default_rng(1).normal(size=data.test.shape)
    other = write(tmp_path / "other", "parquet", data.test / 3 + 0.2 * noise, data.test_labels)
    asked = ["compare", f"a={two[1]}", f"b={other}", "--metrics", "squared_ce", *FEW]
    assert "give files of several seeds, or --networks" in calgrid(*asked).out
    asked.append("--networks")
    done = calgrid(*asked)
    assert "tie: 12 % of squared_ce would have been found" in done.out  # 0.0114 ** 0.5
    (row,) = json.loads(calgrid(*asked, "--json").out)["differences"]
    root = 100 * math.copysign(abs(row["difference"]) ** 0.5, row["difference"])
    (line,) = [line for line in done.out.splitlines() if line.startswith("squared_ce (%)")]
    assert line.split()[2] == f"{root:+.2f}"
    assert row["detectable"] == pytest.approx(0.01373, abs=1e-5)


def differences(succeeds, a, b):
    done = succeeds("compare", f"a={a}", f"b={b}", "--json", *FEW)
    return {row["difference"] for row in json.loads(done.out)["differences"]}


def test_columns_are_paired_by_the_names_of_classes(calgrid, data, tmp_path):
    names = np.array(["ant", "bee", "cat", "doe"])
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, order in zip(paths, ([0, 1, 2, 3], [2, 0, 3, 1]), strict=True):
        columns = [f"logit_{name}" for name in names[order]]
        table = pd.DataFrame(data.test[:, order].astype(float), columns=columns)
        table.assign(label=names[data.test_labels]).to_csv(path, index=False)
    assert differences(calgrid, *paths) == {0.0}


def test_seeds_are_files_with_commas_and_the_verdict_is_about_them_too(calgrid, succeeds, two):
    both = ("compare", f"a={two[0]},{two[1]}", f"b={two[1]},{two[0]}", *FEW)
    assert (
        "(seeds: 2; interval and verdict: over test samples and seeds)"
        in calgrid(*both, "--metrics", "nll").out
    )
    done = succeeds(*both, "--json")
    (nll,) = [row for row in json.loads(done.out)["differences"] if row["metric"] == "nll"]
    assert (nll["n_seeds"], nll["difference"], nll["verdict"]) == (2, pytest.approx(0), "tie")
    assert nll["std_seed"] > 0


def test_what_cannot_be_compared_is_refused(fails, two, data, tmp_path):
    few = write(tmp_path / "few", "parquet", data.test[:-1], data.test_labels[:-1])
    other_logits, other_labels = overconfident(5)
    other = write(tmp_path / "other", "parquet", other_logits, other_labels)
    a = f"a={two[0]}"
    fails("compare", a, parts=["at least two methods"])
    fails("compare", a, a, parts=["different names"])
    fails("compare", a, str(two[1]), parts=["write NAME=FILE"])
    fails("compare", a, f"b={few}", parts=["few.parquet has other samples"])
    fails("compare", a, f"b={other}", parts=["other.parquet has other labels"])
    fails("compare", a, f"b={two[1]}", "--metrics", "nlll", parts=["Unknown metric 'nlll'", "nll"])
    said = ["--bootstrap 9", "needs at least 10 resamples"]
    fails("compare", a, f"b={two[1]}", "--bootstrap", 9, parts=said)
    said = ["different numbers of runs (a 2, b 1)"]
    fails("compare", f"{a},{two[0]}", f"b={two[1]}", *FEW, parts=said)


def test_a_metric_named_twice_is_shown_once(succeeds, two):
    asked = ("--metrics", "ece", "nll", "ece", "--json")
    done = succeeds("compare", f"a={two[0]}", f"b={two[1]}", *asked, *FEW)
    assert [row["metric"] for row in json.loads(done.out)["differences"]] == ["ece", "nll"]


def test_rows_that_cannot_be_paired_are_refused(fails, two, data, tmp_path):
    twice = tmp_path / "twice.parquet"
    index = np.arange(len(data.test), dtype=np.int32)
    index[5] = 3
    write_logits(twice, Logits(index, data.test_labels.astype(np.int32), data.test))
    parts = ["twice.parquet has index 3 more than once"]
    fails("compare", f"a={twice}", f"b={twice}", parts=parts)
    fails("compare", f"a={two[0]}", f"b={twice}", parts=parts)


def test_rows_of_a_shift_family_are_told_apart_by_shift_and_severity(calgrid, data, tmp_path):
    rows, labels = len(data.test), data.test_labels.astype(np.int32)
    index, order = np.arange(rows, dtype=np.int32) % 100, np.random.default_rng(0).permutation(rows)
    shift = np.repeat(["blur", "noise", "noise"], 100)
    severity = np.repeat(np.array([1, 1, 2], np.int8), 100)
    family = Logits(index, labels, data.test, shift=shift, severity=severity)
    write_logits(tmp_path / "a.parquet", family)
    write_logits(tmp_path / "b.parquet", family.rows(order))
    assert differences(calgrid, tmp_path / "a.parquet", tmp_path / "b.parquet") == {0.0}
