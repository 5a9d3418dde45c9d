"""``calgrid.load_study``: the same numbers as the report's, one sentence for what is not there."""

import functools
import re
import shutil

import pandas as pd
import pytest
from tests.conftest import HOME
from tests.metrics.cases import softmax
from tests.report.conftest import THREE

import calgrid
from calgrid.errors import ConfigError, DataError
from calgrid.metrics import evaluate
from calgrid.statistics import compare


@pytest.fixture(scope="module")
def results(study):
    return calgrid.load_study(study.folder)


def test_the_page_on_python_runs_as_it_stands(study, tmp_path, monkeypatch, capsys):
    shutil.copytree(study.folder, tmp_path / "results" / "digits")
    shutil.copytree(study.folder.parent / "runs", tmp_path / "results" / "runs")
    monkeypatch.chdir(tmp_path)
    page = (HOME / "docs" / "python.md").read_text().split("## A trained network")[0]
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/python.md", "exec"), names)
    assert "\\begin{tabular}" in capsys.readouterr().out
    methods = re.findall(r"`(\w+)\(", page.split("| --- |")[1].split("\n\n")[0])
    assert set(methods) == {name for name in vars(type(names["study"])) if name[0] != "_"} - {
        "runs",
        "metrics",
        "summary",
    }


def test_tables_are_those_of_the_report(results, tables):
    assert repr(results).endswith(f"{results.folder}: {len(results.runs)} runs>")
    names = results.tables()
    assert {"methods", "calibrators"} <= set(names)
    assert all((tables / f"{name}.csv").is_file() for name in names)
    assert results.to_latex("methods") == (tables / "methods.tex").read_text()
    names = {"ls": "smoothed labels", "ece_debiased": "ECE", "Seeds": "$n$"}
    latex = results.to_latex("methods", metrics=["nll", "ece_debiased"], names=names)
    header, *rows = [line for line in latex.splitlines() if " & " in line]
    assert header.split(" & ")[-2:] == ["NLL (nats) $\\downarrow$", "ECE (\\%) $\\downarrow$ \\\\"]
    assert any(row.startswith("smoothed labels & ") for row in rows)
    assert all(row.count(" & ") == header.count(" & ") for row in rows)
    frame = results.table("methods")
    accuracy = results.metrics.query(
        "split == 'test' and calibrator == 'none' and metric == 'accuracy'"
    )
    means = accuracy.groupby("method")["value"].mean()
    assert frame.set_index("method")["accuracy_mean"].to_dict() == pytest.approx(means.to_dict())


def test_identifiers_are_renamed_in_a_study_that_names_them_itself(results, monkeypatch):
    names = {"ls": "LS", "ece_debiased": "ECE"}
    monkeypatch.setattr(results.data, "names", {"ls": "Label smoothing", "ce": "Cross-entropy"})
    latex = results.to_latex("methods", names=names)
    assert "Label smoothing" in results.to_latex("methods")
    assert "\nLS & " in latex
    assert "\nCross-entropy & " in latex
    assert "& ECE (" in latex


def test_a_notebook_shows_what_a_study_has(results):
    shown, runs = results._repr_html_(), results.runs
    assert shown.startswith("<p>&lt;Results of study ")
    headings = "protocol dataset backbone method seed runs"
    assert re.findall("<th>(.*?)</th>", shown) == headings.split()
    first = runs.iloc[0]
    methods, seeds = (", ".join(runs[name].astype(str).unique()) for name in ("method", "seed"))
    assert re.findall("<td>(.*?)</td>", shown) == [
        *(first["protocol"], first["dataset"], first["backbone"]),
        *(methods, seeds, str(len(runs))),
    ]


def test_a_comparison_is_that_of_the_statistics(results):
    found = results.compare("ls", "ce", metrics=["nll"])
    rows = results.metrics.query("split == 'test' and calibrator == 'none' and metric == 'nll'")
    (expected,) = compare(rows, [{"question": "q", "method": "ls", "against": "ce"}])["difference"]
    assert found["difference"].tolist() == pytest.approx([expected])
    assert found["n_seeds"].tolist() == [3]
    assert found["p_holm"].tolist() == found["p_value"].tolist()


def test_a_comparison_is_with_the_baseline_by_default_and_calls_a_tie_like_the_report(results):
    found = results.compare("ls")
    pd.testing.assert_frame_equal(found, results.compare("ls", "ce"))
    assert set(found["against"]) == {"ce"}
    assert {"tie", "no verdict"} <= set(found["verdict"])


def test_calibrators_are_compared_on_every_method(results):
    found = results.compare_calibrators("ts", metrics=["nll"])
    assert found["method"].tolist() == ["ce", "ls", "mmce"]
    assert set(found["against_calibrator"]) == {"none"}
    nll = results.metrics.query("split == 'test' and metric == 'nll'")
    means = nll.pivot_table(index="method", columns="calibrator", values="value")
    assert found["difference"].tolist() == pytest.approx((means["ts"] - means["none"]).tolist())
    one = results.compare_calibrators("ts", "none", "ls", ["nll"])
    assert one["p_holm"].tolist() == one["p_value"].tolist()
    with pytest.raises(ConfigError, match="Unknown calibrator 'tss': did you mean 'ts'"):
        results.compare_calibrators("tss")


def test_reliability_pools_the_seeds(results):
    bins = results.reliability("ce")
    data = [results.logits("ce", seed) for seed in (0, 1, 2)]
    assert bins["count"].sum() == sum(map(len, data))
    right = sum((each.logits.argmax(axis=1) == each.label).sum() for each in data)
    assert (bins["count"] * bins["accuracy"]).sum() == pytest.approx(right)
    after = results.reliability("ce", calibrator="ts")
    assert (after["count"] * after["accuracy"]).sum() == pytest.approx(right)  # ts keeps answers
    assert not after.equals(bins)


def test_logits_are_those_that_were_scored(results):
    test = results.logits("mmce", 1)
    rows = results.metrics.query(
        "split == 'test' and calibrator == 'none' and metric == 'nll' and method == 'mmce' and "
        "seed == 1"
    )
    found = evaluate(softmax(test.logits), test.label)["nll"]
    assert found == pytest.approx(rows["value"].item(), rel=1e-6)


def test_what_is_not_there_is_named(results, tmp_path, refuses):
    with refuses(DataError, "manifest", "does not exist"):
        calgrid.load_study(tmp_path)
    (tmp_path / "mine.yaml").touch()
    with refuses(DataError, "mine.yaml is a file, but no archive", "folder of the study's results"):
        calgrid.load_study(tmp_path / "mine.yaml")
    for call, parts in (
        (lambda: results.table("method"), ["Unknown table 'method'", "'methods'"]),
        (lambda: results.compare("lss", "ce"), ["Unknown method 'lss'", "'ls'"]),
        (lambda: results.compare("ls", "ce", metrics=["ecee"]), ["Unknown metric 'ecee'"]),
        (lambda: results.reliability("mixup"), ["Unknown method 'mixup'"]),
        (lambda: results.logits("ce"), ["3 runs of 'ce' differ in seed; select one by keyword"]),
        (lambda: results.logits("ce", 7), ["Unknown seed '7'"]),
        (lambda: results.logits("ce", 1, "svhn"), ["Unknown split or shift 'svhn'"]),
        (lambda: results.run("ce", 1, data="digits"), ["Unknown keyword 'data'"]),
    ):
        with refuses(ConfigError, *parts):
            call()
    for call in (
        results.history,
        functools.partial(results.compare, "ls", "ce"),
        functools.partial(results.compare_calibrators, "ts"),
        functools.partial(results.run, "ce", 1),
    ):
        for name in ("dataset", "checkpoint"):
            with refuses(DataError, f"no runs with {{'{name}': 'zz'}}; it has: quick digits res"):
                call(**{name: "zz"})


def test_a_copied_study_says_that_its_runs_are_not_beside_it(study, tmp_path, refuses):
    shutil.copytree(study.folder, tmp_path / "alone")
    with refuses(DataError, "are not beside the study", "copy the folder 'runs' beside"):
        calgrid.load_study(tmp_path / "alone").logits("ce", 1)


def test_several_groups_must_be_told_apart(make, refuses):
    found = calgrid.load_study(make(**THREE).folder)
    with refuses(ConfigError, "3 groups that differ in backbone; select one by keyword"):
        found.reliability("ce")
    assert found.reliability("ce", backbone="b")["count"].sum() == 240
    with refuses(ConfigError, "3 runs of 'ce' differ in backbone"):
        found.logits("ce")


def test_opening_a_study_imports_neither_torch_nor_snakemake(run_python, study):
    program = """
import sys, calgrid, calgrid.report.figures, calgrid.report.html
study = calgrid.load_study(sys.argv[1])
study.table("methods"), study.compare("ls", "ce"), study.logits("ce", 0)
print({"torch", "snakemake"} & set(sys.modules))
"""
    assert run_python(program, study.folder) == "set()\n"
