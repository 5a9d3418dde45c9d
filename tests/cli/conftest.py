"""The command line in this process, and logits files of all kinds."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from tests.metrics.cases import softmax

from calgrid.cli import main
from calgrid.cli.joblogs import MARK
from calgrid.storage.logits import Logits, write_logits


@pytest.fixture
def calgrid(capsys, monkeypatch):
    """Run a command as the shell would; returns its exit code and what it wrote."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        # the command sets them; they are set back afterwards
        monkeypatch.setenv(name, os.environ.get(name, "1"))

    def run(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def succeeds(calgrid):
    """Run a command that must end well."""

    def run(*arguments):
        done = calgrid(*arguments)
        assert done.code == 0, done.err
        return done

    return run


@pytest.fixture
def fails(calgrid, refuses):
    """Run a command that must fail: exit code 2, one sentence on standard error, nothing on
    standard output.

    A stage begins what it writes into a log with a line that says where it runs.
    """

    def run(*arguments, parts):
        done = calgrid(*arguments)
        assert done.code == 2, done.out + done.err
        assert done.out == ""
        assert "Traceback" not in done.err
        said = [line for line in done.err.splitlines() if not line.startswith(MARK)]
        with refuses(RuntimeError, *parts):
            raise RuntimeError("\n".join(said))

    return run


@pytest.fixture
def configured(tmp_path):
    """Write a configuration, a mapping or text, and return its path."""

    def to_file(config):
        path = tmp_path / "study.yaml"
        path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
        return path

    return to_file


def overconfident(seed, rows=300, classes=4):
    """Logits three times too large for labels drawn from their softmax."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes))
    labels = (softmax(logits).cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)
    return (3 * logits).astype(np.float32), labels.astype(np.int64)


@pytest.fixture
def data():
    (val, val_labels), (test, test_labels) = overconfident(0), overconfident(1)
    return SimpleNamespace(val=val, val_labels=val_labels, test=test, test_labels=test_labels)


def write(path, kind, logits, labels):
    """Write a file of a kind, named as ``npz``, ``pt``, ``parquet`` or ``probabilities``."""
    path = path.with_suffix(".npz" if kind == "probabilities" else f".{kind}")
    if kind == "parquet":
        index = np.arange(len(labels), dtype=np.int32)
        write_logits(
            path, Logits(index, labels.astype(np.int32), logits, metadata={"split": path.stem})
        )
    elif kind == "pt":
        torch.save({"logits": torch.tensor(logits), "labels": torch.tensor(labels)}, path)
    elif kind == "npz":
        np.savez(path, logits=logits, y=labels)
    else:
        np.savez(path, probs=softmax(logits), label=labels)
    return path


@pytest.fixture
def files(tmp_path, data):
    """Val and test files of a kind."""

    def make(kind="parquet"):
        val = write(tmp_path / "val", kind, data.val, data.val_labels)
        return val, write(tmp_path / "test", kind, data.test, data.test_labels)

    return make


@pytest.fixture
def pair(files):
    """Arguments that calibrate a test file by a val file, of a kind, without intervals."""

    def arguments(kind="parquet"):
        val, test = files(kind)
        return ("calibrate", "--fit", val, "--apply", test, "--bootstrap", 0)

    return arguments


@pytest.fixture
def calibrated(succeeds, pair):
    """Calibrate with further options, which must end well."""
    return lambda *options, kind="parquet": succeeds(*pair(kind), *options)
