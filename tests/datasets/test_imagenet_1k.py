"""ImageNet with its training images, from tiny folders in the original layout."""

import shutil

import numpy as np
import pytest
from tests.conftest import is_one_sentence
from tests.datasets.archives import expect, write_files
from tests.datasets.pictures import colour, plain, sizes

from calgrid.datasets import open_prepared, prepare
from calgrid.datasets.imagenet_1k import ImagenetTrained
from calgrid.errors import DataError

CLASSES = ["n01440764", "n01443537", "n02102040"]
SIZES = {"train": 18, "val": 3, "test": 6}
RULE = {"split": "stratified", "val_size": SIZES["val"], "split_seed": 1}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Pictures of one colour and of sizes of their own, seven a class to train and two to test."""
    expect(monkeypatch, ImagenetTrained, (), n_classes=3, sizes=SIZES, drawn_val=RULE)
    members = {}
    for number, wnid in enumerate(CLASSES):
        for row in range(7):
            members[f"imagenet/train/{wnid}/{wnid}_{row}.JPEG"] = plain(10 * number + row, (50, 40))
        for row in (0, 1):
            name = f"ILSVRC2012_val_{10 * number + row:08d}.JPEG"
            members[f"imagenet/val/{wnid}/{name}"] = plain(100 + 10 * number + row, (40, 60))
    return write_files(tmp_path / "data", members)


def refused(root, out):
    with pytest.raises(DataError) as caught:
        prepare("imagenet_1k", out, data_root=root)
    assert is_one_sentence(str(caught.value))
    return str(caught.value)


def test_validation_images_are_drawn_from_training_images_and_all_stay_encoded(root, tmp_path):
    prepare("imagenet_1k", tmp_path / "out", data_root=root)
    made = open_prepared(tmp_path / "out").verify()
    assert sizes(made) == SIZES
    assert (tmp_path / "out/train_images.bin").stat().st_size < 18 * 3 * 224 * 224
    seen = []
    for name, split in made.splits.items():
        for pixels, label in zip(split.images[:], split.labels, strict=True):
            assert (pixels == pixels[:, :1, :1]).all()
            seen.append((name == "test", CLASSES[label], tuple(pixels[:, 0, 0])))
    expected = [
        ("val/" in str(path), path.parent.name, tuple(colour(path.read_bytes())))
        for path in root.rglob("*.JPEG")
    ]
    assert sorted(seen) == sorted(expected)
    # one of each class
    assert np.bincount(made.splits["val"].labels).tolist() == [1, 1, 1]


def test_bad_folders_are_named(root, tmp_path):
    out = tmp_path / "out"
    pictures = sorted((root / "imagenet/train" / CLASSES[0]).iterdir())
    whole = pictures[3].read_bytes()
    pictures[3].write_bytes(whole[: len(whole) // 2])
    message = refused(root, out)
    assert pictures[3].name in message
    assert "cannot be decoded" in message
    pictures[3].write_bytes(whole)

    moved = (root / "imagenet/train" / CLASSES[0]).rename(root / "imagenet/train/n09999999")
    message = refused(root, out)
    assert f"'n09999999' of {root / 'imagenet/train'} is not in {root / 'imagenet/val'}" in message
    for picture in moved.iterdir():
        picture.unlink()
    assert "train has images of 2 classes instead of 3" in refused(root, out)
    shutil.rmtree(root / "imagenet/train")
    assert "unpack ILSVRC2012_img_train.tar" in refused(root, out)
