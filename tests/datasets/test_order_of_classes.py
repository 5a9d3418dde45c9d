"""Order of the classes of a user's pictures: by a list, by folders, by names in Parquet files."""

import numpy as np
import pytest
from tests.datasets.pictures import draw, encoded, prepared, write_folder, write_parquet
from tests.datasets.test_configured_images import shifted

from calgrid.class_names import names_of_labels
from calgrid.errors import ConfigError, DataError
from calgrid.study.datasets import DatasetCatalog

FOLDERS = {"base": "image_folder", "val_size": 6}
PARQUET = {"base": "image_parquet", "val_size": 6}
NUMBERS = ("1", "2", "10")


def write(root, role, names, seed):
    pixels, labels = draw(30, seed=seed)
    write_parquet(root / f"{role}.parquet", map(encoded, pixels), labels, names=names)
    return pixels, labels


def labels_of(split, pixels, labels):
    """The label that each written picture has now, in the order of writing."""
    known = {
        image.tobytes(): label for image, label in zip(split.images, split.labels, strict=True)
    }
    return [known[image.transpose(2, 0, 1).tobytes()] for image in pixels], labels.tolist()


@pytest.mark.parametrize("classes", [[1, 2, 10], ["1", "2", "10"], ["10", "2", "1"], None])
def test_a_list_gives_folders_their_order_and_text_without_one(tmp_path, classes):
    for role, seed in (("train", 1), ("test", 2)):
        pixels, labels = draw(30, seed=seed)
        write_folder(tmp_path / role, pixels, labels, NUMBERS)
    given = {} if classes is None else {"classes": classes}
    made = prepared(tmp_path, tmp_path / "out", **FOLDERS, **given)
    expected = list(map(str, classes or ["1", "10", "2"]))
    assert made.manifest["classes"] == expected
    found, written = labels_of(made.splits["test"], pixels, labels)
    assert [expected[label] for label in found] == [NUMBERS[label] for label in written]
    counts = DatasetCatalog({"mine": {**FOLDERS, **given}}, str(tmp_path)).class_counts("mine")
    assert list(counts["train"]) == expected


def test_a_list_is_known_before_the_files_are_read():
    book = DatasetCatalog({"mine": {**FOLDERS, "classes": ["b", "a"]}})
    assert book.describe("mine").info["n_classes"] == 2


@pytest.mark.parametrize(
    ("classes", "part"),
    [
        ([1, 2], "the class '10' has no folder in the training split, or is not in 'classes'"),
        ([1, 2, 10, 11], "train has no folder of the class '11'; add it, or correct 'classes'"),
    ],
)
def test_a_list_of_other_classes_than_the_folders_is_refused(tmp_path, refuses, classes, part):
    for role in ("train", "test"):
        write_folder(tmp_path / role, *draw(30), NUMBERS)
    book = DatasetCatalog({"mine": {**FOLDERS, "classes": classes}}, str(tmp_path))
    with refuses(ConfigError, "datasets.mine: ", part):
        book.class_counts("mine")


@pytest.mark.parametrize("classes", [[True, False], ["a", "a"], ["a"], [1.5, 2], [["a"], "b"]])
def test_a_list_without_different_names_is_refused(refuses, classes):
    with refuses(ConfigError, "datasets.mine.classes must be two or more different names"):
        DatasetCatalog({"mine": {**FOLDERS, "classes": classes}})


@pytest.mark.parametrize("classes", [None, ["cat", "ant", "bee"]])
def test_labels_of_parquet_files_go_by_their_names(tmp_path, classes):
    write(tmp_path, "train", ["ant", "bee", "cat"], 1)
    pixels, labels = write(tmp_path, "test", ["bee", "cat", "ant"], 2)
    made = prepared(tmp_path, tmp_path / "out", **PARQUET, classes=classes)
    expected = classes or ["ant", "bee", "cat"]
    assert made.manifest["classes"] == expected
    found, written = labels_of(made.splits["test"], pixels, labels)
    assert [expected[label] for label in found] == [["bee", "cat", "ant"][each] for each in written]


def test_a_parquet_file_without_names_beside_one_with_them_is_said(tmp_path, capsys):
    write(tmp_path, "train", ["ant", "bee", "cat"], 1)
    write(tmp_path, "test", None, 2)
    book = DatasetCatalog({"mine": PARQUET}, str(tmp_path))
    assert list(book.class_counts("mine")["test"]) == ["ant", "bee", "cat"]
    assert "test.parquet does not name its classes: its labels are taken" in capsys.readouterr().err


def test_a_list_names_the_labels_of_parquet_files_without_names(tmp_path, capsys):
    for role in ("train", "test"):
        write(tmp_path, role, None, 1)
    book = DatasetCatalog({"mine": {**PARQUET, "classes": list("abcd")}}, str(tmp_path))
    assert book.class_counts("mine")["test"] == {"a": 10, "b": 10, "c": 10, "d": 0}
    assert book.class_names("mine") == tuple("abcd")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("train", "test", "options", "part"),
    [
        ("abc", "abd", {}, "test.parquet has the class 'd', which is none of the data set's"),
        ("abc", "abc", {"classes": ["a", "b"]}, "has the class 'c'"),
        (
            "",
            "",
            {"classes": ["a", "b"]},
            "label 2, ... 0..1; ... or name all classes in 'classes'",
        ),
        ("ab", "ab", {}, "row 2 (counted from 0) "),
        ("abcd", "abcd", {}, "has no image of the class 'd'; add some, or give n_classes: 4"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, refuses, train, test, options, part):
    for role, names in (("train", train), ("test", test)):
        write(tmp_path, role, list(names) or None, 1)
    book = DatasetCatalog({"mine": {**PARQUET, **options}}, str(tmp_path))
    with refuses(ConfigError, "datasets.mine: ", part):
        book.class_counts("mine")


@pytest.mark.parametrize(
    "about", [b"no JSON", b"[]", b'{"info": {"features": {"label": {"names": [1.5, 2]}}}}']
)
def test_other_metadata_gives_no_names(about):
    assert names_of_labels({b"huggingface": about}, "label") is None


def test_pictures_under_a_shift_have_the_classes_of_their_data_set(tmp_path, refuses, capsys):
    for role, seed in (("train", 1), ("test", 2)):
        write(tmp_path, role, ["ant", "bee", "cat"], seed)
    prepared(tmp_path, tmp_path / "mine", **PARQUET)
    _, labels = write(tmp_path, "night", ["bee", "cat", "ant"], 3)
    made = shifted(tmp_path, tmp_path / "hard", tmp_path / "mine", test="night.parquet")
    assert np.array_equal(made.splits["shift"].labels, (labels + 1) % 3)
    write(tmp_path, "night", None, 3)
    made = shifted(tmp_path, tmp_path / "other", tmp_path / "mine", test="night.parquet")
    assert np.array_equal(made.splits["shift"].labels, labels)
    assert "night.parquet does not name its classes" in capsys.readouterr().err
    write(tmp_path, "night", ["bee", "cat", "owl"], 3)
    with refuses(DataError, "night.parquet has the class 'owl', which is none of the data set's"):
        shifted(tmp_path, tmp_path / "third", tmp_path / "mine", test="night.parquet")
