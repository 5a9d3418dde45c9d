"""Probabilities are scored as they are: no logarithm breaks ties or moves values between bins."""

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


def test_metrics_are_those_of_the_array(succeeds, votes):
    path, shares, labels = votes
    done = succeeds("metrics", path, "--json", *AS_GIVEN)
    shown = json.loads(done.out)
    (warning,) = shown.pop("warnings")
    assert "of 200 rows give their label the probability 0" in warning
    assert f"Warning: {warning}" in done.err
    found = {name: cell["value"] for name, cell in shown.items()}
    assert found == evaluate(shares, labels)


def test_the_uncalibrated_column_is_that_of_the_array(calgrid, votes):
    path, shares, labels = votes
    cece = f"{evaluate(shares, labels)['cece']:.5f}"
    for id in ("ts", "none"):
        done = calgrid("calibrate", "--calibrator", id, "--fit", path, "--apply", path, *AS_GIVEN)
        line = next(line for line in done.out.splitlines() if line.startswith("cece"))
        assert line.split()[1] == cece


def test_a_ranking_has_the_numbers_of_the_array(succeeds, votes):
    path, shares, labels = votes
    options = ("calibrate", "--calibrator", "none,ts", "--fit", path, "--json", *AS_GIVEN)
    ranking = json.loads(succeeds(*options).out)["ranking"]
    (bare,) = (entry["metrics"] for entry in ranking if entry["calibrator"] == "none")
    assert {name: cell["value"] for name, cell in bare.items()} == evaluate(shares, labels)


def test_a_calibrated_file_is_calibrated_again_by_its_probabilities(calgrid, calibrated, tmp_path):
    out = tmp_path / "out.parquet"
    calibrated("--calibrator", "hb", "--out", out)
    options = ("--calibrator", "iso", "--fit", out, "--apply", out, "--json", "--bootstrap", 0)
    again, stated = calgrid("calibrate", *options), calgrid("calibrate", *options, *AS_GIVEN)
    assert again.code == 0, again.err
    assert again.out == stated.out


def test_the_published_form_of_the_aece_says_what_it_leaves_out(calgrid, tmp_path):
    np.savez(tmp_path / "p.npz", probs=np.tile([0.9, 0.1], (20, 1)), label=np.arange(20) % 2)
    done = calgrid("metrics", tmp_path / "p.npz", *AS_GIVEN)
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert lines["aece_eq"].split()[1] == "0.40000"
    assert lines["aece"].split()[1] == "0.00000"
    assert lines["aece"].endswith("rows of lowest confidence in no bin (20 here)")


def test_metrics_of_the_calibrated_file_are_what_calibrate_printed(
    calgrid, calibrated, data, tmp_path
):
    out = tmp_path / "out.parquet"
    calibrated("--calibrator", "hb", "--out", out)
    fitted = build_calibrator("hb").fit(data.val, data.val_labels)
    expected = evaluate(fitted.predict_proba(data.test), data.test_labels)
    again = calgrid("metrics", out, "--json", "--bootstrap", 0)
    shown = json.loads(again.out)
    assert shown.pop("warnings") == []
    assert {name: cell["value"] for name, cell in shown.items()} == expected
    assert calgrid("metrics", out, "--json", *AS_GIVEN).out == again.out
    assert read_logits(out).logits.dtype == np.float32
