"""SVHN from tiny MATLAB files in the original format."""

import numpy as np
import pytest
import scipy.io
from tests.datasets.archives import expect

from calgrid.datasets import open_prepared, prepare
from calgrid.datasets.svhn import Svhn
from calgrid.errors import DataError

SIZES = {"train": 27, "val": 3, "test": 12}


def matlab(count, seed):
    """What the files hold: images height x width x channel x image, labels 1 to 10 as a column."""
    images = np.random.default_rng(seed).integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
    return {"X": images, "y": (np.arange(count) % 10 + 1).astype(np.uint8)[:, None]}


@pytest.fixture
def contents():
    return {"train": matlab(30, 0), "test": matlab(12, 1)}


def write(folder, monkeypatch, contents):
    paths = [folder / f"{name}_32x32.mat" for name in ("train", "test")]
    for path, content in zip(paths, contents.values(), strict=True):
        if content is None:
            path.write_bytes(b"MATLAB 5.0 MAT-file" + bytes(300))
        else:
            scipy.io.savemat(path, content)
    rule = {"split": "shuffled", "val_size": 3, "split_seed": 1}
    expect(monkeypatch, Svhn, paths, sizes=SIZES, drawn_val=rule)


def test_images_and_labels_come_out_of_the_matlab_arrays(tmp_path, monkeypatch, contents):
    write(tmp_path, monkeypatch, contents)
    prepare("svhn", tmp_path / "out", data_root=tmp_path)
    made = open_prepared(tmp_path / "out").verify()
    images = contents["train"]["X"]
    val, train = np.split(np.random.RandomState(1).permutation(30), [3])
    for name, rows in (("val", np.sort(val)), ("train", np.sort(train))):
        assert np.array_equal(
            made.splits[name].images[:, 1], images[:, :, 1].transpose(2, 0, 1)[rows]
        )
        assert np.array_equal(made.splits[name].labels, (rows + 1) % 10)
    assert np.array_equal(made.splits["test"].images[5, 2], contents["test"]["X"][:, :, 2, 5])
    assert made.splits["test"].labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]


@pytest.mark.parametrize("name", ["train", "test"])
@pytest.mark.parametrize(
    "change",
    [
        {"X": np.zeros(3)},
        {"X": np.zeros((32, 32, 3, 30))},
        {"y": np.ones((7, 1))},
        {"y": np.zeros((30, 1))},
        {"y": np.full((12, 1), 11)},
        None,
    ],
    ids=["form", "type", "count", "zero", "eleven", "no file"],
)
def test_another_matlab_file_is_refused(tmp_path, monkeypatch, contents, name, change):
    contents[name] = None if change is None else {**contents[name], **change}
    write(tmp_path, monkeypatch, contents)
    with pytest.raises(DataError, match=f"{name}_32x32.mat"):
        Svhn().build(tmp_path)


def test_a_file_with_too_few_images_or_no_labels_is_named(tmp_path, monkeypatch, contents):
    write(tmp_path, monkeypatch, {**contents, "train": {"X": contents["train"]["X"]}})
    with pytest.raises(DataError, match="has no arrays 'X' and 'y'"):
        Svhn().build(tmp_path)
    write(tmp_path, monkeypatch, {**contents, "train": matlab(3, 0)})
    with pytest.raises(DataError, match=r"train_32x32.mat has only 3 training images; replace it"):
        Svhn().build(tmp_path)
