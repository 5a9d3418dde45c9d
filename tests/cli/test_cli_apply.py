"""Applying a fit: its classes, kind and form decide, and labels may be absent."""

import json

import numpy as np
import pandas as pd
import pytest

from calgrid.calibrators import build_calibrator, load_calibrator
from calgrid.storage.logits import NO_LABEL, read_logits

NAMES = ["cat", "dog", "eel", "fox"]
PERMUTED = [2, 0, 3, 1]
QUICK = ("--bootstrap", 0)


def table(path, logits, order, labels=None):
    """A CSV file with one column per class, in some order."""
    columns = [logits[:, place].astype(str) for place in order]
    names = [f"logit_{NAMES[place]}" for place in order]
    if labels is not None:
        columns.append(np.array(NAMES)[labels])
        names.append("label")
    lines = [",".join(names), *(",".join(row) for row in zip(*columns, strict=True))]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def val(tmp_path, data):
    return table(tmp_path / "val.csv", data.val, range(4), data.val_labels)


@pytest.fixture
def fitted(succeeds, tmp_path, val):
    """A fit that depends on the order of the classes, saved."""
    path = tmp_path / "fitted.safetensors"
    succeeds(
        "calibrate", "--calibrator", "vs", "--fit", val, "--apply", val, "--save", path, *QUICK
    )
    return path


@pytest.fixture
def expected(data):
    return build_calibrator("vs").fit(data.val, data.val_labels).predict_proba(data.test)


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("saved", [True, False])
def test_columns_go_by_name(succeeds, fitted, val, expected, data, tmp_path, saved, labelled):
    out = tmp_path / "out.parquet"
    labels = data.test_labels if labelled else None
    test = table(tmp_path / "test.csv", data.test, PERMUTED, labels)
    fit = ("--load", fitted) if saved else ("--calibrator", "vs", "--fit", val)
    done = succeeds("calibrate", *fit, "--apply", test, "--out", out, *QUICK)
    written = read_logits(out)
    assert np.exp(written.logits) == pytest.approx(expected, abs=1e-5)
    assert written.metadata["classes"] == NAMES
    assert ("has no labels: no metrics" in done.err) is not labelled
    assert written.label.tolist() == (data.test_labels.tolist() if labelled else [NO_LABEL] * 300)


def test_other_classes_and_files_from_which_nothing_would_come_are_refused(
    succeeds, fails, fitted, data, tmp_path
):
    other = table(tmp_path / "other.csv", data.test, range(4))
    load = ("calibrate", "--load", fitted, "--apply")
    fails(*load, other, parts=["other.csv has no labels", "give --out", "--label-key"])
    wide = tmp_path / "wide.csv"
    pd.read_csv(other).assign(logit_owl=0.5).to_csv(wide, index=False)
    to = ("--out", tmp_path / "out.csv")
    said = "wide.csv has the columns logit_owl beside those of the classes cat, dog, eel, fox"
    fails(*load, wide, *to, parts=[said])
    succeeds(*load, wide, *to, "--classes", ",".join(NAMES))
    other.write_text(other.read_text().replace("eel", "yak"))
    fails(*load, other, parts=["no column for the classes eel, it contains logit_cat, logit_dog"])
    order = ("--classes", "dog,cat,eel,fox")
    fails(*load, other, *order, parts=["fitted on the classes cat,dog,eel,fox"])


def test_a_fit_without_names_for_columns_with_names_is_said(calgrid, data, tmp_path):
    plain = tmp_path / "plain.npz"
    np.savez(plain, logits=data.val, label=data.val_labels)
    fit = ("calibrate", "--calibrator", "vs", "--fit", plain)
    test = table(tmp_path / "test.csv", data.test, PERMUTED, data.test_labels)
    done = calgrid(*fit, "--apply", test, *QUICK)
    assert "plain.npz does not name its classes: its columns are taken in the order" in done.err
    assert "test.csv, eel, cat, fox, dog." in done.err
    assert "does not name" not in calgrid(*fit, "--apply", plain, *QUICK).err


def test_a_file_that_is_calibrated_already_is_said(calgrid, fitted, val, tmp_path):
    apply = ("calibrate", "--load", fitted, *QUICK, "--apply")
    once = calgrid(*apply, val, "--out", tmp_path / "once.parquet")
    twice = calgrid(*apply, tmp_path / "once.parquet")
    fit = ("calibrate", "--calibrator", "ts", "--fit", tmp_path / "once.parquet", "--apply", val)
    said = "once.parquet has the probabilities of 'vs', which are calibrated again"
    found = [said in done.err for done in (once, twice, calgrid(*fit, *QUICK))]
    assert found == [False, True, True]


def test_a_saved_fit_knows_what_its_numbers_are(calgrid, tmp_path):
    rng = np.random.default_rng(0)
    shares = rng.uniform(size=200)
    np.savez(tmp_path / "val.npz", scores=shares, label=rng.uniform(size=200) < shares)
    saved, how = tmp_path / "fitted.safetensors", ("--values-key", "scores", *QUICK)
    both = ("--binary", "--kind", "probabilities")
    fit = ("--calibrator", "ts", "--fit", tmp_path / "val.npz", "--apply", tmp_path / "val.npz")
    first = calgrid("calibrate", *fit, *both, "--save", saved, *how)
    again = calgrid("calibrate", "--load", saved, "--apply", tmp_path / "val.npz", *how)
    assert (first.code, again.code) == (0, 0), first.err + again.err
    assert first.out == again.out
    calibrator = load_calibrator(saved)
    assert (calibrator.kind, calibrator.binary) == ("probabilities", True)
    one, two = calibrator.predict_proba(shares), calibrator.predict_proba(np.c_[1 - shares, shares])
    assert one == pytest.approx(two)


@pytest.mark.parametrize("classes", ["3,2,1,0", None])
def test_csv_has_a_column_for_each_class_and_gives_the_metrics_of_parquet(
    succeeds, pair, data, tmp_path, classes
):
    names = classes.split(",") if classes else ["0", "1", "2", "3"]
    given = ["--classes", classes] if classes else []
    found = {}
    for kind in ("csv", "parquet"):
        out = tmp_path / f"out.{kind}"
        succeeds(*pair("npz"), "--calibrator", "ts", "--out", out, *given)
        printed = succeeds("metrics", out, "--bootstrap", 0, "--json")
        metrics = json.loads(printed.out)
        assert metrics.pop("warnings") == []
        found[kind] = {name: score["value"] for name, score in metrics.items()}
    # columns are in the order of numbers where the classes have these, which changes rounding
    assert found["csv"] == pytest.approx(found["parquet"], rel=1e-12)
    frame = pd.read_csv(tmp_path / "out.csv")
    assert list(frame) == ["index", "label", *(f"probability_{name}" for name in names)]
    assert frame["label"].astype(str).tolist() == [names[label] for label in data.test_labels]
    expected = build_calibrator("ts").fit(data.val, data.val_labels).predict_proba(data.test)
    assert frame.iloc[:, 2:].to_numpy() == pytest.approx(expected, abs=1e-12)


def test_labels_of_csv_are_empty_where_there_are_none(succeeds, fails, pair, data, tmp_path):
    arguments, test, out = pair("npz"), tmp_path / "test.npz", tmp_path / "out.csv"
    np.savez(test, logits=data.test)
    succeeds(*arguments, "--calibrator", "ts", "--out", out)
    assert pd.read_csv(out)["label"].isna().all()
    said = "must contain an array 'probabilities' (N, K), or columns 'probability_...'"
    fails("metrics", out, parts=[said, "'label'"])
