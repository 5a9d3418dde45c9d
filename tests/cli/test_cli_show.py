"""``calgrid show``: what a run is made of, how it was trained, how reliable it is."""

import numpy as np
import pandas as pd
import pytest
from tests.jobs.small import import_run

from calgrid.metrics import evaluate
from calgrid.report.run import reliability
from calgrid.storage.records import FILES, listed, write_record
from calgrid.storage.tables import write_frame

KEY = {"protocol": "p", "dataset": "d", "backbone": "b", "method": "mine", "seed": 3}


@pytest.fixture
def run(tmp_path, data):
    """A run with logits and a history below ``results/runs``."""
    folder = tmp_path / "results" / "runs" / "p" / "d" / "b" / "mine" / "seed3"
    np.savez(tmp_path / "test.npz", logits=data.test, label=data.test_labels)
    external = {"kind": "logits", "test": "test.npz", "split_seed": 0, "val_fraction": 0.5}
    made = {"key": KEY, "external": external, "fingerprint": "f", "run_fingerprint": "f1"}
    import_run(made, [tmp_path / "test.npz"], folder / "predict-f2")
    trained = folder / "train-f1"
    epochs = np.arange(30)
    curves = dict.fromkeys(
        ("learning_rate", "train_loss", "train_accuracy", "val_nll", "val_accuracy"), epochs / 30
    )
    write_frame(trained / "history.parquet", pd.DataFrame({"epoch": epochs, **curves}))
    loss = {"id": "ls", "options": {"alpha": 0.05}}
    spec = {"key": KEY, "protocol": {"epochs": 30}, "loss": loss}
    record = {"spec": spec, "seconds": 12.0, "environment": {"device_name": "a device"}}
    write_record(trained / "train.json", {**record, FILES: listed(trained, ["history.parquet"])})
    return folder


def test_a_run_is_described(succeeds, run):
    done = succeeds("show", run, "--bins", 5)
    assert done.out.startswith("p/d/b/mine/seed3: 12.0 s on a device\n")
    assert "options: {alpha: 0.05}" in done.out
    course = done.out.split("epoch  learning_rate")[1].split("\n\n")[0]
    assert [int(line.split()[0]) for line in course.splitlines()[1:]] == sorted(
        {round(1 + k * 29 / 11) for k in range(12)}
    )
    bins = [line for line in done.out.splitlines() if "|" in line and "%" not in line]
    assert sum(int(line.split()[1]) for line in bins) == 150


def test_a_run_is_drawn(succeeds, run, tmp_path):
    path = tmp_path / "run.png"
    succeeds("show", run, "--plot", path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_mistakes(fails, run, tmp_path):
    fails("show", tmp_path / "no", parts=["There is no ", "give the configuration of a study"])
    fails("show", run, "--checkpoint", "best", parts=["Unknown checkpoint 'best'", "last"])
    fails("show", run, "--plot", tmp_path / "run.txt", parts=["ends in .pdf, .png, .svg"])
    (run / "predict-f2/logits/last/test.parquet").write_bytes(b"damaged")
    fails("show", run, "--plot", tmp_path / "run.png", parts=["test.parquet is damaged"])
    assert not (tmp_path / "run.png").exists()


def test_the_diagram_of_a_small_case():
    """0.95 and 0.85 lie in the last of two bins, one of them right; ECE is the mean gap."""
    probabilities, labels = np.array([[0.95, 0.05], [0.15, 0.85], [0.5, 0.5]]), np.array([0, 0, 0])
    found = reliability(probabilities, labels, n_bins=2)
    assert found["count"].tolist() == [1, 2]
    assert found["confidence"].tolist() == pytest.approx([0.5, 0.9])
    assert found["accuracy"].tolist() == pytest.approx([1.0, 0.5])
    gap = (found["count"] * (found["confidence"] - found["accuracy"]).abs()).sum() / 3
    assert gap == pytest.approx(evaluate(probabilities, labels, n_bins=2)["ece"])
