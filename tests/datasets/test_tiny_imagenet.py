"""Tiny-ImageNet from tiny zip files in the original format."""

import tarfile
import warnings
import zipfile
from functools import partial

import numpy as np
import pytest
from tests.datasets.archives import expect, write_tar, write_zip
from tests.datasets.pictures import colour, plain, sizes
from tests.mistakes import cases

from calgrid.components import registry
from calgrid.datasets import open_prepared, prepare
from calgrid.datasets._archives import each_member, open_archive
from calgrid.datasets.base import draw_val
from calgrid.datasets.tiny_imagenet import TinyImagenet
from calgrid.errors import ConfigError, DataError
from calgrid.plan.plan import Plan
from calgrid.study.datasets import DatasetCatalog
from calgrid.study.study import Study

ROOT = "tiny-imagenet-200"
#: as in the original, the list of the classes is not sorted
WNIDS = ["n03", "n01", "n02"]
PER_CLASS, TEST = 12, 7
SHAPE = (64, 64)


@pytest.fixture
def members():
    found = {
        f"{ROOT}/wnids.txt": "\n".join(WNIDS).encode() + b"\n",
        f"{ROOT}/words.txt": b"n01\tfish\n",
    }
    for place, wnid in enumerate(WNIDS):
        found[f"{ROOT}/train/{wnid}/{wnid}_boxes.txt"] = b"a box\n"
        for number in range(PER_CLASS):
            grey = number == 4
            name = f"{ROOT}/train/{wnid}/images/{wnid}_{number}.JPEG"
            found[name] = plain(100 * place + number, SHAPE, grey)
    lines = [f"val_{number}.JPEG\t{WNIDS[number % 3]}\t0\t32\t44\t62" for number in range(TEST)]
    # neither the list nor the archive is in the order of the rows
    found[f"{ROOT}/val/val_annotations.txt"] = "\n".join(lines[::-1]).encode() + b"\n"
    found |= {
        f"{ROOT}/val/images/val_{number}.JPEG": plain(1000 + number, SHAPE)
        for number in range(TEST)
    }
    found |= {
        f"{ROOT}/test/images/test_{number}.JPEG": plain(2000 + number, SHAPE) for number in range(2)
    }
    return dict(sorted(found.items(), reverse=True))


SIZES = {"train": 30, "val": 6, "test": TEST}
OFFICIAL = {"train": 36, "val": TEST, "test": TEST}


@pytest.fixture
def root(tmp_path, monkeypatch, members):
    write(tmp_path, monkeypatch, members)
    return tmp_path


def write(folder, monkeypatch, members):
    original = registry.describe("dataset", "tiny_imagenet").info
    official = {"val=official": {**original["variants"]["val=official"], "sizes": OFFICIAL}}
    expect(
        monkeypatch,
        TinyImagenet,
        [write_zip(folder / "tiny-imagenet-200.zip", members)],
        sizes=SIZES,
        drawn_val={"split": "stratified", "val_size": 6, "split_seed": 1},
        variants=official,
    )


def train_names():
    return sorted(
        f"{ROOT}/train/{wnid}/images/{wnid}_{number}.JPEG"
        for wnid in WNIDS
        for number in range(PER_CLASS)
    )


def test_rows_are_the_sorted_paths_whatever_the_order_of_the_archive(root, members):
    splits = TinyImagenet().build(root)
    names = train_names()
    for part in ("train", "val"):
        split = splits[part]
        for image, label, row in zip(split.images, split.labels, split.rows, strict=True):
            assert (image == colour(members[names[row]])[:, None, None]).all()
            assert names[row].split("/")[2] == sorted(WNIDS)[label]
    assert np.bincount(splits["val"].labels).tolist() == [2, 2, 2]
    test = zip(splits["test"].images, splits["test"].labels, strict=True)
    for number, (image, label) in enumerate(test):
        expected = colour(members[f"{ROOT}/val/images/val_{number}.JPEG"])
        assert (image == expected[:, None, None]).all()
        assert sorted(WNIDS)[label] == WNIDS[number % 3]


def test_the_registered_split_gives_val_fifty_of_each_class():
    rule = registry.describe("dataset", "tiny_imagenet").info["drawn_val"]
    labels = np.repeat(np.arange(200), 500)
    assert np.bincount(labels[draw_val(labels, rule)["val"]]).tolist() == [50] * 200


# the protocol of the literature


LITERATURE = {"base": "tiny_imagenet", "val": "official"}


@pytest.fixture
def plan(make_config, home, root):
    def make(**changes):
        grid = {"datasets": ["tiny_fc"], "methods": ["mbls"]}
        datasets = {"tiny_fc": {**LITERATURE, **changes}}
        return Plan(Study(make_config(grid, datasets=datasets, data_root=str(root)), home))

    return make


def test_the_official_protocol_trains_on_all_and_validates_on_the_test_split(root, plan):
    prepare(
        "tiny_fc", root / "fc", data_root=root, configured=plan().data("tiny_fc").spec["configured"]
    )
    made = open_prepared(root / "fc").verify()
    assert sizes(made) == OFFICIAL
    assert np.array_equal(made.splits["val"].images, made.splits["test"].images)
    assert np.array_equal(made.splits["val"].labels, made.splits["test"].labels)
    assert made.manifest["repeats"] == {"val": "test"}
    assert "has seen the test labels" in made.manifest["warning"]


def test_the_official_protocol_carries_its_warning_and_sizes_into_a_study(plan):
    fixed, drawn = plan(), plan(val="drawn")
    (run,), (other,) = (each.manifest()["runs"] for each in (fixed, drawn))
    assert "the validation split is the test split" in run["warning"]
    assert other["warning"] == ""
    fingerprints = {each.data("tiny_fc").spec["fingerprint"] for each in (fixed, drawn)}
    assert len(fingerprints) == 2
    info = fixed.study.datasets.describe("tiny_fc").info
    assert (info["sizes"], info["image_shape"], info["n_classes"]) == (OFFICIAL, (3, 64, 64), 200)


def test_only_a_variant_that_says_so_may_repeat_a_split(root, plan, refuses):
    silent = dict(plan().data("tiny_fc").spec["configured"])
    silent["info"] = {name: fact for name, fact in silent["info"].items() if name != "repeats"}
    with refuses(DataError, "Splits val and test of 'tiny_fc' share 7 source rows"):
        prepare("tiny_fc", root / "fc", data_root=root, configured=silent)


@pytest.mark.parametrize(
    ("variant", "parts"),
    cases(
        """
{base: tiny_imagenet, val: train}
    datasets.mine: val must be one of ['drawn', 'official']
{base: tiny_imagenet, like: cifar10}
    datasets.mine.like: remove it ... 'tiny_imagenet'
{base: tiny_imagenet, subset: 3}
    Unknown hyper-parameter 'subset' in datasets.mine
base: cifar10
    datasets.mine.base: 'cifar10' has fixed files and no options
base: cifar10_c
    datasets.mine.base: 'cifar10_c' has fixed files and no options
{base: imagenet, resize: 200}
    datasets.mine.resize must be at least 224, the size of the crop in pixels
{base: imagenet, interpolation: nearest}
    interpolation
"""
    ),
)
def test_mistakes_in_variants_are_refused(refuses, variant, parts):
    with refuses(ConfigError, *parts):
        DatasetCatalog({"mine": variant})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("wnids.txt", b"n01\nn02\n", "has images of 'n03', which is not in its list of classes"),
        (
            "val/images/val_3.JPEG",
            b"nothing",
            r"'tiny-imagenet-200/val/images/val_3.JPEG' in .* is not an image",
        ),
        ("val/images/val_3.JPEG", None, r"has no member 'tiny-imagenet-200/val/images/val_3.JPEG'"),
    ],
    ids=["class", "no picture", "missing"],
)
def test_another_content_is_refused(tmp_path, monkeypatch, members, name, content, message):
    del members[f"{ROOT}/{name}"]
    write(tmp_path, monkeypatch, members | ({f"{ROOT}/{name}": content} if content else {}))
    with pytest.raises(DataError, match=message):
        TinyImagenet().build(tmp_path)


# members of archives of both kinds


@pytest.mark.parametrize("write_archive", [write_zip, write_tar])
def test_members_come_in_the_order_of_the_archive(tmp_path, write_archive):
    path = write_archive(tmp_path / "a", {"./b": b"1", "a/c": b"22", "other": b"333"})
    if zipfile.is_zipfile(path):  # of compressed tar archives nobody asks for names
        assert list(open_archive(path).sizes) == ["b", "a/c", "other"]
    assert list(each_member(path, {"a/c": 2, "b": 2})) == [("b", b"1"), ("a/c", b"22")]
    with pytest.raises(DataError, match=r"'a/c' in .* is not a regular file of at most 1 bytes"):
        list(each_member(path, {"a/c": 1}))
    with pytest.raises(DataError, match="has no member 'd'"):
        list(each_member(path, {"d": 1}))


@pytest.mark.parametrize(
    ("write_archive", "begin", "rest"),
    [
        (write_zip, 20_000, b""),
        (write_zip, 20_000, bytes(5_000)),
        *((write_tar, n, b"") for n in (0, 30, 49_600)),
    ],
)
def test_damaged_archives_of_both_kinds_are_named(tmp_path, write_archive, begin, rest):
    content = np.random.default_rng(0).bytes(50_000)
    path = write_archive(tmp_path / "a", {"a": content})
    whole = path.read_bytes()
    path.write_bytes(whole[:begin] + rest + (whole[25_000:] if rest else b""))
    with pytest.raises(DataError, match=r"The archive .* is damaged"):
        list(each_member(path, {"a": 50_000}))


@pytest.mark.parametrize(
    "pack", [partial(zipfile.ZipFile, mode="w"), partial(tarfile.open, mode="w")]
)
def test_a_member_that_is_there_twice_is_refused(tmp_path, pack):
    (tmp_path / "one").write_bytes(b"1")
    with (
        warnings.catch_warnings(action="ignore"),
        pack(tmp_path / "archive") as archive,
    ):  # of zipfile
        for _ in range(2):
            (archive.add if isinstance(archive, tarfile.TarFile) else archive.write)(
                tmp_path / "one", "a"
            )
    with pytest.raises(DataError, match="occurs twice"):
        list(each_member(tmp_path / "archive", {"a": 1}))
