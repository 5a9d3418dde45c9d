"""Prepared folders: equal bytes each time, complete or absent, checked when they are opened."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.datasets.pictures import sizes

from calgrid.components import registry
from calgrid.datasets import open_prepared, preparation, prepare
from calgrid.datasets.base import ShiftCondition, ShiftFamily
from calgrid.datasets.corruptions import DigitsC
from calgrid.datasets.digits import Digits
from calgrid.datasets.photos import Photos
from calgrid.errors import CalgridError, ConfigError, DataError, StateError


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_preparing_twice_gives_the_same_bytes(digits_dir, digits_c, tmp_path):
    prepare("digits", tmp_path / "digits")
    prepare("digits_c", tmp_path / "digits_c", base_dir=tmp_path / "digits")
    assert contents(tmp_path / "digits") == contents(digits_dir)
    assert contents(tmp_path / "digits_c") == contents(digits_dir.parent / "digits_c")


def test_a_draw_of_validation_images_leaves_test_images_and_the_union_of_others(digits, tmp_path):
    prepare("digits", tmp_path, val_seed=2)
    made = open_prepared(tmp_path)
    assert np.array_equal(made.splits["test"].images, digits.splits["test"].images)
    assert not np.array_equal(made.splits["val"].images, digits.splits["val"].images)
    before, after = (
        Counter(image.tobytes() for name in ("train", "val") for image in each.splits[name].images)
        for each in (digits, made)
    )
    assert after == before
    assert sizes(made) == sizes(digits)
    assert made.manifest["val_seed"] == 2


def test_open_gives_what_was_built_memory_mapped_and_read_only(digits):
    for name, split in Digits().build(None).items():
        assert np.array_equal(digits.splits[name].images, split.images)
        assert np.array_equal(digits.splits[name].labels, split.labels)
    facts = (digits.id, digits.role, digits.n_classes, digits.conditions)
    assert facts == ("digits", "dataset", 10, ())
    images = digits.splits["test"].images
    assert isinstance(images, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        images[0] = 0
    written = {f"{split}_{kind}.npy" for split in digits.splits for kind in ("images", "labels")}
    assert {path.name for path in digits.folder.iterdir()} == written | {"manifest.json"}


def test_an_ood_set_needs_no_base_but_then_has_no_normalisation(tmp_path):
    prepare("photos", tmp_path / "photos")
    alone = open_prepared(tmp_path / "photos")
    assert (alone.mean, alone.std, alone.n_classes) == (None, None, 0)


# bases


def test_a_base_that_is_missing_unneeded_or_another_is_refused(photos, digits_dir, tmp_path):
    with pytest.raises(ConfigError, match="'digits_c' is computed from 'digits'"):
        prepare("digits_c", tmp_path / "out")
    with pytest.raises(ConfigError, match="remove base_dir"):
        prepare("digits", tmp_path / "out", base_dir=digits_dir)
    with pytest.raises(ConfigError, match=r"belongs to 'digits', but .* holds 'photos'"):
        prepare("digits_c", tmp_path / "out", base_dir=digits_dir.parent / "photos")


# what was built is checked before anything is written


def shorter(split):
    """Fields of a split without its first image."""
    return {name: each[1:] for name, each in vars(split).items() if each is not None}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "val",
            lambda s: {"rows": s["test"].rows[:477]},
            "val and test of 'digits' share 477 sour",
        ),
        (
            "test",
            lambda s: {"images": s["train"].images[[0] * 1200]},
            "train and test of 'digits' s",
        ),
        ("val", lambda s: shorter(s["val"]), "'val': 476"),
        ("val", lambda s: {"labels": s["val"].labels + 1}, r"must lie in 0..9, found 1..10"),
        ("val", lambda s: {"images": s["val"].images[:, :, :4]}, r"\(3, 4, 8\), .* is \(3, 8, 8\)"),
    ],
    ids=["rows", "content", "size", "labels", "shape"],
)
def test_splits_other_than_registered_are_refused(monkeypatch, tmp_path, name, change, message):
    splits = Digits().build(None)
    changed = {**splits, name: replace(splits[name], **change(splits))}
    monkeypatch.setattr(Digits, "build", lambda self, data_root: changed)
    with pytest.raises(DataError, match=message):
        prepare("digits", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, each in registry.descriptions("dataset").items()
        if {"sha256", "md5"} & {*each.info.get("files", [{}])[0]}
        and name != "imagenet_1k"  # people unpack its archive themselves
    ],
)
def test_another_file_than_the_published_one_is_refused(tmp_path, name):
    file = registry.describe("dataset", name).info["files"][0]
    (tmp_path / file["name"]).write_bytes(b"not it")
    made = registry.load("dataset", name)()
    with pytest.raises(DataError, match=f"{file['name']} is not the published .*{file['url']}"):
        list(made.build(tmp_path, {}) if isinstance(made, ShiftFamily) else made.build(tmp_path))


def test_labels_in_an_ood_set_are_refused(monkeypatch, tmp_path):
    split = Photos().build(None)["test"]
    monkeypatch.setattr(
        Photos, "build", lambda self, root: {"test": replace(split, labels=split.labels + 1)}
    )
    with pytest.raises(DataError, match=r"must lie in -1..-1, found 0..0"):
        prepare("photos", tmp_path / "out")


def test_conditions_other_than_registered_are_refused(monkeypatch, digits_dir, tmp_path):
    monkeypatch.setattr(
        DigitsC,
        "build",
        lambda self, root, base: [ShiftCondition("gaussian_noise", 1, base["test"])],
    )
    with pytest.raises(DataError, match="Conditions built for 'digits_c'"):
        prepare("digits_c", tmp_path / "out", base_dir=digits_dir)


def test_equal_images_and_only_those_have_equal_hashes():
    images = np.random.default_rng(0).integers(0, 256, (1200, 3, 8, 8), dtype=np.uint8)
    images[1100], images[1101] = images[5], images[5, :, ::-1]
    hashes = preparation.image_hashes(images)
    assert hashes[1100] == hashes[5]
    assert len(np.unique(hashes)) == 1199


# interruption


def test_an_interrupted_preparation_leaves_no_manifest(monkeypatch, tmp_path, digits_dir):
    prepare("digits", tmp_path / "digits")
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "flush", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare("digits", tmp_path / "digits")
    with pytest.raises(DataError, match="contains no prepared data"):
        open_prepared(tmp_path / "digits")
    prepare("digits", tmp_path / "digits")
    assert contents(tmp_path / "digits") == contents(digits_dir)


def interrupt(_):
    raise KeyboardInterrupt


# damage is found on opening


@pytest.fixture
def copied(digits_dir, tmp_path):
    for name, content in contents(digits_dir).items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(b""), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:40]), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:1_000]), "is damaged"),
        (
            lambda path: np.save(path, np.zeros(3, np.int64)),
            r"holds int64 \(3,\), its manifest says int64 \(477,\)",
        ),
        (lambda path: np.save(path, np.array([{}], dtype=object), allow_pickle=True), "is damaged"),
    ],
    ids=["missing", "empty", "header", "cut off", "shape", "pickle"],
)
def test_a_damaged_array_is_named(copied, change, message):
    change(copied / "val_labels.npy")
    with pytest.raises(DataError, match=f"val_labels.npy {message}"):
        open_prepared(copied)


def test_changed_content_is_found_when_verifying(copied):
    labels = np.load(copied / "val_labels.npy")
    labels[0] = 9 - labels[0]
    np.save(copied / "val_labels.npy", labels)
    assert len(open_prepared(copied).splits["val"]) == 477
    with pytest.raises(StateError, match=r"val_labels.npy is damaged"):
        open_prepared(copied).verify()


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 0}'])
def test_a_damaged_or_foreign_manifest_is_refused(copied, text):
    (copied / "manifest.json").write_text(text)
    with pytest.raises(CalgridError, match="manifest"):
        open_prepared(copied)
