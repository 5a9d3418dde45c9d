"""A job runs what its name says of plugins, and nothing else that lies about."""

import os

import numpy as np
import pandas as pd
import pytest
from tests.workflow.dag import Repository
from tests.workflow.test_identity import logits

pytestmark = pytest.mark.workflow
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
#: what acts -> import statement of the calibrator, and the file in which it stands
WAYS = {
    "a module": ("from mine._factor import FACTOR", "code/mine/_factor.py"),
    "a package that shadows a module": (
        "from mine._shadow import FACTOR",
        "code/mine/_shadow/__init__.py",
    ),
    "a file of data": (
        "FACTOR = float(Path(__file__).parents[1].joinpath('data/f.txt').read_text()[9:])",
        "code/mine/data/f.txt",
    ),
    "a listed file that is executed": (
        "FILES = ['../rule.md']\nexec(Path(__file__).parents[1].joinpath('rule.md').read_text())",
        "code/mine/rule.md",
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
    "a module that is executed": (
        "import runpy\n"
        "FACTOR = runpy.run_path(str(Path(__file__).with_name('_rule.py')))['FACTOR']",
        "code/mine/calibrators/_rule.py",
        "FileNotFound",
    ),
    "a module by its path": (
        "from importlib import util\n"
        "spec = util.spec_from_file_location('r', Path(__file__).with_name('_rule.py'))\n"
        "rule = util.module_from_spec(spec)\nspec.loader.exec_module(rule)\nFACTOR = rule.FACTOR",
        "code/mine/calibrators/_rule.py",
        "FileNotFound",
    ),
    "a hidden file": (
        "exec(Path(__file__).with_name('.rule').read_text())",
        "code/mine/calibrators/.rule",
        "FileNotFound",
    ),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("hermetic") / "repository")
    (repository.root / "data").mkdir()
    logits(repository.root / "data/r.npz")
    run = {"kind": "logits", "test": "r.npz", "split_seed": 1, "dataset": "d", "method": "m"}
    repository.configure(
        {
            "study": "files",
            "data_root": "data",
            "plugins": ["code/mine"],
            "external": {"r": {**run, "backbone": "b", "calibrators": ["none", "scaled"]}},
            "statistics": {"bootstrap": 0},
        },
        "files.yaml",
    )
    return repository


@pytest.fixture
def write(repository):
    """Write files of the same size and time, as copies between machines do."""

    def write(name, content):
        path = repository.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, (10**9, 10**9))

    return write


def nll(repository, factor):
    """NLL of the calibrator by its job, and as it is with this factor."""
    newest = max(
        repository.root.glob("results/runs/**/calibrate-*/metrics.parquet"),
        key=lambda path: path.stat().st_mtime,
    )
    table = pd.read_parquet(newest).query("metric == 'nll' and split == 'test'")
    by_calibrator = table.set_index("calibrator")["value"]
    test = pd.read_parquet(next(repository.root.glob("results/runs/**/logits/last/test.parquet")))
    scaled = factor * np.stack(test["logits"].to_numpy()).astype(float)
    right = scaled[np.arange(len(test)), test["label"]]
    return by_calibrator["scaled"], (np.logaddexp.reduce(scaled, axis=1) - right).mean()


@pytest.mark.parametrize("way", WAYS)
def test_a_number_follows_what_acts(repository, write, way):
    statement, file = WAYS[way]
    write("code/mine/calibrators/scaled.py", CALIBRATOR.replace("IMPORT", statement))
    write("code/mine/_shadow.py", "FACTOR = 7.0\n")
    number = list(WAYS).index(way) + 1  # the same content elsewhere has the same name
    for factor in (0.9 + number / 100, 0.2 + number / 100):
        write(file, f"FACTOR = {factor:.2f}")
        repository.run("files.yaml", "--until", "calibrate")
        found, expected = nll(repository, factor)
        assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_no_fingerprint_covers_is_not_found(repository, write, hidden):
    statement, file, reason = HIDDEN[hidden]
    write("code/mine/calibrators/scaled.py", CALIBRATOR.replace("IMPORT", statement))
    write(file, "FACTOR = 0.9")
    done = repository.snakemake("--configfile", "files.yaml", "-n", "--cores", "2")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "mine/calibrators/scaled.py, line " in said
    assert reason in said
    assert "FILES = ['notes.md']" in said
