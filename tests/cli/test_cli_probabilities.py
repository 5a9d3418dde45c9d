"""Probabilities are scored as they are: no detour through logarithms breaks ties or moves values
between bins.
"""

import json

import numpy as np
import pytest

from calgrid.calibrators import build_calibrator
from calgrid.metrics import evaluate
from calgrid.storage.logits import read_logits

AS_GIVEN = ("--kind", "probabilities", "--bootstrap", 0)


@pytest.fixture
def votes(tmp_path):
    """Shares of five votes, many of them tied, with labels: a file and its arrays."""
    rng = np.random.default_rng(0)
    shares = rng.multinomial(5, [0.3, 0.3, 0.2, 0.1, 0.1], 200) / 5
    labels = rng.integers(0, 5, 200)
    np.savez(tmp_path / "votes.npz", probs=shares, label=labels)
    return tmp_path / "votes.npz", shares, labels


def test_metrics_are_those_of_the_array(calgrid, votes):
    path, shares, labels = votes
    done = calgrid("metrics", path, "--json", *AS_GIVEN)
    assert done.code == 0, done.err
    found = {name: cell["value"] for name, cell in json.loads(done.out).items()}
    assert found == evaluate(shares, labels)


def test_the_uncalibrated_column_is_that_of_the_array(calgrid, votes):
    path, shares, labels = votes
    cece = f"{evaluate(shares, labels)['cece']:.5f}"
    for id in ("ts", "none"):
        done = calgrid("calibrate", "--calibrator", id, "--fit", path, "--apply", path, *AS_GIVEN)
        line = next(line for line in done.out.splitlines() if line.startswith("cece"))
        assert line.split()[1] == cece


@pytest.mark.parametrize("id", ["hb", "bbq"])
def test_metrics_of_the_calibrated_file_are_what_calibrate_printed(
    calgrid, calibrated, data, tmp_path, id
):
    out = tmp_path / "out.parquet"
    calibrated("--calibrator", id, "--out", out)
    expected = evaluate(
        build_calibrator(id).fit(data.val, data.val_labels).predict_proba(data.test),
        data.test_labels,
    )
    again = calgrid("metrics", out, "--json", *AS_GIVEN)
    assert {name: cell["value"] for name, cell in json.loads(again.out).items()} == expected
    assert read_logits(out).logits.dtype == np.float32
