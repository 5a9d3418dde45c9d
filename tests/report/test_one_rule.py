"""The same data get the same word, whoever asks: files, Python, summary, question or claim."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.report.conftest import CLEAN

import calgrid
from calgrid.calibrators import build_calibrator
from calgrid.cli import main
from calgrid.papers.claims import CONFIRMED, OPEN, REFUTED, claim_tests
from calgrid.report.recipes import ties
from calgrid.statistics import paired_bootstrap
from calgrid.statistics.pairs import both_ways
from calgrid.storage.schema import RESAMPLES, TESTS
from calgrid.storage.tables import read_frame

METRICS = ["accuracy", "nll", "brier", "squared_ce", "ece", "smece"]
TOLD = {"better": CONFIRMED, "worse": REFUTED}


@pytest.fixture(scope="module")
def two(make):
    question = {"question": "Is it better?", "method": "mmce", "against": "ce"}
    return make(
        methods=("ce", "mmce"), shifts=("contrast",), ood=(), resamples=0, comparisons=(question,)
    )


def test_every_face_says_the_same(two):
    results = calgrid.load_study(two.folder)
    expected = results.compare("mmce", metrics=METRICS).set_index("metric")
    assert {"better", "worse"} & set(expected["verdict"])

    logits = {name: [results.logits(name, seed) for seed in (0, 1, 2)] for name in ("mmce", "ce")}
    fit = build_calibrator("none")
    runs = {
        name: [fit.fit(each.logits, each.label).predict_proba(each.logits) for each in parts]
        for name, parts in logits.items()
    }
    files = paired_bootstrap(runs, logits["mmce"][0].label, metrics=METRICS, n_resamples=200)
    files = files.set_index("metric")

    summary = results.summary.query("method == 'mmce' and calibrator == 'none' and split == 'test'")
    summary = summary.set_index("metric")
    questions = results.table("comparisons").query("calibrator == 'none'").set_index("metric")
    for metric in METRICS:
        word = expected.loc[metric, "verdict"]
        faces = [files, summary, *([questions] if metric in questions.index else [])]
        assert [face.loc[metric, "verdict"] for face in faces] == [word] * len(faces)
        found = [face.loc[metric, "p_holm"] for face in faces]
        assert found == pytest.approx(
            [expected.loc[metric, "p_holm"]] * len(faces), rel=1e-3, nan_ok=True
        )

    metrics = results.metrics.query("calibrator == 'none' and split == 'test'")
    drawn = read_frame(two.folder / RESAMPLES).query("calibrator == 'none' and split == 'test'")
    for metric in ("accuracy", "nll", "squared_ce"):
        cells = {"mmce": 0, "ce": 1}
        values, draws = (
            each[each["metric"] == metric].assign(cell=each["method"].map(cells))
            for each in (metrics, drawn)
        )
        pair = {"case": 0, "cell": 0, "rival": 1, "metric": metric, "n_rivals": 1}
        pair |= {"lower_is_better": metric != "accuracy", "same_method": False}
        claim = claim_tests(values, pd.DataFrame([pair]), draws)
        assert claim["verdict"].item() == TOLD.get(expected.loc[metric, "verdict"], OPEN)
        assert claim["p_value"].item() == pytest.approx(
            expected.loc[metric, "p_value"], rel=1e-6, nan_ok=True
        )


def test_compare_finds_the_p_values_and_intervals_of_the_study_whose_files_it_gets(make, capsys):
    """Baseline first, others in any order; five methods have a prior variance over seeds."""
    methods = ("ce", "ls", "mbls", "brier", "mmce")
    five = make(methods=methods, calibrators=("none",), **CLEAN)
    methods = {name: [] for name in ("ce", "mmce", "brier", "mbls", "ls")}
    for run in five.manifest["runs"]:
        methods[run["key"]["method"]].append(f"{run['predict']}/logits/last/test.parquet")
    runs = [f"{name}={','.join(files)}" for name, files in methods.items()]
    metrics = ("accuracy", "nll", "brier", "squared_ce")
    asked = ["--metrics", *metrics, "--bootstrap", "200", "--json"]
    capsys.readouterr()
    assert main(["compare", *runs, *asked]) == 0
    found = pd.DataFrame(json.loads(capsys.readouterr().out)["differences"])

    tests = both_ways(read_frame(five.folder / TESTS)).query("split == 'test'")
    both = found.merge(tests, on=["method", "against", "metric"], suffixes=("", "_of_study"))
    assert len(both) == len(found) == 10 * len(metrics)
    assert both["prior"].notna().all()
    # with too few errors the study has intervals over seeds alone
    known = both[both["std_test"].notna()]
    assert len(known) >= 30
    for column in ("difference", "std_seed", "std_test", "ci_low", "ci_high", "p_value", "p_seeds"):
        expected = known[f"{column}_of_study"].to_numpy(float)
        np.testing.assert_allclose(known[column].to_numpy(float), expected, rtol=1e-3, atol=1e-9)


def test_ties_with_the_best_are_those_of_the_same_rule(two):
    results = calgrid.load_study(two.folder)
    rows = results.data.test(results.data.groups[0], ["none"]).drop(columns="accuracy_mean")
    metrics = ["nll", "brier", "ece_debiased", "brier_calibration"]  # the last has no verdict
    words = results.compare("mmce", metrics=metrics).set_index("metric")["verdict"]
    assert {"better", "worse"} & set(words)
    tied = ties(results.data, results.data.groups[0], rows, metrics, "calibrator")
    assert set(tied) == {"nll", "brier", "ece_debiased"}
    for metric, labels in tied.items():
        by = "squared_ce" if metric == "ece_debiased" else metric
        best, other = rows[f"{by}_mean"].sort_values().index
        found = words[metric] in ("tie", "equivalent")
        expected = {best, other} if found else {best}
        assert labels == (set() if words[metric] == "no verdict" else expected)


def test_single_corruptions_have_no_verdict_and_their_means_have_one(two):
    results = calgrid.load_study(two.folder)
    shifted = results.summary.query("method == 'mmce' and split == 'shift' and metric == 'nll'")
    assert set(shifted["verdict"]) == {"no verdict"}
    means = results.data.shift_tidy(results.data.groups[0])
    means = means.query("method == 'mmce' and calibrator == 'none' and metric == 'nll'")
    assert set(means["severity"]) == {1, 5, -1}
    assert "no verdict" not in set(means["verdict"])
