"""CIFAR-C from tiny files in the original format."""

import tarfile

import numpy as np
import pytest
from tests.datasets.archives import expect, npy, write_tar

from calgrid.datasets._archives import map_arrays
from calgrid.datasets.base import ImageSplit
from calgrid.datasets.cifar_c import Cifar10C
from calgrid.errors import DataError

COUNT = 4
SHIFTS = Cifar10C.registered["shifts"]


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {shift: rng.integers(0, 256, (5 * COUNT, 32, 32, 3), dtype=np.uint8) for shift in SHIFTS}


@pytest.fixture
def base():
    images = np.zeros((COUNT, 3, 32, 32), dtype=np.uint8)
    return {"test": ImageSplit(images, np.arange(COUNT, dtype=np.int64))}


def write(tmp_path, monkeypatch, arrays, labels):
    arrays = {**arrays, "speckle_noise": labels, "labels": labels}
    members = {f"CIFAR-10-C/{name}.npy": npy(array) for name, array in arrays.items()}
    expect(monkeypatch, Cifar10C, [write_tar(tmp_path / "CIFAR-10-C.tar", members, "w")])


def test_rows_go_by_shift_and_severity_also_unpacked(tmp_path, monkeypatch, arrays, base, refuses):
    write(tmp_path, monkeypatch, arrays, np.tile(np.arange(COUNT, dtype=np.uint8), 5))
    archive = list(Cifar10C().build(tmp_path, base))
    with tarfile.open(tmp_path / "CIFAR-10-C.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    (tmp_path / "CIFAR-10-C.tar").rename(tmp_path / "elsewhere.tar")
    folder = list(Cifar10C().build(tmp_path, base))
    for one, other in zip(archive, folder, strict=True):
        assert np.array_equal(one.split.images, other.split.images)
    assert isinstance(folder[0].split.images, np.memmap)
    fog = tmp_path / "CIFAR-10-C" / "fog.npy"
    fog.write_bytes(fog.read_bytes()[:-1])
    with refuses(DataError, f"{fog} is damaged", "replace it"):
        list(Cifar10C().build(tmp_path, base))
    fog.unlink()
    with refuses(DataError, f"{fog} cannot be read (No such file ... complete its folder"):
        list(Cifar10C().build(tmp_path, base))
    assert [(setting.shift, setting.severity) for setting in archive] == [
        (s, n) for s in SHIFTS for n in range(1, 6)
    ]
    third = next(each for each in archive if (each.shift, each.severity) == ("fog", 3))
    expected = arrays["fog"][2 * COUNT : 3 * COUNT].transpose(0, 3, 1, 2)
    assert np.array_equal(third.split.images, expected)
    assert third.split.labels.tolist() == [0, 1, 2, 3]
    assert isinstance(third.split.images, np.memmap)


def test_other_labels_and_arrays_of_another_form_are_refused(tmp_path, monkeypatch, arrays, base):
    write(tmp_path, monkeypatch, arrays, np.zeros(5 * COUNT, np.uint8))
    said = r"labels in .*CIFAR-10-C.tar differ from those of the test split"
    with pytest.raises(DataError, match=said):
        list(Cifar10C().build(tmp_path, base))
    arrays["fog"] = arrays["fog"][:-1]
    write(tmp_path, monkeypatch, arrays, np.tile(np.arange(COUNT), 5))
    said = r"'fog.npy' in .*CIFAR-10-C.tar has the wrong type or shape"
    with pytest.raises(DataError, match=said):
        list(Cifar10C().build(tmp_path, base))


# arrays in archives


def test_arrays_are_mapped_where_they_lie(tmp_path):
    values = {"a.npy": np.float32([[0, 1, 2], [3, 4, 5]]), "b.npy": np.arange(3, dtype=np.uint8)}
    members = {f"deep/{name}": npy(array) for name, array in values.items()}
    path = write_tar(tmp_path / "x.tar", members, "w")
    found = map_arrays(path, values)
    assert all(np.array_equal(found[name], array) for name, array in values.items())
    with pytest.raises(ValueError, match="read-only"):
        found["b.npy"][0] = 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(np.array([{}], dtype=object), allow_pickle=True), "not an array of plain numbers"),
        (npy(np.asfortranarray(np.zeros((2, 3)))), "not an array of plain numbers"),
        (npy(np.zeros(9))[:-8], "not an array of plain numbers"),
        (b"nothing", "is damaged"),
    ],
    ids=["objects", "order", "cut off", "no array"],
)
def test_a_member_that_is_no_plain_array_is_refused(tmp_path, content, message):
    path = write_tar(tmp_path / "x.tar", {"a.npy": content, "after": b"0" * 100}, "w")
    with pytest.raises(DataError, match=message):
        map_arrays(path, ["a.npy"])


def test_missing_double_linked_and_compressed_members_are_refused(tmp_path):
    content = npy(np.zeros(3))
    path = write_tar(tmp_path / "x.tar", {"one/a.npy": content, "two/a.npy": content}, "w")
    with pytest.raises(DataError, match="occurs twice"):
        map_arrays(path, ["a.npy"])
    with pytest.raises(DataError, match=r"has no member 'c.npy'"):
        map_arrays(path, ["c.npy"])
    with pytest.raises(DataError, match="is damaged"):
        map_arrays(write_tar(tmp_path / "x.tar.gz", {"a.npy": content}), ["a.npy"])
    with tarfile.open(tmp_path / "link.tar", "w") as tar:
        info = tarfile.TarInfo("a.npy")
        info.type, info.linkname = tarfile.SYMTYPE, "x.tar"
        tar.addfile(info)
    with pytest.raises(DataError, match="not a regular file"):
        map_arrays(tmp_path / "link.tar", ["a.npy"])
