"""Options of ``calgrid calibrate`` that do not go together are refused before any fit."""

from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import write

from calgrid.calibrators import load_calibrator
from calgrid.logits.ranking import usable
from calgrid.logits.reading import share_rows
from calgrid.storage.logits import Logits

FAST = ("--bootstrap", 0)


@pytest.fixture
def no_ranking(monkeypatch):
    def rank(*_args, **_options):
        raise AssertionError("ranked")

    monkeypatch.setattr("calgrid.cli.calibrate.rank_calibrators", rank)


def test_what_a_ranking_alone_does_not_write_is_refused(files, fails, tmp_path, no_ranking):
    val, _ = files()
    fit = ("calibrate", "--calibrator", "ts,iso", "--fit", val)
    out, saved = tmp_path / "out.parquet", tmp_path / "best.safetensors"
    needed = "--out and --plot need --apply, the file to calibrate."
    fails(*fit, "--out", out, parts=[needed])
    fails(*fit, "--save", saved, "--plot", tmp_path / "plot.png", parts=[needed])


@pytest.mark.parametrize("names", ["ts", "none,ts"])
def test_a_calibrator_is_saved_without_a_file_to_calibrate(succeeds, files, tmp_path, names):
    val, test = files()
    saved, same = tmp_path / "saved.safetensors", tmp_path / "same.safetensors"
    fit = ("calibrate", "--calibrator", names, "--fit", val, *FAST)
    done = succeeds(*fit, "--save", saved)
    assert done.out.splitlines()[-1].startswith(f"{saved} has ts(T=")
    assert done.out.endswith("; apply it with --load.\n")
    succeeds(*fit, "--save", same, "--apply", test)
    assert load_calibrator(saved).id == "ts"
    assert saved.read_bytes() == same.read_bytes()


def test_both_targets_are_right_before_one_is_written(pair, fails, tmp_path, monkeypatch):
    fit = (*pair(), "--calibrator", "ts")
    saved, one = tmp_path / "ts.safetensors", tmp_path / "one.parquet"
    folder = tmp_path / "d.parquet"
    folder.mkdir()
    fails(*fit, "--save", one, "--out", one, parts=["one.parquet is the file of both 'save' and"])
    fails(*fit, "--save", saved, "--out", folder, parts=[f"--out {folder} is a folder"])
    below = tmp_path / "val.parquet" / "out.parquet"
    fails(*fit, "--save", saved, "--out", below, parts=["The path", "cannot be used (file exists)"])
    long = tmp_path / ("a" * 300 + ".parquet")
    fails(*fit, "--save", saved, "--out", long, parts=[f"The path {long} is too long"])
    closed = tmp_path / "closed" / "out.parquet"
    deny(monkeypatch, "touch", lambda path: path.parent.name == "closed")
    denied = [f"The path {closed} cannot be used (permission denied)"]
    fails(*fit, "--save", saved, "--out", closed, parts=denied)
    assert not saved.exists()
    assert not one.exists()


@pytest.mark.parametrize(
    "call",
    [
        ("calibrate", "--fit", "a.npz", "--apply", "a.csv", "--calibrator", "ts", "--out", "A.csv"),
        ("calibrate", "--fit", "a.csv", "--apply", "a.npz", "--calibrator", "ts", "--out", "A.csv"),
        ("calibrate", "--fit", "a.csv", "--calibrator", "ts", "--save", "A.csv"),
        ("reliability", "a.npz", "a.csv", "--plot", "A.csv"),
        ("export", "a.csv", "--onnx", "A.csv"),
        ("pack", "a.csv", "A.csv", "--creator", "me", "--licence", "CC0-1.0"),
    ],
    ids=["apply", "fit", "save", "plot", "onnx", "archive"],
)
def test_a_file_that_is_read_is_not_replaced(fails, tmp_path, monkeypatch, call):
    """``a.csv`` is a link to ``A.csv``."""
    monkeypatch.chdir(tmp_path)
    Path("A.csv").write_text("kept")
    Path("a.csv").symlink_to("A.csv")
    fails(*call, parts=["A.csv is the file of both", "give", "another name"])
    assert Path("A.csv").read_text() == "kept"


def deny(monkeypatch, name, closed):
    """Let a method of paths fail for those that are ``closed``."""
    original = getattr(Path, name)

    def denied(path, *args, **options):
        if closed(path):
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *args, **options)

    monkeypatch.setattr(Path, name, denied)


def test_rows_that_score_their_own_fit_are_warned_of(calgrid, succeeds, files):
    val, test = files()
    fit = ("calibrate", "--calibrator", "ts", "--fit", val, *FAST)
    assert "Warning" not in calgrid(*fit, "--apply", test).err
    again = succeeds(*fit, "--apply", val.parent / ".." / val.parent.name / val.name)
    assert again.err.count("\n") == 1
    assert "Warning: --fit and --apply share rows" in again.err


def test_shared_rows_are_told_from_numbers_that_are_equal_by_rounding():
    rng = np.random.default_rng(0)

    def draw(decimals):
        return rng.normal(size=(200, 2)).round(decimals).astype(np.float32)

    def share(one, other):
        zeros = np.zeros(200, np.int32)
        return share_rows(*(Logits(np.arange(200), zeros, each) for each in (one, other)))

    test, rounded = draw(6), draw(1)
    assert not share(draw(6), test)
    assert share(np.concatenate([draw(6)[:180], test[:20]]), test)
    assert not share(draw(1), rounded)
    assert share(rounded, rounded)


def test_classes_without_a_row_in_the_fit_are_named(calgrid, data, files, tmp_path):
    _, test = files()
    keep = data.val_labels < 3
    val = write(tmp_path / "three", "npz", data.val[keep], data.val_labels[keep])
    done = calgrid("calibrate", "--calibrator", "vs", "--fit", val, "--apply", test, *FAST)
    assert "three.npz has no row of 1 of 4 classes (3)" in done.err


@pytest.mark.parametrize(
    ("text", "ranked"), [("ts, iso", ["ts", "iso"]), ("ts,", None), (" ts ,temperature", None)]
)
def test_spaces_and_empty_parts_of_a_list(calibrated, text, ranked):
    done = calibrated("--calibrator", text)
    assert ("Ranked by" in done.out) == (ranked is not None)
    assert all(name in done.out for name in ranked or ["ts"])


@pytest.mark.parametrize("applied", ["without", "with"])
def test_features_rank_only_where_the_file_to_calibrate_has_them(
    calgrid, data, tmp_path, monkeypatch, applied
):
    width = 3
    for name in ("val", "test"):
        logits, labels = getattr(data, name), getattr(data, f"{name}_labels")
        has_features = (name, applied) != ("test", "without")
        features = {"features": np.ones((len(labels), width))} if has_features else {}
        np.savez(tmp_path / f"{name}.npz", logits=logits, label=labels, **features)
    asked = []

    def rank(logits, labels, features, head, candidates, **_options):
        asked.append((features is not None, candidates))
        raise SystemExit

    monkeypatch.setattr("calgrid.cli.calibrate.rank_calibrators", rank)
    fit = ("--calibrator", "all", "--fit", tmp_path / "val.npz", "--apply", tmp_path / "test.npz")
    done = calgrid("calibrate", *fit)
    (plain, _), (rich, _) = usable(3), usable(3, np.ones((2, width)))
    assert set(plain) < set(rich)
    assert asked == [(True, rich) if applied == "with" else (False, plain)]
    said = "test.npz has no features: calibrators that need them are left out."
    assert (said in done.err) == (applied == "without")


def test_a_calibrator_that_may_not_be_read_is_not_called_damaged(
    calibrated, files, fails, tmp_path, monkeypatch
):
    fitted = tmp_path / "ts.safetensors"
    calibrated("--calibrator", "ts", "--save", fitted)
    deny(monkeypatch, "open", lambda path: path == fitted)
    parts = [f"The path {fitted} cannot be used (permission denied)"]
    fails("calibrate", "--load", fitted, "--apply", files()[1], *FAST, parts=parts)


@pytest.mark.parametrize("names", ["dac", "ts,dac"])
def test_calibrators_that_need_training_images_are_refused(names, fails, files):
    fit = ("calibrate", "--calibrator", names, "--fit", files()[0])
    fails(*fit, parts=["'dac' needs features of training images", "export_features: train"])
