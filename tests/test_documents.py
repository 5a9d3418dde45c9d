"""What docs/ say of files is what the files hold."""

import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from docs import _notebook
from scipy.stats import ttest_rel
from tests.conftest import HOME

from calgrid.components.registry import descriptions
from calgrid.papers.smart.diagnostics import FILES
from calgrid.storage import schema
from calgrid.storage.logits import COLUMNS

PAGE = (HOME / "docs" / "files.md").read_text()
PAPERS = (HOME / "config" / "papers" / "README.md").read_text()
NAMES = set(re.findall(r"`([a-z0-9_]+)`", PAGE + PAPERS))


@pytest.mark.parametrize("name", [name for name in vars(schema) if name.endswith("_COLUMNS")])
def test_every_column_is_explained(name):
    assert set(getattr(schema, name)) <= NAMES


def test_every_file_of_a_study_and_every_column_of_logits_and_diagnostics_is_explained():
    for name, columns in FILES.items():
        assert f"`{name}`" in PAGE
        assert set(columns) <= NAMES
    assert all(f"`{name}`" in PAGE for name in (*schema.STUDY_FILES, "manifest.json"))
    assert set(COLUMNS) <= NAMES


def test_every_column_of_the_summary_is_explained(small_metrics):
    from calgrid.statistics import summarise

    assert set(summarise(small_metrics)) <= NAMES


@pytest.fixture
def small_metrics():
    row = {
        **dict.fromkeys(schema.METRIC_COLUMNS, ""),
        "method": "ce",
        "metric": "ece",
        "calibrator": "none",
    }
    row |= {"split": "test", "value": 0.1, "seed": 1, "fit_seed": 0, "severity": 0}
    return pd.DataFrame([{**row, "ci_low": 0.05, "ci_high": 0.15, "n_samples": 10}])


@pytest.mark.parametrize(
    ("pages", "folder"),
    [
        ({"cifar10": 3, "cifar10_shift": 3, "cifar10_bank": 4, "fedlas_ablation": 1}, "cifar10"),
        ({"photographs": 1}, "photographs"),
        ({"ensembles": 2}, "ensembles"),
        ({"published_networks": 1}, "published_networks"),
        ({"real_logits": 2}, "real_logits"),
    ],
)
def test_tables_of_findings_are_what_their_script_prints(capsys, pages, folder):
    runpy.run_path(str(HOME / "docs" / folder / "tables.py"))
    printed = re.findall(r"(?:^\|.*\n)+", capsys.readouterr().out, re.MULTILINE)
    for page, number in pages.items():
        text = (HOME / "docs" / f"{page}.md").read_text()
        shown = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
        assert len(set(shown) & set(printed)) == number, page


def test_the_readme_counts_losses_procedures_and_calibrators():
    """Neither plain training nor no calibrator counts."""
    kinds = {"losses": "loss", "procedures": "procedure", "calibrators": "calibrator"}
    counts = []
    for plural, kind in kinds.items():
        counts.append(f"{len(descriptions(kind).keys() - {'standard', 'none'})} {plural}")
    assert ", ".join(counts) in (HOME / "README.md").read_text()


def test_the_first_table_of_the_readme_has_the_means_over_published_networks():
    readme = (HOME / "README.md").read_text()
    runs = pd.read_parquet(HOME / "docs" / "published_networks" / "metrics.parquet")
    runs = runs[runs["split"] == "test"]
    rows = re.findall(r"^\| `(\w+)`.*?((?: \| [\d.]+){3}) \|$", readme, re.MULTILINE)
    assert len(rows) == 8
    for calibrator, cells in rows:
        of_calibrator = runs[runs["calibrator"] == calibrator]
        networks = of_calibrator.groupby(["dataset", "backbone", "metric"], observed=True)["value"]
        means = networks.mean().groupby(["dataset", "metric"], observed=True).mean()
        expected = [
            f"{100 * means['cifar10', 'ece_debiased']:.2f}",
            f"{100 * means['cifar100', 'ece_debiased']:.2f}",
            f"{means['cifar100', 'nll']:.3f}",
        ]
        assert cells.split(" | ")[1:] == expected


def test_a_mean_and_a_test_on_photographs_follow_from_the_runs():
    folder = HOME / "docs" / "photographs"
    summary, runs = (pd.read_parquet(folder / f"{name}.parquet") for name in ("summary", "metrics"))
    keys = ["split", "calibrator", "metric"]
    where = dict(zip(keys, ("test", "none", "nll"), strict=True))
    values, means = (
        frame[(frame[keys] == pd.Series(where)).all(axis=1)] for frame in (runs, summary)
    )
    by_seed = values.pivot(index="seed", columns="method", values="value")
    row = means.set_index("method").loc["fedlas_mbls"]
    assert row["mean"] == pytest.approx(by_seed["fedlas_mbls"].mean())
    assert row["std"] == pytest.approx(by_seed["fedlas_mbls"].std())
    assert row["p_seeds"] == pytest.approx(ttest_rel(by_seed["fedlas_mbls"], by_seed["ce"]).pvalue)


@pytest.mark.parametrize("name", ["from_logits", "from_parquet"])
def test_notebooks_show_what_they_give(name, monkeypatch, tmp_path):
    monkeypatch.chdir(HOME if name == "from_parquet" else tmp_path)
    path = HOME / "docs" / f"{name}.ipynb"
    cells, names = _notebook.run(path)
    stored = json.loads(path.read_text())["cells"]
    assert words_of(cells) == words_of(stored)
    pictures = [output["data"]["image/png"] for output in outputs_of(stored) if is_picture(output)]
    assert len(pictures) == 1
    assert len(pictures[0]) < 40_000
    assert sum(map(is_picture, outputs_of(cells))) == 1
    if name == "from_parquet":  # pooled over seeds, which differ little
        reported = names["table"].loc["ce", ("ece", "none")]
        assert names["axes"][0].get_title() == f"ce: ECE {100 * reported:.2f} %"
    else:
        assert isnan_alone(names["session"], names["test_logits"])


def outputs_of(cells):
    return [output for cell in cells for output in cell.get("outputs", [])]


def is_picture(output):
    return "image/png" in output.get("data", {})


def words_of(cells):
    """What a notebook shows, but pictures, whose bytes depend on the version of a library."""
    return [output for output in outputs_of(cells) if not is_picture(output)]


def isnan_alone(session, logits):
    """Whether a row with NaN is NaN, and no other, as the notebook says."""
    rows = logits[:3].copy()
    rows[1, 2] = np.nan
    (served,) = session.run(None, {"logits": rows})
    return np.isnan(served).all(axis=1).tolist() == [False, True, False]


@pytest.mark.slow
def test_the_tutorial_works_as_it_stands(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    blocks = re.findall(
        r"```(python|bash)\n(.*?)```", (HOME / "docs" / "tutorial.md").read_text(), re.DOTALL
    )
    names: dict[str, object] = {}
    printed = io.StringIO()
    for language, code in blocks:
        if language == "python":
            with contextlib.redirect_stdout(printed):
                exec(code, names)
            network = names["network"]
        else:
            with torch.no_grad():  # the rival of the last block
                rival = network(names["images"][800:] + 0.1).numpy()
            np.savez("test_of_another.npz", logits=rival, label=names["labels"][800:].numpy())
            few = re.sub(r"^(calgrid [a-z-]+)", r"\1 --bootstrap 20", code, flags=re.MULTILINE)
            subprocess.run(["bash", "-euc", few], check=True, capture_output=True)
    assert len(blocks) == 10
    assert "<h1>" in Path("results/my_network/report.html").read_text()
    assert names["after"]["ece_debiased"] < 0.5 * names["before"]["ece_debiased"]
    assert names["after"]["nll"] < names["before"]["nll"]
