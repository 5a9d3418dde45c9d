"""ImageNet-1K validation images: 50,000 photographs of 1,000 classes, to evaluate pretrained
networks.

They must be downloaded by hand. Put the two published archives below data_root, or the folder
``imagenet/val`` or ``val`` with one folder of images per WordNet id. Both give the same rows: the
class numbers of the devkit's ground truth differ from the order of the sorted ids and are
translated with its ``meta.mat``.

``imagenet_lt`` is the test set of ImageNet-LT. Only the training list of ImageNet-LT is
long-tailed; its test list has these 50,000 balanced images. Evaluating networks trained on ImageNet
on it, as in SMART, repeats the evaluation on ImageNet: there is no long tail, and results differ
from those on ``imagenet`` only by the draw of the calibration images. Results have a warning.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from scipy.io.matlab import MatReadError

from calgrid.components.registry import register
from calgrid.datasets._archives import LIST_LIMIT, each_member, open_archive
from calgrid.datasets._imagenet import FACTS, Evaluated, Pictures, by_class
from calgrid.datasets.downloads import find_local, published
from calgrid.errors import DataError

#: places of the images, if they are unpacked
FOLDERS = ("imagenet/val", "val")
TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
META = "ILSVRC2012_devkit_t12/data/meta.mat"
ARCHIVES = (
    {
        "name": "ILSVRC2012_img_val.tar",
        "url": "https://image-net.org",
        "size": 6_744_924_160,
        "md5": "29b22e2961454d5413ddabcf34fc5622",
    },
    {
        "name": "ILSVRC2012_devkit_t12.tar.gz",
        "url": "https://image-net.org",
        "md5": "fa75699e90414af021442c21a62c3abf",
    },
)


@register(
    id="imagenet",
    source="Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015",
    **FACTS,
    label="ImageNet",
    download=False,
    sizes={"val": 10_000, "test": 40_000},
    files=ARCHIVES,
)
class Imagenet(Evaluated):
    """Photographs of one thousand classes: the validation set, a fifth of it for calibration."""

    def pictures(self, data_root: Path | None) -> Pictures:
        """Return the validation images; see :class:`Evaluated`."""
        n_classes = self.registered["n_classes"]
        pictures = unpacked(data_root, FOLDERS, n_classes)
        if pictures is not None:
            return pictures
        files = Imagenet.registered["files"]
        tar, devkit = find_local(files[0], data_root), find_local(files[1], data_root)
        if tar is None or devkit is None:
            raise DataError(
                "The validation images of ImageNet require a registration; put "
                f"{published(files[0])} and {published(files[1])} into "
                f"{data_root or 'a data_root'}, or the images into its folder {FOLDERS[0]}, in one "
                "folder per WordNet id."
            )
        store = open_archive(tar)
        wnids = _labels(devkit)
        if len(wnids) != len(store.sizes):
            raise DataError(
                f"{tar} has {len(store.sizes):,} images, but {devkit} has {len(wnids):,} labels; "
                "replace them."
            )
        # the ground truth is in the order of the numbers in the file names, which have equal length
        names = sorted(store.sizes)
        members = {f"{wnid}/{name}": name for wnid, name in zip(wnids, names, strict=True)}
        return Pictures(store, members, n_classes)


@register(
    id="imagenet_lt",
    source="Liu et al., Large-Scale Long-Tailed Recognition in an Open World, CVPR 2019",
    **FACTS,
    label="ImageNet-LT (test)",
    download=False,
    sizes={"val": 10_000, "test": 40_000},
    warning=(
        "the pictures are the balanced validation pictures of ImageNet under another draw: no "
        "class is rare"
    ),
)
class ImagenetLt(Imagenet):
    """The test images of ImageNet-LT: those of ``imagenet``, split with another seed."""

    def __init__(self, *, split_seed: int = 2, **options: Any) -> None:
        super().__init__(split_seed=split_seed, **options)


def unpacked(data_root: Path | None, names: Sequence[str], n_classes: int) -> Pictures | None:
    """Return the images of the first of some folders below data_root that has folders named by
    WordNet ids, or None.
    """
    if data_root is None:
        return None
    for name in names:
        if any((data_root / name).glob("n????????/")):
            store = open_archive(data_root / name)
            return Pictures(store, by_class(store), n_classes)
    return None


def _labels(devkit: Path) -> list[str]:
    """Return the WordNet ids of the validation images in the order of their numbers."""
    members = dict(each_member(devkit, {TRUTH: LIST_LIMIT, META: LIST_LIMIT}))
    try:
        table: Any = scipy.io.loadmat(io.BytesIO(members[META]), squeeze_me=True)["synsets"]
        wnid = {
            int(number): str(name)
            for number, name in zip(table["ILSVRC2012_ID"], table["WNID"], strict=True)
        }
        return [wnid[number] for number in np.array(members[TRUTH].split(), dtype=int)]
    except (MatReadError, ValueError, TypeError, KeyError, IndexError) as error:
        raise DataError(
            f"{devkit} has no valid ground truth and class table ({error}); replace it."
        ) from None
