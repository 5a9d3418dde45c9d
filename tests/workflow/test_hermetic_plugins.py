"""A job runs what its name says of plugins, and nothing else that lies about."""

import os
import sys

import numpy as np
import pandas as pd
import pytest
from tests.workflow.test_identity import study_of_files

from calgrid.errors import ConfigError
from calgrid.study.slow_checks import check_plugins
from calgrid.study.study import Study

CALIBRATOR = """
from pathlib import Path

from scipy.special import softmax

from calgrid.calibrators import Calibrator
from calgrid.components.registry import register
IMPORT


@register(source="a paper", keeps_argmax=True, parameters="0")
class Scaled(Calibrator):
    def _fit(self, logits, labels, features, head):
        return {}

    def _transform(self, logits, features):
        return softmax(FACTOR * logits, axis=1)
"""
#: calibrator -> its import statement, and the file of the plugin that acts by it
WAYS = {
    "by_module": ("from mine._factor import FACTOR", "_factor.py"),
    "by_package_that_shadows_a_module": ("from mine._shadow import FACTOR", "_shadow/__init__.py"),
    "by_data": (
        "FACTOR = float(Path(__file__).parents[1].joinpath('data/f.txt').read_text()[9:])",
        "data/f.txt",
    ),
    "by_listed_file_that_is_executed": (
        "FILES = ['../rule.md']\nexec(Path(__file__).parents[1].joinpath('rule.md').read_text())",
        "rule.md",
    ),
}
#: what is not found -> import statement of the calibrator, the file, and what is said of it
HIDDEN = {
    "a module of the working folder": ("from helper import FACTOR", "helper.py", "ModuleNotFound"),
    "a module beside the plugin": ("from beside import FACTOR", "code/beside.py", "ModuleNotFound"),
    "an executed file": (
        "exec(Path(__file__).with_name('_rule.py').read_text())",
        "code/mine/calibrators/_rule.py",
        "FileNotFound",
    ),
    "a hidden file": (
        "exec(Path(__file__).with_name('.rule').read_text())",
        "code/mine/calibrators/.rule",
        "FileNotFound",
    ),
}


def write(path, content):
    """Write a file of the same size and time, as copies between machines do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (10**9, 10**9))


def scores(repository):
    """NLL of each calibrator by the newest job, and as it is with a factor."""
    jobs = repository.root.glob("results/runs/**/calibrate-*/metrics.parquet")
    newest = max(jobs, key=lambda path: path.stat().st_mtime)
    table = pd.read_parquet(newest).query("metric == 'nll' and split == 'test'")
    test = pd.read_parquet(next(repository.root.glob("results/runs/**/logits/last/test.parquet")))
    rows = np.stack(test["logits"].to_numpy()).astype(float)
    right = rows[np.arange(len(test)), test["label"]]

    def expected(factor):
        return (np.logaddexp.reduce(factor * rows, axis=1) - factor * right).mean()

    return table.set_index("calibrator")["value"], expected


@pytest.mark.workflow
def test_numbers_follow_what_acts(tmp_path):
    """Each edit alone plans the job again, and the job computes with all of them."""
    repository = study_of_files(tmp_path / "repository", ["none", *WAYS], plugins=["code/mine"])
    mine = repository.root / "code/mine"
    write(mine / "_shadow.py", "FACTOR = 7.0\n")
    # the same content elsewhere has the same name
    before, after = ({name: f"0.{tens}{n}" for n, name in enumerate(WAYS)} for tens in (9, 2))
    for name, (statement, _) in WAYS.items():
        write(mine / f"calibrators/{name}.py", CALIBRATOR.replace("IMPORT", statement))
    for factors in (before, after):
        for name, (_, file) in WAYS.items():
            write(mine / file, f"FACTOR = {factors[name]}")
        repository.run("files.yaml", "--until", "calibrate")
        found, expected = scores(repository)
        for name, factor in factors.items():
            assert found[name] == pytest.approx(expected(float(factor)), abs=1e-9), name
    for name, (_, file) in WAYS.items():
        write(mine / file, "FACTOR = 0.55")
        assert repository.plan("files.yaml", "--until", "calibrate") == {"calibrate m/seed0"}, name
        write(mine / file, f"FACTOR = {after[name]}")


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_no_fingerprint_covers_is_not_found(
    tmp_path, monkeypatch, without_plugins, make_config, home, hidden
):
    statement, file, reason = HIDDEN[hidden]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    write(tmp_path / "code/mine/calibrators/scaled.py", CALIBRATOR.replace("IMPORT", statement))
    write(tmp_path / file, "FACTOR = 0.9")
    config = make_config({"calibrators": ["none", "scaled"]}, plugins=["code/mine"])
    with pytest.raises(ConfigError) as refused:
        check_plugins(Study(config, home))
    for said in ("mine/calibrators/scaled.py, line ", reason, "FILES = ['notes.md']"):
        assert said in str(refused.value)
