"""Reliability diagrams of files, and the picture and sentence of a calibration."""

import re

import numpy as np
import pytest
from tests.cli.conftest import write
from tests.metrics.cases import softmax

from calgrid.metrics import ece


def test_bins_of_a_file_give_its_calibration_error(calgrid, files, data):
    _, test = files("npz")
    done = calgrid("reliability", test, "--bootstrap", 0, "--bins", 10)
    head, _, *rows = done.out.strip().splitlines()
    counts, confidence, accuracy = np.array([row.split()[2:] for row in rows], float).T
    found = (counts * np.abs(confidence - accuracy)).sum() / counts.sum()
    assert found == pytest.approx(ece(softmax(data.test), data.test_labels, 10), abs=1e-4)
    assert head.startswith("test: 300 rows, says ")
    assert " %, debiased ECE " in head


def test_calibrate_draws_before_and_after_and_its_verdict_is_in_front(succeeds, files, tmp_path):
    val, test = files("npz")
    plot, out = tmp_path / "r.svg", tmp_path / "calibrated.parquet"
    options = ("--fit", val, "--apply", test, "--bootstrap", 50, "--plot", plot, "--out", out)
    done = succeeds("calibrate", "--calibrator", "ts,none", *options)
    use, *lines = done.out.splitlines()
    assert use.startswith("Use ")
    (verdict,) = (line for line in lines if " is better than no calibration on " in line)
    assert verdict.startswith("ts")
    assert "paired interval of the difference [-" in verdict
    assert plot.read_text().count("debiased ECE") == 2
    succeeds("reliability", test, out, "--plot", tmp_path / "both.pdf", "--bootstrap", 0)
    assert (tmp_path / "both.pdf").read_bytes().startswith(b"%PDF")


def test_each_class_has_the_diagram_of_its_predictions(succeeds, files, data, tmp_path):
    _, test = files("npz")
    done = succeeds("reliability", test, "--per-class")
    probs = softmax(data.test)
    for number, block in enumerate(done.out.strip().split("\n\n")):
        rows = probs.argmax(axis=1) == number
        right = 100 * (data.test_labels[rows] == number).mean()
        said = f"says {100 * probs[rows].max(axis=1).mean():.1f} %, right {right:.1f} %"
        assert block.startswith(f"{number}: {rows.sum()} rows, {rows.sum()} predicted, {said}\n")
    assert number + 1 == probs.shape[1]
    plot = tmp_path / "r.svg"
    succeeds("reliability", test, "--per-class", "--plot", plot)
    assert plot.read_text().count(" predicted") == probs.shape[1]


def test_names_that_cannot_be_drawn_are_refused(fails, files, tmp_path):
    _, test = files("npz")
    fails("reliability", test, "--plot", tmp_path / "r.txt", parts=["ends in .pdf, .png, .svg"])
    fails("reliability", test, test, parts=["files with different names"])


def test_a_calibrator_that_ties_says_what_could_have_been_found(succeeds, data, tmp_path):
    val = write(tmp_path / "val", "npz", data.val / 3, data.val_labels)
    test = write(tmp_path / "test", "npz", data.test / 3, data.test_labels)
    options = ("--fit", val, "--apply", test, "--bootstrap", 50)
    done = succeeds("calibrate", "--calibrator", "ts", *options)
    found = r"ts ties with no calibration .*; a difference of 0\.\d{4} nats would have been found"
    assert re.search(found, done.out)
