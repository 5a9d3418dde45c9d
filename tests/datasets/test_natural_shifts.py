"""CIFAR-10.1, ImageNet-V2, -R, -A and Tiny-ImageNet-C from tiny files in the original layouts."""

import tarfile

import numpy as np
import pytest
from tests.datasets.archives import expect, npy, write_files, write_tar
from tests.datasets.pictures import colour, encoded, plain

from calgrid.components import registry
from calgrid.datasets import imagenet_v2, open_prepared, prepare
from calgrid.datasets.base import ImageSplit
from calgrid.datasets.cifar10_1 import Cifar101
from calgrid.datasets.imagenet import Imagenet
from calgrid.datasets.imagenet_some_classes import ImagenetA, ImagenetR
from calgrid.datasets.imagenet_v2 import ImagenetV2
from calgrid.datasets.tiny_imagenet_c import TinyImagenetC, TinyImagenetCExtra
from calgrid.errors import DataError

#: Tiny-ImageNet-C has other file names than the sorted order of numbers
WNIDS = ["n01443537", "n01629819"]


def base(labels, size):
    images = np.zeros((len(labels), 3, size, size), dtype=np.uint8)
    return {"test": ImageSplit(images, np.array(labels, dtype=np.int64))}


# CIFAR-10.1


@pytest.fixture
def versions(tmp_path, monkeypatch):
    """Images and labels of both versions, by their files."""
    generator = np.random.default_rng(0)
    arrays = {}
    for version, count in (("v6", 5), ("v4", 7)):
        shape = (count, 32, 32, 3)
        arrays[f"cifar10.1_{version}_data.npy"] = generator.integers(0, 256, shape, dtype=np.uint8)
        arrays[f"cifar10.1_{version}_labels.npy"] = np.arange(count, dtype=np.int32)
    for name, array in arrays.items():
        (tmp_path / name).write_bytes(npy(array))
    expect(monkeypatch, Cifar101, [tmp_path / name for name in arrays])
    return arrays


def test_both_versions_have_their_images_and_labels_in_the_order_of_the_files(tmp_path, versions):
    newer, older = Cifar101().build(tmp_path, {})
    assert (newer.shift, newer.severity) == ("cifar10_1_v6", 0)
    assert (older.shift, len(older.split)) == ("cifar10_1_v4", 7)
    expected = versions["cifar10.1_v6_data.npy"].transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(newer.split.images, expected)
    assert newer.split.labels.tolist() == [0, 1, 2, 3, 4]


def test_images_without_their_labels_are_refused(tmp_path, monkeypatch, versions, refuses):
    (tmp_path / "cifar10.1_v4_labels.npy").write_bytes(npy(np.arange(6, dtype=np.int32)))
    expect(monkeypatch, Cifar101, [tmp_path / name for name in versions])
    with refuses(DataError, "cifar10.1_v4_data.npy has the wrong type or shape", "for 6 labels"):
        list(Cifar101().build(tmp_path, {}))


def test_published_files_are_as_long_as_their_arrays():
    """A header of 128 bytes, 3,072 bytes an image, 4 a label."""
    files = {file["name"]: file.get("size") for file in Cifar101.registered["files"]}
    assert files["cifar10.1_v6_data.npy"] == 128 + 2_000 * 3_072
    assert files["cifar10.1_v6_labels.npy"] == 128 + 2_000 * 4
    assert files["cifar10.1_v4_labels.npy"] == 128 + 2_021 * 4
    assert Cifar101.registered["sizes"] == {"shift": 2_000 + 2_021}


# ImageNet-V2


def set_members(folder, first, n_classes):
    """Two pictures of each class; "10" sorts before "2"."""
    found = {}
    for label in sorted(range(n_classes), key=str):
        for number in range(2):
            name = f"{folder}/{label}/{number}.jpeg"
            found[name] = plain([first, label, number], (40, 50))
    return {f"{folder}/._0.jpeg": b"", **dict(reversed(found.items()))}


def all_members(n_classes=11):
    """Members of the three archives, by their names."""
    found = {}
    for first, file in enumerate(ImagenetV2.registered["files"]):
        folder = file["name"].removesuffix(".tar.gz") + "-format-val"
        found[file["name"]] = set_members(folder, first, n_classes)
    return found


@pytest.fixture
def sets(tmp_path, monkeypatch):
    found = all_members()
    pack(tmp_path, monkeypatch, found)
    return found


def pack(root, monkeypatch, sets, n_classes=11, **changes):
    monkeypatch.setattr(imagenet_v2, "PER_CLASS", 2)
    for note in root.glob("*.sha256"):
        note.unlink()  # written again, an archive has another time
    paths = [write_tar(root / name, members) for name, members in sets.items()]
    expect(monkeypatch, ImagenetV2, paths, n_classes=n_classes, **changes)


def test_classes_of_imagenet_v2_are_folders_of_ten_images(tmp_path, sets, monkeypatch, refuses):
    conditions = list(ImagenetV2().build(tmp_path, {}))
    for condition, (archive, members) in zip(conditions, sets.items(), strict=True):
        assert condition.split.labels.tolist() == np.repeat(np.arange(11), 2).tolist()
        folder = archive.removesuffix(".tar.gz") + "-format-val"
        for row in (0, 5, 21):
            expected = colour(members[f"{folder}/{row // 2}/{row % 2}.jpeg"])
            assert (condition.split.images[row] == expected[:, None, None]).all()
    with tarfile.open(tmp_path / "imagenetv2-top-images.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    (tmp_path / "imagenetv2-top-images.tar.gz").unlink()
    unpacked = list(ImagenetV2().build(tmp_path, {}))[2].split
    np.testing.assert_array_equal(unpacked.images, conditions[2].split.images)
    del sets["imagenetv2-threshold0.7.tar.gz"]["imagenetv2-threshold0.7-format-val/3/1.jpeg"]
    pack(tmp_path, monkeypatch, sets)
    with refuses(DataError, "threshold0.7.tar.gz does not have 2 images of each of 11 classes"):
        list(ImagenetV2().build(tmp_path, {}))


def test_prepared_natural_shifts_have_no_degree_and_registered_size(tmp_path, monkeypatch, refuses):
    pictures = {f"n{row % 2:08d}/{row}.JPEG": plain(row, (60, 60)) for row in range(10)}
    write_files(tmp_path / "val", pictures)
    expect(monkeypatch, Imagenet, [], n_classes=2, sizes={"val": 2, "test": 8})
    prepare("imagenet", tmp_path / "base", data_root=tmp_path)
    options = {"data_root": tmp_path, "base_dir": tmp_path / "base"}
    pack(tmp_path, monkeypatch, all_members(2), 2, sizes={"shift": 11})
    with refuses(DataError, "hold {'shift': 12} images", "the source is incomplete"):
        prepare("imagenet_v2", tmp_path / "out", **options)
    pack(tmp_path, monkeypatch, all_members(2), 2, sizes={"shift": 12})
    prepare("imagenet_v2", tmp_path / "out", **options)
    made = open_prepared(tmp_path / "out").verify()
    found = [(each.shift, each.severity, each.stop) for each in made.conditions]
    assert found == [("matched_frequency", 0, 4), ("threshold07", 0, 8), ("top_images", 0, 12)]


# Tiny-ImageNet-C


def corrupted(cls, folder):
    members = {}
    for place, shift in enumerate(cls.registered["shifts"]):
        for severity in range(5, 0, -1):
            for row, wnid in enumerate((WNIDS[1], WNIDS[0], WNIDS[1])):
                name = f"{folder}/{shift}/{severity}/{wnid}/val_{row}.JPEG"
                members[name] = plain([place, severity, row], (64, 64))
    return members


@pytest.mark.parametrize(
    ("cls", "name"),
    [(TinyImagenetC, "Tiny-ImageNet-C"), (TinyImagenetCExtra, "Tiny-ImageNet-C-extra")],
)
def test_tiny_imagenet_c_goes_by_corruption_and_severity(tmp_path, monkeypatch, cls, name, refuses):
    members = corrupted(cls, name)
    archive = write_tar(tmp_path / f"{name}.tar", members, "w")
    expect(monkeypatch, cls, [archive], n_classes=2)
    conditions = list(cls().build(tmp_path, base([1, 0, 1], 64)))
    assert [(each.shift, each.severity) for each in conditions] == [
        (shift, severity) for shift in cls.registered["shifts"] for severity in range(1, 6)
    ]
    third = conditions[7]
    assert third.split.labels.tolist() == [0, 1, 1]
    shift = cls.registered["shifts"][1]
    for image, picture in zip(third.split.images, ("0/val_1", "1/val_0", "1/val_2"), strict=True):
        wnid = WNIDS[int(picture[0])]
        expected = colour(members[f"{name}/{shift}/3/{wnid}{picture[1:]}.JPEG"])
        assert (image == expected[:, None, None]).all()
    said = f"as many images of each class as the test split ... '{cls.registered['shifts'][0]}/1'"
    with refuses(DataError, said):
        list(cls().build(tmp_path, base([0, 0, 1], 64)))


def test_pictures_of_tiny_imagenet_c_keep_their_pixels(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    members = dict.fromkeys(corrupted(TinyImagenetCExtra, "Tiny-ImageNet-C-extra"), encoded(pixels))
    archive = write_tar(tmp_path / "Tiny-ImageNet-C-extra.tar", members, "w")
    expect(monkeypatch, TinyImagenetCExtra, [archive], n_classes=2)
    (first, *_) = TinyImagenetCExtra().build(tmp_path, base([1, 0, 1], 64))
    np.testing.assert_array_equal(first.split.images[0], pixels.transpose(2, 0, 1))


# ImageNet-R and ImageNet-A


def test_the_classes_of_imagenet_r_and_a_are_those_of_their_code():
    both = (ImagenetR, ImagenetA)
    of_r, of_a = ([int(label) for label in each.classes_of_folders.split()] for each in both)
    assert (of_r[:6], sum(of_r), len(of_r)) == ([1, 2, 4, 6, 8, 9], 86_135, 200)
    assert (of_a[:6], sum(of_a), len(of_a)) == ([6, 11, 13, 15, 17, 22], 102_178, 200)
    assert of_r == sorted({*of_r}) and of_a == sorted({*of_a})
    assert len({*of_r} & {*of_a}) == 86


def test_sorted_folders_get_the_labels_of_imagenet(tmp_path, monkeypatch):
    members = {
        f"imagenet-a/{wnid}/{number}.jpg": plain([number, place], (60, 50))
        for place, wnid in enumerate(reversed(WNIDS))
        for number in range(3)
    }
    archive = write_tar(tmp_path / "imagenet-a.tar", {**members, "imagenet-a/README.txt": b""}, "w")
    expect(monkeypatch, ImagenetA, [archive])
    monkeypatch.setattr(ImagenetA, "classes_of_folders", "6 11")
    (condition,) = ImagenetA().build(tmp_path, {})
    assert (condition.shift, condition.severity) == ("imagenet_a", 0)
    assert condition.split.labels.tolist() == [6, 6, 6, 11, 11, 11]
    expected = colour(members[f"imagenet-a/{WNIDS[1]}/2.jpg"])
    assert (condition.split.images[5] == expected[:, None, None]).all()


# all


def test_each_data_set_offers_its_natural_shifts():
    of_imagenet = [("imagenet", f"imagenet_{name}") for name in ("v2", "r", "a")]
    of_tiny = [("tiny_imagenet", f"tiny_imagenet_{name}") for name in ("c", "c_extra")]
    for dataset, shift in [("cifar10", "cifar10_1"), *of_imagenet, *of_tiny]:
        offered = registry.describe("dataset", dataset).info
        found = registry.describe("dataset", shift).info
        assert shift in offered["families"]
        assert found["base"] == dataset
        assert all(found[fact] == offered[fact] for fact in ("n_classes", "image_shape"))
    for dataset, foreign in (("cifar10", "svhn"), ("svhn", "cifar10")):
        assert f"ood/{foreign}" in registry.describe("dataset", dataset).info["families"]
