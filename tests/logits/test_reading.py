"""Files of other people: what is stated is read to the last bit, all else is one sentence."""

import io
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.logits.user_files import arrays, file_of, npz
from tests.metrics.cases import softmax

from calgrid.errors import DataError
from calgrid.logits.reading import predicted, read_any, read_head_arrays
from calgrid.storage.arrays import write_head

NAMES = ["cat", "dog", "eel", "fox"]
LOGITS, LABELS = arrays()


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int64])
def test_any_real_numbers(tmp_path, kind):
    logits = np.array([[1, -2], [3, 0]], kind)
    path = npz(tmp_path / "test.npz", logits=logits, label=np.array([0, 1], np.uint8))
    assert read_any(path, "logits").logits.tolist() == [[1.0, -2.0], [3.0, 0.0]]


@pytest.mark.parametrize("offset", [-1e8, 3e8])
def test_large_offsets_of_rows_do_not_cost_precision(tmp_path, offset):
    logits = LOGITS.astype(float)
    logits[0, 1] = -np.inf
    moved = logits.copy()
    moved[:10] += offset
    data = read_any(npz(tmp_path / "test.npz", logits=moved, label=LABELS), "logits")
    shifted = logits[:10] - logits[:10].max(axis=1, keepdims=True)
    assert data.logits[:10] == pytest.approx(shifted, abs=1e-6)
    assert np.array_equal(data.logits[10:], LOGITS[10:])


@pytest.mark.parametrize(
    ("kind", "offset", "lost"), [("f4", -3e5, True), ("f4", 1e5, False), ("f8", 3e5, False)]
)
def test_float32_logits_that_have_lost_their_digits_are_said(tmp_path, capsys, kind, offset, lost):
    logits = (LOGITS + offset).astype(kind)
    logits[0, 0] = -1e9  # a mask
    read_any(npz(tmp_path / "t.npz", logits=logits, label=LABELS), "logits")
    said = "float32 logits of magnitude 3e+05, which have lost differences below 0.031; subtract"
    assert (said in capsys.readouterr().err) == lost


def test_large_integers_and_a_single_large_column(tmp_path):
    path = npz(tmp_path / "whole.npz", logits=np.array([[10**9, 10**9 + 1]] * 2), label=[0, 1])
    assert read_any(path, "logits").logits.tolist() == [[-1, 0]] * 2
    path = npz(tmp_path / "one.npz", logits=np.array([2000.0, -3.0]), label=[1, 0])
    assert read_any(path, "logits", binary=True).logits.tolist() == [[0, 2000], [0, -3]]


def test_the_kind_is_stated_and_never_guessed(tmp_path, refuses):
    """Probabilities that are stated to be logits are refused, other logits are not."""
    probabilities = softmax(LOGITS)
    path = npz(tmp_path / "p.npz", logits=probabilities.astype(np.float16), label=LABELS)
    said = "p.npz should contain logits, but every row is non-negative and sums to 1"
    with refuses(DataError, said, "--kind probabilities", "kind: probabilities", "subtract 1"):
        read_any(path, "logits")
    assert read_any(path, "probabilities").probabilities == pytest.approx(probabilities, abs=1e-3)
    outlier = np.r_[probabilities[:-1], [[0, 0, 0, 3]]]
    for other in (probabilities - 1, outlier, np.log(probabilities)):
        path = npz(tmp_path / "l.npz", logits=other, label=LABELS)
        found = predicted(read_any(path, "logits"))
        assert found == pytest.approx(softmax(other.astype(np.float32)))


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_probabilities_that_are_not_stated_are_refused(tmp_path, refuses, suffix):
    path = file_of(tmp_path / f"p.{suffix}", probs=np.eye(2), label=np.arange(2))
    said = f"{path} should contain logits, but it contains 'probs'"
    with refuses(DataError, said, "--kind probabilities", "kind: probabilities"):
        read_any(path, "logits")


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_what_is_stated_counts_and_not_the_names_of_the_columns(tmp_path, suffix):
    path = file_of(tmp_path / f"p.{suffix}", logits=np.eye(2, dtype=np.float32), label=np.arange(2))
    assert np.array_equal(read_any(path, "probabilities").probabilities, np.eye(2))
    shares = np.full((20, 4), 0.25)
    path = file_of(tmp_path / f"both.{suffix}", logits=LOGITS, probabilities=shares, label=LABELS)
    assert_read(read_any(path, "logits"))
    assert read_any(path, "logits").probabilities is None
    assert np.array_equal(read_any(path, "probabilities").probabilities, shares)


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_names_of_labels(tmp_path, refuses, suffix):
    for name in ("label", "labels", "y", "target", "targets"):
        path = file_of(tmp_path / f"{name}.{suffix}", logits=LOGITS, **{name: LABELS})
        assert read_any(path, "logits").label.tolist() == LABELS.tolist()
    same = file_of(tmp_path / f"same.{suffix}", logits=LOGITS, label=LABELS, y=LABELS)
    assert read_any(same, "logits").label.tolist() == LABELS.tolist()
    other = file_of(tmp_path / f"other.{suffix}", logits=LOGITS, label=LABELS, labels=3 - LABELS)
    with refuses(DataError, f"{other} contains 'label' and 'labels', which differ"):
        read_any(other, "logits")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_probabilities_are_kept_to_the_last_bit(tmp_path, suffix, dtype):
    """Shares of votes: their logarithm in float32 would break the ties."""
    shares = (np.random.default_rng(0).multinomial(5, [0.2] * 5, 50) / 5).astype(dtype)
    path = file_of(tmp_path / f"votes.{suffix}", probs=shares, label=np.arange(50) % 5)
    found = predicted(read_any(path, "probabilities")).probs
    assert found.dtype == dtype
    assert np.array_equal(found, shares)


def test_probabilities_of_zero_and_one_and_rows_that_the_metrics_would_refuse(tmp_path):
    path = npz(tmp_path / "p.npz", probabilities=np.eye(3), label=np.arange(3))
    data = read_any(path, "probabilities")
    assert np.isfinite(data.logits).all()
    assert softmax(data.logits) == pytest.approx(np.eye(3), abs=1e-30)
    probs = np.array([[0.5, 0.5], [0.5, 0.5005]])
    path = npz(tmp_path / "p.npz", probs=probs, label=np.array([0, 1]))
    found = predicted(read_any(path, "probabilities")).probs
    assert found.sum(axis=1) == pytest.approx([1, 1], abs=1e-12)
    assert found[1, 1] == pytest.approx(0.5005 / 1.0005)


def test_members_that_are_no_arrays_or_there_twice(tmp_path, refuses):
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logits", "1 2 3")
    with refuses(DataError, "must contain an array 'logits'", "it contains nothing"):
        read_any(path, "logits")
    path = npz(tmp_path / "t.npz", logits=LOGITS, label=LABELS)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("logits.npy", archive.read("label.npy"))
    with refuses(DataError, "t.npz has several arrays named 'logits'; keep one"):
        read_any(path, "logits")


@pytest.mark.parametrize("name", ["t.npz", "t.parquet", "t.pt", "t.csv"])
def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch, name):
    (tmp_path / name).write_bytes(b"closed")

    def closed(path, *_args, **_options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(PermissionError, match=name):
        read_any(tmp_path / name, "logits")


@pytest.mark.parametrize(
    ("kind", "content", "parts"),
    [
        (
            "logits",
            {"label": [1, 2, 3]},
            "label 3 in row ... is outside 0..2 ... count from 1, so subtract 1",
        ),
        (
            "logits",
            {"label": [-1] * 3},
            "3 rows have no label (-1) ... cannot be scored ... number the classes from 0",
        ),
        ("logits", {"label": [0, 0.5, 1]}, "labels must be integers, got float64"),
        ("logits", {"label": [0, np.nan, 1]}, "1 labels are NaN; give the classes of these rows"),
        ("logits", {"logits": np.zeros((0, 3)), "label": []}, "N >= 1 ... (0, 3)"),
        ("logits", {"logits": np.diag([0, 1e300, 0])}, "hold NaN or infinity ... row 1"),
        ("logits", {"logits": np.zeros(3, "f4,f4")}, "must be real numbers, got [('f0', '<f4'),"),
        (
            "logits",
            {"logits": [2, 1, 0], "label": np.eye(3)},
            "shape (3,) and labels (3, 3) ... seem to be swapped",
        ),
        (
            "logits",
            {"index": [7, 5, 7]},
            "has index 7 more than once ... make it unique, or remove 'index'",
        ),
        (
            "logits",
            {"logits": np.array([[1.0, None]], object)},
            "'logits' in ... contains Python objects ... not read ... logits.astype(float)",
        ),  # nothing is unpickled
        (
            "probabilities",
            {"logits": 3 * np.eye(3)},
            "should contain probabilities, but row 0 (counted from 0) sums to 3",
        ),
        (
            "probabilities",
            {"probs": np.diag([1, 1.1, 1])},
            "row 1 (counted from 0) sums to 1.1 (smallest value 0); normalise the rows",
        ),
        (
            "probabilities",
            {"probs": np.array([[0.5, 0.5 + 1e-7, 0], [1, 0, 0], [1.5, -0.5, 0]])},
            "row 2 (counted from 0) sums to 1 (smallest value -0.5); correct its negative values",
        ),
        (
            "logits",
            {"label": np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1]])},
            "labels (N, K) must be one-hot, but row 2 (counted from 0) is not",
        ),
    ],
)
def test_arrays_that_are_refused(tmp_path, refuses, kind, content, parts):
    path = npz(tmp_path / "t.npz", **{"logits": np.zeros((3, 3)), "label": [0, 1, 2], **content})
    with refuses(DataError, str(path), parts):
        read_any(path, kind)


@pytest.mark.parametrize("name", ["t.npz", "t.parquet", "t.pt"])
def test_missing_and_damaged_files_and_folders(tmp_path, refuses, name):
    with refuses(DataError, name, "does not exist"):
        read_any(tmp_path / name, "logits")
    (tmp_path / name).write_bytes(b"damaged")
    with refuses(DataError, name, "torch.save" if name == "t.pt" else "write it again"):
        read_any(tmp_path / name, "logits")
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with refuses(DataError, name, "is a folder"):
        read_any(tmp_path / name, "logits")


# forms
# --------------------------------------------------------------------------------------------------


def wide(path, names, logits, label, **others):
    """A table with one column per class, as .csv or Parquet."""
    columns = dict(zip(names, logits.T.tolist(), strict=True))
    table = pa.table({**others, **columns, "target": label})
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return path


def saved(path, found):
    torch.save(found, path)
    return path


def assert_read(data, logits=LOGITS, labels=LABELS):
    assert np.array_equal(data.logits, logits)
    assert data.label.tolist() == labels.tolist()
    assert (data.label.dtype, data.logits.dtype) == (np.int32, np.float32)


def test_tensors_of_a_dictionary_of_a_pair_and_alone(tmp_path):
    tensor, truth = torch.tensor(LOGITS, requires_grad=True), torch.tensor(LABELS)
    assert_read(read_any(saved(tmp_path / "a.pt", {"logits": tensor, "targets": truth}), "logits"))
    assert_read(read_any(saved(tmp_path / "b.pth", (tensor, truth)), "logits"))
    alone = saved(tmp_path / "c.pt", tensor.detach())
    assert_read(read_any(alone, "logits", saved(tmp_path / "y.pt", truth)))
    batches = [(tensor[:1], truth[:1]), (tensor[1:], truth[1:])]
    assert_read(read_any(saved(tmp_path / "e.pt", batches), "logits"))
    half = read_any(saved(tmp_path / "d.pt", (tensor.bfloat16(), truth)), "logits").logits
    assert half == pytest.approx(LOGITS, rel=1e-2)


def test_dictionaries_in_a_dictionary_are_named(tmp_path, refuses):
    path = saved(tmp_path / "t.pt", {"epoch": 3, "val": {"logits": torch.tensor(LOGITS)}})
    with refuses(DataError, "t.pt contains dictionaries (val) in place of tensors; save one of"):
        read_any(path, "logits")


def test_tensors_need_torch(tmp_path, monkeypatch, refuses):
    path = saved(tmp_path / "t.pt", torch.zeros(2, 2))
    monkeypatch.setitem(sys.modules, "torch", None)
    with refuses(DataError, "t.pt: reading .pt needs PyTorch; install it, or save .npz"):
        read_any(path, "logits")


def test_what_could_run_code_is_refused(tmp_path, refuses):
    for name, content in (("numpy", {"logits": np.zeros((2, 2))}), ("object", Path("x"))):
        path = saved(tmp_path / f"{name}.pt", content)
        with refuses(
            DataError, str(path), "contains more than tensors", "torch.save({'logits': logits"
        ):
            read_any(path, "logits")


def test_labels_in_a_file_of_their_own(tmp_path, refuses):
    logits = saved(tmp_path / "z.pt", torch.tensor(LOGITS))
    saved(tmp_path / "y.pt", torch.tensor(LABELS))
    pq.write_table(pa.table({"y": LABELS}), tmp_path / "y.parquet")
    (tmp_path / "y.csv").write_text("\n".join(["label", *map(str, LABELS)]))
    np.save(tmp_path / "y.npy", LABELS)
    npz(tmp_path / "t.npz", truth=LABELS)
    for name in ("y.pt", "y.npy", "y.parquet", "y.csv"):
        assert_read(read_any(logits, "logits", tmp_path / name))
    assert_read(read_any(logits, "logits", tmp_path / "t.npz", label_key="truth"))
    said = "z.pt contains one array without labels; give them with --labels"
    with refuses(DataError, said, "test_labels"):
        read_any(logits, "logits")
    said = "t.npz must contain labels named 'label', it contains truth"
    with refuses(DataError, said, "--label-key"):
        read_any(logits, "logits", tmp_path / "t.npz")
    saved(tmp_path / "y.pt", torch.tensor(LABELS[:3]))
    with refuses(DataError, "3 values of 'label' for 20 rows"):
        read_any(logits, "logits", tmp_path / "y.pt")


def test_labels_in_a_file_of_their_own_are_paired_by_index_if_both_have_it(tmp_path, refuses):
    order = np.random.default_rng(0).permutation(20)
    path = npz(tmp_path / "z.npz", logits=LOGITS, index=np.arange(100, 120))
    labels = pd.DataFrame({"index": order + 100, "label": LABELS[order]})
    for name, write in (("y.csv", labels.to_csv), ("y.parquet", labels.to_parquet)):
        write(tmp_path / name, index=False)
        assert_read(read_any(path, "logits", tmp_path / name))
    plain = npz(tmp_path / "plain.npz", logits=LOGITS)
    assert_read(read_any(plain, "logits", tmp_path / "y.csv"), LOGITS, LABELS[order])
    for index, parts in (
        (np.r_[100, np.arange(100, 119)], ["y.npz has index 100 more than once", "make it unique"]),
        (np.arange(101, 121), ["y.npz has labels for other rows than", "100 is in", "z.npz alone"]),
        (np.arange(99, 119), ["index 99 is in", "y.npz alone; give the labels of these rows"]),
        (np.arange(100, 121), ["'index' has the shape (21,) for 20 labels"]),
    ):
        other = npz(tmp_path / "y.npz", label=LABELS, index=index)
        with refuses(DataError, *parts):
            read_any(path, "logits", other)


def test_arrays_of_other_names_are_named(tmp_path, refuses):
    path = tmp_path / "t.npz"
    np.savez(path, LOGITS, LABELS)
    said = "it contains arr_0, arr_1; give their names with --values-key and --label-key"
    with refuses(DataError, said):
        read_any(path, "logits")
    assert_read(read_any(path, "logits", values_key="arr_0", label_key="arr_1"))
    with refuses(DataError, "it contains arr_0, arr_1"):
        read_any(path, "logits", values_key="arr_2", label_key="arr_1")


def test_a_common_start_of_columns_is_named_and_a_misspelt_key_is_mended(tmp_path, refuses):
    """A column of file names beside them makes the choice ambiguous."""
    names = [f"score_{name}" for name in NAMES]
    files = {"file": [f"{row}.png" for row in range(20)]}
    path = wide(tmp_path / "t.csv", names, LOGITS, LABELS, **files)
    with refuses(DataError, "--values-key score_ takes the columns that begin with it."):
        read_any(path, "logits")
    with refuses(DataError, "; did you mean --values-key score_?"):
        read_any(path, "logits", values_key="scores_")
    assert_read(read_any(path, "logits", values_key="score_"), LOGITS, LABELS)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    "names", [["logit_3", "logit_1", "logit_0", "logit_2"], ["3", "1", "0", "2"]]
)
def test_numbered_columns_are_read_in_the_order_of_their_numbers(tmp_path, suffix, names):
    others = {"id": np.arange(100, 120), "file": [f"{row}.png" for row in range(20)]}
    data = read_any(wide(tmp_path / f"t.{suffix}", names, LOGITS, LABELS, **others), "logits")
    assert_read(data, LOGITS[:, [2, 1, 3, 0]], LABELS)


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_columns_that_begin_with_their_kind_name_the_classes(tmp_path, refuses, kind):
    """The label 'fox' of a column at the third place is class 2; 'seconds' is no class."""
    start = {"logits": "logit_", "probabilities": "probability_"}[kind]
    order = [0, 1, 3, 2]
    values = LOGITS if kind == "logits" else softmax(LOGITS.astype(float))
    names = [f"{start}{NAMES[number]}" for number in order]
    words = np.array(NAMES)[LABELS]
    path = wide(tmp_path / "t.csv", names, values[:, order], words, seconds=np.ones(20))
    data = read_any(path, None)
    assert data.metadata["classes"] == [NAMES[number] for number in order]
    assert data.label.tolist() == np.argsort(order)[LABELS].tolist()
    assert (data.probabilities is None) == (kind == "logits")
    assert predicted(data).probs == pytest.approx(softmax(LOGITS[:, order]), abs=1e-6)
    other = {"logits": "probabilities", "probabilities": "logits"}[kind]
    with refuses(DataError, f"should contain {other}, but it contains '{names[0]}'", "--kind"):
        read_any(path, other)


@pytest.mark.parametrize("start", ["", "score_"])
def test_the_given_classes_choose_and_order_the_columns(tmp_path, start):
    order = [0, 1, 3, 2]
    names = [f"{start}{NAMES[number]}" for number in order]
    words = np.array(NAMES)[LABELS]
    path = wide(tmp_path / "t.csv", names, LOGITS[:, order], words)
    assert_read(read_any(path, "logits", classes=NAMES))
    path = wide(tmp_path / "t.parquet", names, LOGITS[:, order], LABELS, row=np.arange(20))
    assert_read(read_any(path, "logits", classes=NAMES))


@pytest.mark.parametrize(
    ("ends", "values"),
    [
        (["True", "False"], [True, False]),  # a CSV file has no text but truth values then
        (["true", "false"], [1, 0]),
        (["1", "2", "3"], [1, 2, 3]),
        (["-1", "1"], [-1.0, 1.0]),
        (["8", "3", "5"], [8, 3, 5]),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_columns_with_the_values_of_labels(tmp_path, ends, values, named):
    """The last class has no row, so the largest label does not tell how they count."""
    logits, labels = LOGITS[:, : len(ends)], LABELS % max(len(ends) - 1, 1)
    path = wide(tmp_path / "t.csv", [f"p_{end}" for end in ends], logits, np.array(values)[labels])
    given = {"classes": ends} if named else {"values_key": "p_"}
    data = read_any(path, "logits", **given)
    assert_read(data, logits, labels)
    assert data.metadata["classes"] == ends


def test_labels_that_may_or_may_not_be_the_values_in_the_names_of_columns(tmp_path, refuses):
    names = ["p_1", "p_2", "p_3", "p_4"]
    path = wide(tmp_path / "t.csv", names, LOGITS, LABELS)
    with refuses(
        DataError, "t.csv: label 0 in row ... is not one of the classes 1, 2, 3, 4", "--classes"
    ):
        read_any(path, "logits", values_key="p_")
    assert_read(read_any(path, "logits", classes=names))
    arrays_only = npz(tmp_path / "t.npz", logits=LOGITS, label=LABELS)
    assert_read(read_any(arrays_only, "logits", classes=["1", "2", "3", "4"]))
    path = wide(tmp_path / "none.csv", names, LOGITS, np.full(20, -1))
    data = read_any(path, "logits", values_key="p_", labelled=False)
    assert_read(data, LOGITS, np.full(20, -1))


def test_a_column_without_a_stated_beginning_never_becomes_a_class(tmp_path, refuses):
    """``weight`` may be a class or not."""
    path = wide(tmp_path / "t.csv", [*NAMES, "weight"], np.c_[LOGITS, LOGITS[:, 0]], LABELS)
    said = "if each column of floats is a class, --classes cat,dog,eel,fox,weight"
    with refuses(DataError, said):
        read_any(path, "logits")
    assert_read(read_any(path, "logits", classes=NAMES))


def test_columns_of_further_classes_are_refused_where_the_classes_are_known(tmp_path, refuses):
    names = [f"s_{name}" for name in NAMES]
    path = wide(tmp_path / "t.csv", names, LOGITS, LABELS % 3, s_rows=np.arange(20))
    said = "t.csv has the columns s_fox beside those of the classes cat, dog, eel; use the same"
    with refuses(DataError, said, "--classes"):
        read_any(path, "logits", classes=NAMES[:3], exact=True)
    assert_read(read_any(path, "logits", classes=NAMES[:3]), LOGITS[:, :3], LABELS % 3)
    assert_read(read_any(path, "logits", classes=NAMES, exact=True), labels=LABELS % 3)


def test_further_columns_are_said_where_the_names_of_classes_share_no_beginning(tmp_path, capsys):
    path = wide(tmp_path / "t.csv", NAMES, LOGITS, LABELS % 3, rows=np.arange(20))
    assert_read(read_any(path, "logits", classes=NAMES[:3], exact=True), LOGITS[:, :3], LABELS % 3)
    said = "t.csv has the columns fox beside those of the classes cat, dog, eel; they are left out"
    assert said in capsys.readouterr().err
    read_any(path, "logits", classes=NAMES, exact=True)
    assert capsys.readouterr().err == ""


def test_a_class_without_a_column_is_named(tmp_path, refuses):
    path = wide(tmp_path / "three.csv", [f"p_{name}" for name in NAMES[:3]], LOGITS[:, :3], LABELS)
    with refuses(DataError, "three.csv has no column for the classes fox, it contains p_cat"):
        read_any(path, "logits", classes=NAMES)


def test_columns_that_more_than_one_reading_would_fit_are_refused(tmp_path, refuses):
    said = ["with a class each", "--values-key", "--classes"]
    two = np.c_[LOGITS, softmax(LOGITS)]
    names = [f"{kind}_{k}" for kind in "lp" for k in range(4)]
    path = wide(tmp_path / "two.csv", names, two, LABELS)
    with refuses(DataError, "two.csv", *said):
        read_any(path, "logits")
    assert_read(read_any(path, "logits", values_key="l_"))
    found = read_any(path, "probabilities", values_key="p_").probabilities
    assert found == pytest.approx(softmax(LOGITS))
    names = ["c0", "c1", "c3", "c4"]
    gap = wide(tmp_path / "gap.parquet", names, LOGITS, LABELS, row=np.arange(20))
    with refuses(DataError, "gap.parquet", *said):
        read_any(gap, "logits")


def test_damaged_tables(tmp_path, refuses):
    for name, text, parts in (
        ("names.csv", "0.5,1.5,1\n0.1,0.2,0\n", ["has no header"]),
        (
            "ragged.csv",
            "a0,a1,label\n1,2\n",
            ["ragged.csv cannot be read", "row 0 (counted from 0): Expected 3 columns, got 2"],
        ),
        ("empty.csv", "", ["empty.csv is empty"]),
        ("header.csv", "a0,a1,label\n", ["header.csv has a header and no rows"]),
        (
            "decimals.csv",
            "a0;a1;label\n1,5;2,5;0\n",
            ["one column, 'a0;a1;label'", "by commas, and write decimal points"],
        ),
        ("comment.csv", "# a0,a1,label\n1,2,0\n", ["begins with '#'", "comments=''"]),
        ("hole.csv", "a0,a1,label\n1,,0\n", ["Column 'a1' of", "has no value in 1 of 1 rows"]),
        (
            "words.csv",
            'a0,a1,label\n1,2,0\n1,"1,5",0\n',
            ["Column 'a1' of", "one number per row, it contains '1,5' in row 1 (counted from 0)."],
        ),
        ("twice.csv", "a0,a0,label\n1,2,0\n", ["has 2 columns named 'a0'; keep one"]),
    ):
        (tmp_path / name).write_text(text)
        with refuses(DataError, name, *parts):
            read_any(tmp_path / name, "logits")


@pytest.mark.parametrize("label", [LABELS.astype(np.float32), LABELS[:, None], np.eye(4)[LABELS]])
def test_labels_as_whole_floats_as_a_column_and_as_rows_with_a_single_one(tmp_path, label):
    assert_read(read_any(npz(tmp_path / "test.npz", logits=LOGITS, label=label), "logits"))


def test_row_numbers_of_pandas_in_a_csv_file_are_ignored(tmp_path):
    table = pd.DataFrame(LOGITS).add_prefix("logit_").assign(label=LABELS)
    table.insert(2, "", np.arange(20))
    table.to_csv(tmp_path / "test.csv")
    assert_read(read_any(tmp_path / "test.csv", "logits"))


def text_file(path, words, logits=LOGITS):
    """A file of one of the formats whose labels are text."""
    if path.suffix == ".pt":
        return saved(path, {"logits": torch.tensor(logits), "label": list(words)})
    if path.suffix == ".npz":
        return npz(path, logits=logits, label=np.array(words))
    names = [f"logit_{number}" for number in range(logits.shape[1])]
    return wide(path, names, logits, pa.array(words))


@pytest.mark.parametrize("name", ["t.npz", "t.pt", "t.csv", "t.parquet"])
class TestLabelsAsText:
    def test_classes_are_named(self, tmp_path, refuses, name):
        order = ["fox", "cat", "eel", "dog"]
        path = text_file(tmp_path / name, [order[label] for label in LABELS])
        assert_read(read_any(path, "logits", classes=order))
        with refuses(
            DataError, "label 'fox' in row ... is not one of the classes cat, dog, eel, yak"
        ):
            read_any(path, "logits", classes=[*NAMES[:3], "yak"])

    def test_the_order_of_columns_without_names_is_asked_for(self, tmp_path, refuses, name):
        """Low, medium and high are not in the order of the alphabet."""
        for names in (NAMES, ["cat", "dog", "eel", "eel"]):
            path = text_file(tmp_path / name, [names[label] for label in LABELS])
            with refuses(DataError, f"{path}: labels are text", "--classes ", "sorted by name"):
                read_any(path, "logits")


@pytest.mark.parametrize("write", ["pandas", "arrow"])
def test_ordered_categories_state_the_order_of_the_columns(tmp_path, refuses, write):
    """A class without a row keeps its place. Categories without an order are in that of pandas."""
    path, order = tmp_path / "t.parquet", ["low", "medium", "high", "unused"]
    labels = LABELS % 3
    words = pd.Categorical.from_codes(labels, order, ordered=True)
    table = pd.DataFrame(LOGITS).add_prefix("logit_").assign(label=words)
    if write == "pandas":
        table.to_parquet(path)
    else:
        dictionary = pa.DictionaryArray.from_arrays(labels, order, ordered=True)
        columns = {f"logit_{number}": LOGITS[:, number] for number in range(4)}
        pq.write_table(pa.table({**columns, "label": dictionary}), path, row_group_size=7)
    data = read_any(path, "logits")
    assert_read(data, LOGITS, labels)
    assert data.metadata["classes"] == order
    # the order of the command has precedence, that of another file must agree
    turned = order[::-1]
    assert read_any(path, "logits", classes=turned).label.tolist() == (3 - labels).tolist()
    with refuses(DataError, "has the classes in another order (class 0 is 'low'"):
        read_any(path, "logits", classes=turned, exact=True)
    table.assign(label=words.as_unordered()).to_parquet(path)
    with refuses(DataError, "labels are text, and nothing tells the order of the columns"):
        read_any(path, "logits")


def test_a_category_less_than_columns_is_refused(tmp_path, refuses):
    words = pd.Categorical.from_codes(LABELS % 3, NAMES[:3], ordered=True)
    for start in ("logit_", "p_"):
        table = pd.DataFrame(LOGITS, columns=[start + name for name in NAMES]).assign(label=words)
        table.to_parquet(tmp_path / "t.parquet")
        with refuses(DataError, f"has the columns {start}fox beside those of the classes cat, dog"):
            read_any(tmp_path / "t.parquet", "logits")
    pd.DataFrame(LOGITS).add_prefix("logit_").assign(label=words).to_parquet(tmp_path / "t.parquet")
    with refuses(DataError, "has 4 columns for the 3 classes cat, dog, eel"):
        read_any(tmp_path / "t.parquet", "logits")


def test_digits_as_text_are_class_numbers(tmp_path):
    logits = np.tile(LOGITS, 3)
    words = np.array([str(label) for label in LABELS + 8])
    data = read_any(npz(tmp_path / "t.npz", logits=logits, label=words), "logits")
    assert data.label.tolist() == (LABELS + 8).tolist()


def test_text_as_bytes(tmp_path, refuses):
    words = np.array(["chat", "chien", "maïs", "noix"])[LABELS]
    path = npz(tmp_path / "t.npz", logits=LOGITS, label=np.char.encode(words, "utf-8"))
    names = ["chat", "chien", "maïs", "noix"]
    assert_read(read_any(path, "logits", classes=names))
    path = npz(tmp_path / "t.npz", logits=LOGITS, label=np.char.encode(words, "latin-1"))
    with refuses(DataError, "t.npz: labels are not text in UTF-8"):
        read_any(path, "logits", classes=names)


def test_labels_of_yes_or_no(tmp_path):
    (tmp_path / "t.csv").write_text("logit,label\n-1,false\n2,true\n")
    assert read_any(tmp_path / "t.csv", "logits", binary=True).label.tolist() == [0, 1]


@pytest.mark.parametrize("shape", [(20,), (20, 1)])
@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_one_column_is_two_classes_where_that_is_said(tmp_path, refuses, kind, shape):
    labels, scores = np.arange(20) % 2, np.linspace(0.05, 0.95, 20).reshape(shape)
    path = npz(tmp_path / "t.npz", label=labels, **{kind: scores})
    said = f"{kind} must have shape (N, K) ... got {shape}"
    with refuses(DataError, said, "give --binary (in a study, binary: true)"):
        read_any(path, kind)
    p = scores.ravel() if kind == "probabilities" else 1 / (1 + np.exp(-scores.ravel()))
    assert predicted(read_any(path, kind, binary=True)) == pytest.approx(np.c_[1 - p, p], abs=1e-7)
    full = npz(tmp_path / "full.npz", logits=np.zeros((3, 2)), label=[0, 1, 1])
    with refuses(DataError, "--binary needs one column, for class 1, but logits have shape (3, 2)"):
        read_any(full, "logits", binary=True)


def test_one_column_that_is_not_that_of_class_1_is_refused(tmp_path, refuses, capsys):
    def read(column, words, **options):
        options.setdefault("values_key", column)
        table = pd.DataFrame({column: [0.2, 0.9, 0.4], "label": words})
        table.to_csv(tmp_path / "t.csv", index=False)
        return read_any(tmp_path / "t.csv", "probabilities", binary=True, **options)

    words = ["cancer", "healthy", "cancer"]
    classes = ["cancer", "healthy"]
    with refuses(DataError, "'p_cancer' has the name of class 0", "--classes healthy,cancer"):
        read("p_cancer", words, classes=classes)
    turned = read("p_cancer", words, classes=["healthy", "cancer"])
    assert turned.label.tolist() == [1, 0, 1]
    with refuses(DataError, "'p_false' has the name of class 0", "--classes true,false"):
        read("p_false", [False, True, True])
    turned = read("p_false", [False, True, True], classes=["true", "false"])
    assert turned.label.tolist() == [1, 0, 0]
    assert read("p_healthy", words, classes=classes).label.tolist() == [0, 1, 0]
    words, classes = ["cancer", "no_cancer", "cancer"], ["cancer", "no_cancer"]
    assert read("p_no_cancer", words, classes=classes).label.tolist() == [0, 1, 0]
    assert read("0", [0, 1, 0], classes=["0", "1"]).label.tolist() == [0, 1, 0]
    assert "is taken for class 1" not in capsys.readouterr().err
    assert read("p_0", [0, 1, 0]).label.tolist() == [0, 1, 0]
    said = "'p_0' is taken for class 1; if it is that of class 0, exchange the labels."
    assert f"the one column {said}" in capsys.readouterr().err
    with refuses(DataError, "it contains label, p_0; give", "; --binary needs --values-key."):
        read("p_0", [0, 1, 0], values_key=None)


@pytest.mark.parametrize("whole", [1, 100])
def test_rounded_probabilities_and_percentages_are_told_from_logits(tmp_path, refuses, whole):
    rows = whole * np.tile([[0.33, 0.33, 0.33], [0.5, 0.25, 0.24]], (5, 1))
    path = npz(tmp_path / "rounded.npz", logits=rows, label=5 * [0, 1])
    with refuses(DataError, "or to about 1 or 100", "divide each row by its sum"):
        read_any(path, "logits")
    with refuses(DataError, "should contain probabilities, but row", "divide each row by its sum"):
        read_any(path, "probabilities", values_key="logits")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("t.txt", "t.txt must be .npz, .npy, .pt, .parquet or .csv ... numpy.savez('logits.npz'"),
        ("t", "t must be .npz, .npy, .pt, .parquet or .csv"),
        ("t.safetensors", "safetensors.numpy.load_file"),
        ("t.arrow", "datasets.Dataset.from_file"),
        ("t.feather", "pandas.read_feather"),
        ("t.csv.gz", "unpack it"),
        ("t.pkl", "can execute code ... numpy.savez('logits.npz', logits=logits, label=label)"),
    ],
)
def test_other_formats_are_refused_with_a_way_to_convert_them(tmp_path, refuses, name, parts):
    (tmp_path / name).touch()
    with refuses(DataError, parts):
        read_any(tmp_path / name, "logits")


def test_a_stored_data_set_is_refused_with_a_way_to_convert_it(tmp_path, refuses):
    parts = ["is a folder", f"datasets.load_from_disk('{tmp_path}').to_parquet('logits.parquet')"]
    with refuses(DataError, *parts):
        read_any(tmp_path, "logits")


# hostile and strange files
# --------------------------------------------------------------------------------------------------


def test_the_last_layer_may_be_a_file_of_calgrid(tmp_path, refuses):
    weight, bias = np.ones((4, 3), np.float32), np.zeros(4, np.float32)
    write_head(tmp_path / "head.safetensors", weight, bias, "f1")
    assert np.array_equal(read_head_arrays(tmp_path / "head.safetensors")[0], weight)
    with refuses(DataError, "head.csv must be .npz, .pt or .safetensors"):
        read_head_arrays(tmp_path / "head.csv")


STRANGE = {
    "meta": lambda: torch.zeros(20, 4, device="meta"),
    "sparse": lambda: torch.eye(20, 4).to_sparse(),
    "quantised": lambda: torch.quantize_per_tensor(torch.eye(20, 4), 0.1, 0, torch.quint8),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(2)]),
    "complex": lambda: torch.eye(20, 4, dtype=torch.cfloat).conj(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STRANGE)
def test_tensors_that_are_no_matrix_of_real_numbers_are_refused(tmp_path, refuses, name):
    content = {"logits": STRANGE[name](), "label": torch.tensor(LABELS)}
    parts = ["must be real numbers"] if name == "complex" else ["'logits'", "save a dense one"]
    with refuses(DataError, *parts):
        read_any(saved(tmp_path / "t.pt", content), "logits")


@pytest.mark.filterwarnings("ignore")
def test_tensors_that_numpy_lacks_are_read(tmp_path):
    tensor = torch.tensor(LOGITS)
    negated = torch.complex(tensor, -tensor).conj().imag
    assert negated.is_neg()
    assert_read(read_any(saved(tmp_path / "t.pt", (negated, torch.tensor(LABELS))), "logits"))
    small = tensor.to(torch.float8_e4m3fn)
    data = read_any(saved(tmp_path / "t.pt", (small, torch.tensor(LABELS))), "logits")
    assert np.array_equal(data.logits, small.float().numpy())


@pytest.mark.parametrize("content", [[[1.0], [1.0, 2.0]], [torch.zeros(2), torch.zeros(3)]])
def test_lists_that_are_no_array_are_refused(tmp_path, refuses, content):
    with refuses(DataError, "'logits' in", "save it as one tensor"):
        read_any(saved(tmp_path / "t.pt", {"logits": content, "label": [0, 1]}), "logits")


def bomb(path):
    """A file whose content is more than a hundred times larger, and larger than 10 MB."""
    if path.suffix == ".npz":
        np.savez_compressed(path, logits=np.zeros(2**21), a=np.zeros(2**21), label=np.zeros(3))
    elif path.suffix == ".pt":
        saved(path, {"logits": torch.zeros(1).expand(10**9, 1000), "label": torch.zeros(3)})
    else:
        rows = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2**23, np.float32)), 2**12)
        pq.write_table(pa.table({"logits": rows, "label": np.zeros(len(rows), int)}), path)
    return path


@pytest.mark.parametrize("name", ["t.npz", "t.pt", "t.parquet"])
def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path, monkeypatch, refuses, name):
    monkeypatch.setattr("calgrid.logits.arrays.UNPACKED_BYTES", 10**7)
    path = bomb(tmp_path / name)
    with refuses(DataError, f"{path} is not unpacked", "MB would become", "GB"):
        read_any(path, "logits")


def test_a_header_that_promises_more_than_the_file_has(tmp_path, refuses):
    for shape in ((10**9, 1000), (10**6, 1000)):
        header = io.BytesIO()
        content = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, content)
        with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
            archive.writestr("logits.npy", header.getvalue() + bytes(8))
        with refuses(DataError, "t.npz cannot be read"):
            read_any(tmp_path / "t.npz", "logits")


def test_pipes_devices_and_files_of_the_kernel_are_refused(tmp_path, refuses):
    path = tmp_path / "t.npz"
    os.mkfifo(path)
    with refuses(DataError, "t.npz", "is a pipe or device"):
        read_any(path, "logits")
    for target, part in (("/dev/zero", "is a pipe or device"), ("/proc/self/mem", "is empty")):
        path.unlink()
        path.symlink_to(target)
        with refuses(DataError, "t.npz", part):
            read_any(path, "logits")


def test_text_that_is_not_utf8_is_refused(tmp_path, refuses):
    path, text = tmp_path / "t.csv", "logit_a,logit_é,label\n0.5,2.5,é\n2.5,1.5,a\n"
    path.write_text(text, "utf-16")
    with refuses(DataError, "t.csv is encoded in UTF-16; save it in UTF-8"):
        read_any(path, "logits")
    path.write_text(text, "utf-16-le")
    with refuses(DataError, "t.csv"):
        read_any(path, "logits")
    path.write_text(text, "latin-1")
    with refuses(DataError, "t.csv cannot be read"):
        read_any(path, "logits")
    path.write_text(text.replace("logit_é", "logit_e"), "latin-1")
    with refuses(DataError, "Column 'label' of", "is not text in UTF-8"):
        read_any(path, "logits")
    path.write_text(text.replace("é", "e"), "utf-8-sig")
    assert read_any(path, "logits").label.tolist() == [1, 0]


def test_control_characters_of_labels_are_shown_and_not_obeyed(tmp_path, refuses):
    wicked = "\x1b[2Jdog"
    path = npz(tmp_path / "t.npz", logits=LOGITS[:3, :2], label=np.array([wicked, "cat", "cat"]))
    with refuses(DataError, r"label '\x1b[2Jdog' in row ... is not one of the classes cat, eel"):
        read_any(path, "logits", classes=["cat", "eel"])
    with refuses(DataError, r"--classes \x1b[2Jdog,cat (in"):
        read_any(path, "logits")


@pytest.mark.parametrize("name", ["t.npz", "t.pt", "t.parquet", "t.csv"])
def test_random_damage_is_one_sentence_or_harmless(tmp_path, name):
    path = text_file(tmp_path / name, [NAMES[label] for label in LABELS])
    content, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), rng.integers(1, 20)):
            damaged[place] = rng.integers(0, 256)
        path.write_bytes(damaged[: len(content) - rng.choice([0, 0, 40])])
        try:
            read_any(path, "logits", classes=NAMES)
        except DataError as error:
            assert "\n" not in str(error)
