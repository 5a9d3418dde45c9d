"""Tiny-ImageNet-200: 110,000 photographs of 64x64 pixels in 200 classes of ImageNet.

Classes are numbered in the sorted order of their WordNet ids, which is not the order of
``wnids.txt``. Training rows are in the sorted order of their paths, as in torchvision's
``ImageFolder``, test rows in the sorted order of their file names. Grey images get three equal
channels. The published test images have no labels and are not used.

Splits. The published validation images are the test split, and 50 images of each class are drawn
from the training images for validation, with one seed for all runs: the sizes of MbLS, ACLS and
FeDLaS, whose random draw differs. With ``val: official``, all 100,000 training images are used for
training, and the published validation images are both the validation and the test split, as in the
code of focal_calibration. Results are then comparable with that literature, but optimistic, because
checkpoints, temperatures and other choices use the test labels. They have a warning.
"""

import re
from pathlib import Path
from typing import Literal

from calgrid.components.registry import register
from calgrid.datasets._archives import LIST_LIMIT, each_member, open_archive
from calgrid.datasets._picture_archive import PHOTOGRAPHS, Listed, PictureArchive, listed

ROOT = "tiny-imagenet-200"
ANNOTATIONS = f"{ROOT}/val/val_annotations.txt"
TRAIN = re.compile(rf"{ROOT}/train/[^/]+/images/[^/]+\.JPEG")


@register(
    source="Le and Yang, Tiny ImageNet Visual Recognition Challenge, Stanford CS 231N, 2015",
    **PHOTOGRAPHS,
    label="Tiny-ImageNet",
    n_classes=200,
    image_shape=(3, 64, 64),
    sizes={"train": 90_000, "val": 10_000, "test": 10_000},
    drawn_val={"split": "stratified", "val_size": 10_000, "split_seed": 1},
    variants={
        "val=official": {
            "sizes": {"train": 100_000, "val": 10_000, "test": 10_000},
            "repeats": {"val": "test"},
            "warning": (
                "the validation split is the test split: whatever was chosen or fitted on "
                "validation data has seen the test labels"
            ),
        }
    },
    files=(
        {
            "name": "tiny-imagenet-200.zip",
            "url": "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "size": 248_100_043,
            "sha256": "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
        },
    ),
)
class TinyImagenet(PictureArchive):
    """Photographs of two hundred classes of ImageNet in 64x64 pixels.

    Parameters
    ----------
    val : ``drawn`` from the training images, or ``official``: the same images as the test split.
    """

    size = 64

    def __init__(self, *, val: Literal["drawn", "official"] = "drawn") -> None:
        self.val_is_test = val == "official"

    def listed(self, archive: Path) -> tuple[Listed, Listed]:
        """Return the training and the validation images; see :class:`PictureArchive`."""
        lists = dict(
            each_member(archive, {f"{ROOT}/wnids.txt": LIST_LIMIT, ANNOTATIONS: LIST_LIMIT})
        )
        wnids = sorted(lists[f"{ROOT}/wnids.txt"].decode("utf-8").split())
        paths = sorted(open_archive(archive, lambda name: TRAIN.fullmatch(name) is not None).sizes)
        rows = sorted(
            line.split("\t")[:2] for line in lists[ANNOTATIONS].decode("utf-8").splitlines()
        )
        training = [(path, path.split("/")[2]) for path in paths]
        validation = [(f"{ROOT}/val/images/{file}", wnid) for file, wnid in rows]
        return listed(training, wnids, archive), listed(validation, wnids, archive)
