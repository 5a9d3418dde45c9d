"""CIFAR from tiny archives in the original format, and archives that attack the reader."""

import hashlib
import io
import os
import pickle
import struct
import tarfile
from typing import ClassVar

import numpy as np
import pytest
from tests.datasets.archives import expect, write_tar

from calgrid.datasets import open_prepared, prepare
from calgrid.datasets._archives import each_member, unpickle_arrays
from calgrid.datasets.base import draw_val
from calgrid.datasets.cifar import Cifar10, Cifar100
from calgrid.errors import DataError

TEN, HUNDRED = "cifar-10-batches-py", "cifar-100-python"
NAMES = (*(f"{TEN}/data_batch_{n}" for n in range(1, 6)), f"{TEN}/test_batch")


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes as Python 2 wrote its strings."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value):
        content = value.encode("latin1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_string


def pickled(value):
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(value)
    return stream.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def batch(count, seed, key="labels", classes=10):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
    labels = [int(label) for label in rng.integers(0, classes, count)]
    return {"batch_label": "a batch", "data": images, key: labels, "filenames": ["a.png"] * count}


def shrink(monkeypatch, cls, path, train, val, test):
    """Let the data set expect the tiny archive at ``path`` and its members."""
    with tarfile.open(path) as tar:
        md5 = {name: hashlib.md5(tar.extractfile(name).read()).hexdigest() for name in cls.members}
    monkeypatch.setattr(cls, "members", md5)
    rule = {**cls.registered["drawn_val"], "val_size": val}
    expect(
        monkeypatch, cls, [path], sizes={"train": train, "val": val, "test": test}, drawn_val=rule
    )


@pytest.fixture
def ten(tmp_path, monkeypatch):
    batches = [batch(8, seed) for seed in range(6)]
    members = {f"{TEN}/batches.meta": pickled({"label_names": ["cat"]})}
    # the archive's own order is not that of the numbers
    members |= {
        name: pickled(part) for name, part in sorted(zip(NAMES, batches, strict=True), reverse=True)
    }
    shrink(monkeypatch, Cifar10, write_tar(tmp_path / "cifar-10-python.tar.gz", members), 30, 10, 8)
    return batches


def rewrite(tmp_path, monkeypatch, contents):
    """Write the archive anew with these pickles, five of training batches and one of tests."""
    path = write_tar(tmp_path / "cifar-10-python.tar.gz", dict(zip(NAMES, contents, strict=True)))
    shrink(monkeypatch, Cifar10, path, 30, 10, 8)


def chw(images):
    return images.reshape(-1, 3, 32, 32)


@pytest.mark.parametrize("seed", [None, 2])
def test_cifar10_has_the_batches_in_order_and_the_published_kind_of_split(ten, tmp_path, seed):
    prepare("cifar10", tmp_path / "out", data_root=tmp_path, val_seed=seed)
    made = open_prepared(tmp_path / "out").verify()
    images = chw(np.concatenate([part["data"] for part in ten[:5]]))
    labels = np.concatenate([part["labels"] for part in ten[:5]])
    order = np.random.RandomState(seed or 1).permutation(40)
    for name, rows in (("val", np.sort(order[:10])), ("train", np.sort(order[10:]))):
        assert np.array_equal(made.splits[name].images, images[rows])
        assert np.array_equal(made.splits[name].labels, labels[rows])
    assert np.array_equal(made.splits["test"].images, chw(ten[5]["data"]))
    assert np.array_equal(made.splits["test"].labels, ten[5]["labels"])


def test_a_folder_that_was_unpacked_or_packed_anew_stands_for_the_archive(ten, tmp_path, refuses):
    published = Cifar10().build(tmp_path)
    path, changed = tmp_path / "cifar-10-python.tar.gz", tmp_path / TEN / "data_batch_2"
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path, filter="data")
    path.unlink()
    members = {name: (tmp_path / name).read_bytes() for name in NAMES}
    for packed in (False, True):
        if packed:
            write_tar(path, members)
        for name, split in Cifar10().build(tmp_path).items():
            assert np.array_equal(split.images, published[name].images)
            assert np.array_equal(split.labels, published[name].labels)
    name = f"{TEN}/data_batch_2"
    members[name] = members[name].replace(b"a.png", b"b.png")
    write_tar(path, members)
    with refuses(DataError, f"'{name}' in {path} is not the published file (its MD5 differs)"):
        Cifar10().build(tmp_path)
    path.unlink()
    changed.write_bytes(members[name])
    with refuses(DataError, f"'{name}' in {tmp_path / TEN} is not the published file"):
        Cifar10().build(tmp_path)
    (tmp_path / TEN / "data_batch_3").unlink()
    with refuses(DataError, f"{tmp_path}/{TEN} has no member '{TEN}/data_batch_3'"):
        Cifar10().build(tmp_path)


def test_cifar100_has_fine_labels(tmp_path, monkeypatch):
    train = batch(20, 1, "fine_labels", 100) | {"coarse_labels": [0] * 20}
    test = batch(6, 2, "fine_labels", 100) | {"coarse_labels": [0] * 6}
    members = {f"{HUNDRED}/test": pickled(test), f"{HUNDRED}/train": pickled(train)}
    path = write_tar(tmp_path / "cifar-100-python.tar.gz", members)
    shrink(monkeypatch, Cifar100, path, 15, 5, 6)
    splits = Cifar100().build(tmp_path)
    assert splits["test"].labels.tolist() == test["fine_labels"]
    assert [len(splits[name]) for name in ("train", "val", "test")] == [15, 5, 6]


def test_validation_rows_are_the_published_ones():
    """SHA-256 of the 5,000 rows as little-endian int32, in the order of the shuffle."""
    rule = Cifar10.registered["drawn_val"]
    rows = np.random.RandomState(rule["split_seed"]).permutation(50_000)[: rule["val_size"]]
    assert hashlib.sha256(rows.astype("<i4")).hexdigest() == (
        "e48b242c5c971494deab721de758cd64ad6c95479663759e0a091fed8fcaee84"
    )
    assert np.array_equal(draw_val(np.zeros(50_000, np.int64), rule)["val"], np.sort(rows))


def test_images_of_equal_content_are_counted(ten, tmp_path, monkeypatch):
    ten[5]["data"][2] = ten[0]["data"][3]
    rewrite(tmp_path, monkeypatch, map(pickled, ten))
    prepare("cifar10", tmp_path / "out", data_root=tmp_path)
    assert sum(open_prepared(tmp_path / "out").manifest["duplicates"].values()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"data": np.zeros((8, 3071), np.uint8)},
        {"data": np.zeros((8, 3072))},
        {"labels": [1]},
        {"labels": None},
        {"data": 3},
    ],
    ids=["width", "type", "count", "none", "scalar"],
)
def test_a_batch_of_another_form_is_refused(ten, tmp_path, monkeypatch, change):
    contents = [pickled(part) for part in ten]
    contents[1] = pickled({**ten[1], **change})
    rewrite(tmp_path, monkeypatch, contents)
    message = r"'cifar-10-batches-py/data_batch_2' in .* must have uint8 rows of length 3072"
    with pytest.raises(DataError, match=message):
        Cifar10().build(tmp_path)


# pickles that would run something


class Evil:
    def __init__(self, function, *arguments):
        self.what = (function, arguments)

    def __reduce__(self):
        return self.what


@pytest.mark.parametrize(
    "value",
    [
        Evil(os.system, "touch hacked"),
        {"data": Evil(eval, "1+1")},
        {"data": Evil(getattr, "text", "upper")},
        {"data": Evil(np.load, "x.npy")},
        {"data": Evil(np.frombuffer, b"12")},
        {"data": np.float64(1.0)},
    ],
    ids=["system", "eval", "getattr", "load", "frombuffer", "scalar"],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_of_anything_but_arrays_is_refused(value, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"is not a pickle of plain arrays .*is not allowed"):
        unpickle_arrays(io.BytesIO(pickle.dumps(value, protocol=protocol)), "a batch")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", pickled({"data": 1})[:-3], b"\x80\x02cnumpy\nndarray\n)R.", pickled([1, 2])],
)
def test_a_damaged_pickle_or_one_of_something_else_is_refused(content):
    with pytest.raises(DataError, match=r"a batch (is not a pickle|is not a dictionary)"):
        unpickle_arrays(io.BytesIO(content), "a batch")


# archives that would write or read elsewhere


def special(kind, name="wanted", link="/etc/passwd"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_a_member_that_is_no_regular_file_is_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(special(kind))
    with pytest.raises(DataError, match=r"'wanted' in .*a.tar is not a regular file"):
        dict(each_member(tmp_path / "a.tar", {"wanted": 100}))


def test_members_outside_the_folder_are_never_written(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    names = ("../outside", "/tmp/outside-of-all", "wanted", "a/../../outside")
    path = write_tar(inside / "a.tar.gz", {name: name.encode() for name in names})
    assert dict(each_member(path, {"wanted": 100})) == {"wanted": b"wanted"}
    assert [each.name for each in tmp_path.iterdir()] == ["inside"]
    assert [each.name for each in inside.iterdir()] == ["a.tar.gz"]
