"""Images that belong together, as those of a patient, are in one split."""

import numpy as np
import pytest
from tests.datasets.archives import write_files
from tests.datasets.pictures import draw, encoded, prepared, sizes, write_parquet

from calgrid.datasets.base import draw_groups, stratified_order
from calgrid.errors import ConfigError
from calgrid.study.datasets import DatasetCatalog

PATIENTS = np.repeat([f"p{number:02d}" for number in range(30)], [1, 2, 3] * 10)
#: three classes, each patient with one of them
CLASSES = np.repeat(np.arange(30) % 5 % 3, [1, 2, 3] * 10)
RULE = {"val_size": 12, "split": "stratified", "split_seed": 1}


def write(root, role, numbers=range(60), seed=1):
    """The same pictures as Parquet file and as folders, with the patient in their names."""
    rows = np.array(numbers)
    pixels, _ = draw(len(rows), seed=seed)
    contents, labels, patients = list(map(encoded, pixels)), CLASSES[rows], PATIENTS[rows]
    write_parquet(root / f"{role}.parquet", contents, labels, patient=patients)
    files = {}
    for row, label, patient, content in zip(rows, labels, patients, contents, strict=True):
        files[f"{'abc'[label]}/{patient}_{row}.png"] = content
    write_files(root / role, files)
    return pixels, patients


@pytest.mark.parametrize(
    "options",
    [
        {"base": "image_parquet", "train": "train.parquet", "groups": "patient"},
        {"base": "image_folder", "train": "train", "groups": r"/(p\d+)_"},
    ],
)
def test_no_patient_is_in_two_drawn_splits(tmp_path, options):
    pixels, patients = write(tmp_path, "train")
    drawn = {**options, "test_size": 15, "val_size": 10}
    made = prepared(tmp_path, tmp_path / "out", **drawn)
    patient_of = {
        image.transpose(2, 0, 1).tobytes(): patient
        for image, patient in zip(pixels, patients, strict=True)
    }
    found = {}
    for name, split in made.splits.items():
        found[name] = {patient_of[image.tobytes()] for image in split.images}
    assert not found["train"] & found["test"]
    assert not found["train"] & found["val"]
    assert not found["val"] & found["test"]
    assert sizes(made) == {"train": 35, "val": 10, "test": 15}
    counts = DatasetCatalog({"mine": drawn}, str(tmp_path)).class_counts("mine")
    for name, split in made.splits.items():
        assert list(counts[name].values()) == np.bincount(split.labels, minlength=3).tolist()


def test_groups_of_one_image_are_drawn_as_images():
    drawn = draw_groups(CLASSES, np.arange(60), RULE, "val")
    assert drawn["val"].tolist() == np.sort(stratified_order(CLASSES, 1)[:12]).tolist()
    shuffled = draw_groups(CLASSES, np.arange(60), {**RULE, "split": "shuffled"}, "val")
    order = np.random.RandomState(1).permutation(60)
    assert shuffled["val"].tolist() == np.sort(order[:12]).tolist()


def test_a_group_that_does_not_fit_is_left_to_the_training_images():
    groups = np.array([0] * 8 + [1, 1, 2, 2, 3])
    labels = np.zeros(13, int)
    for seed in range(5):
        drawn = draw_groups(labels, groups, {**RULE, "val_size": 4, "split_seed": seed}, "val")
        assert set(groups[drawn["val"]]) < {1, 2, 3}
        assert len(drawn["val"]) in (3, 4)
        assert sorted([*drawn["val"], *drawn["train"]]) == list(range(13))


def test_a_patient_in_two_given_splits_is_refused(tmp_path, refuses):
    write(tmp_path, "train", range(40))
    write(tmp_path, "test", range(39, 60), seed=2)
    given = {"base": "image_parquet", "val_size": 5, "test": "test.parquet"}
    given["train"] = "train.parquet"
    book = DatasetCatalog({"mine": {**given, "groups": "patient"}}, str(tmp_path))
    assert PATIENTS[39] == PATIENTS[40]
    part = f"1 groups have images in train and in test, the first is '{PATIENTS[40]}'"
    with refuses(ConfigError, part):
        book.class_counts("mine")
    assert DatasetCatalog({"mine": given}, str(tmp_path)).class_counts("mine")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"base": "image_parquet", "train": "train.parquet", "groups": "doctor"}, "'doctor'"),
        ({"base": "image_folder", "train": "train", "groups": "("}, "is no regular expression"),
        ({"base": "image_folder", "train": "train", "groups": r"q\d"}, "is not found in 'a/p00_0"),
        (
            {"base": "image_folder", "train": "train", "groups": "png"},
            "test_size is 10, but the smallest group has 60 images; use a larger number.",
        ),
    ],
)
def test_groups_that_are_not_there_are_refused(tmp_path, refuses, options, part):
    write(tmp_path, "train")
    book = DatasetCatalog({"mine": {**options, "val_size": 5, "test_size": 10}}, str(tmp_path))
    with refuses(ConfigError, part):
        book.class_counts("mine")
