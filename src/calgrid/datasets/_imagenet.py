"""The ImageNet family: test images in folders named by WordNet ids, for pretrained networks.

Rows are in the sorted order of ``wnid/file``, and a class is the index of its id in the sorted ids.
Every image is resized (bilinear) to 256 pixels on its shorter side and centre-cropped to 224 x 224,
for all networks, as in SMART. This is also the preset of torchvision's V1 weights, except for
Swin-B (238 pixels, bicubic), which needs the options ``resize`` and ``interpolation``.

Only ``imagenet_1k`` has a training split. In the others, as in SMART, calibrators are fitted on a
random fifth of the images (``val``) and scored on the others (``test``); the seed is an option. The
draw uses NumPy, SMART's uses torch, so the images differ.
"""

import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from calgrid.components.options import Options
from calgrid.datasets._archives import Archive
from calgrid.datasets.base import Dataset, ImageSplit, draw_val
from calgrid.datasets.encoded import SUFFIXES, Encoded, EncodedImages, Interpolation, Scaling
from calgrid.errors import DataError

#: pixels of a side, and of the shorter side before the crop
SIZE = 224
RESIZE = 256
#: one in this number of images is for fitting calibrators
FIFTH = 5
#: facts registered for every data set of the family that has training images
TRAINED: Options = {
    "role": "dataset",
    "n_classes": 1000,
    "image_shape": (3, 224, 224),
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "duplicates": "count",
    "encoded": True,
    "limits": {"split_seed": "[0, 4294967295]", "resize": "[1, 4096]"},
}
#: facts of every other one
FACTS: Options = {**TRAINED, "evaluation_only": True}
#: last two parts of a path, WordNet id and file; hidden files are left out
WNID_AND_FILE = r"(n\d{8}/[^/.][^/]*)"
PICTURE = re.compile(rf"(?:.*/)?(){WNID_AND_FILE}")


class Pictures:
    """Encoded images in the order of rows.

    Parameters
    ----------
    store : the archive or folder that has them.
    members : ``wnid/file`` -> name in the store.
    n_classes : number of their classes.

    Attributes
    ----------
    wnids : WordNet ids of the classes.
    members : names in the store.
    labels : int64 ``(N,)``.

    Raises
    ------
    DataError : they do not have ``n_classes`` classes.
    """

    def __init__(self, store: Archive, members: Mapping[str, str], n_classes: int) -> None:
        names = sorted(members)
        self.store, self.members = store, [members[name] for name in names]
        self.wnids, self.labels = np.unique(
            [name.split("/")[0] for name in names], return_inverse=True
        )
        if len(self.wnids) != n_classes:
            raise DataError(
                f"{store.place} has images of {len(self.wnids):,} classes instead of "
                f"{n_classes:,}; complete it."
            )

    def split(
        self,
        rows: NDArray[np.int64],
        threads: int,
        size: int = SIZE,
        resize: int = RESIZE,
        interpolation: Interpolation = "bilinear",
        kept: bool = False,
    ) -> ImageSplit:
        """Return the images at some rows, which are decoded on access.

        Parameters
        ----------
        resize, interpolation, size : pixels of the shorter side, how it is scaled, and pixels of
            the central square.
        kept : also a few images stay encoded.
        """
        members = [self.members[row] for row in rows]
        source = Encoded(
            lambda row: self.store.read(members[row]),
            lambda row: f"'{members[row]}' in {self.store.place}",
            sum(map(self.store.sizes.__getitem__, members)),
        )
        shape = (len(rows), 3, size, size)
        images = EncodedImages(source, shape, Scaling(size, resize, interpolation), threads, kept)
        # behaves like an array
        return ImageSplit(cast(NDArray[np.uint8], images), self.labels[rows], rows)


def by_class(store: Archive) -> dict[str, str]:
    """Images of a store in folders named by WordNet ids: ``wnid/file`` -> name in the store.

    Raises
    ------
    DataError : two have the same id and file.
    """
    return in_folders(store, PICTURE)[""]


def in_folders(store: Archive, pattern: re.Pattern[str]) -> dict[str, dict[str, str]]:
    """Images of a store: first group of the pattern -> ``wnid/file``, the second group -> name.

    Raises
    ------
    DataError : both groups of two names are the same.
    """
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for name in store.sizes:
        match = pattern.fullmatch(name)
        if match is None or not name.lower().endswith(SUFFIXES):
            continue
        members, picture = found[match[1]], match[2]
        if picture in members:
            raise DataError(
                f"{store.place} has the same image twice, '{members[picture]}' and '{name}'; "
                "remove one."
            )
        members[picture] = name
    return found


class Evaluated(Dataset):
    """Base of the data sets of the family: validation and test images drawn from one set.

    Parameters
    ----------
    split_seed : seed of the draw of validation images.
    resize : pixels of the shorter side before the crop to 224, at least 224.
    interpolation : interpolation of the resizing.
    """

    def __init__(
        self,
        *,
        split_seed: int = 1,
        resize: int = RESIZE,
        interpolation: Literal["bilinear", "bicubic"] = "bilinear",
    ) -> None:
        self.split_seed, self.resize, self.interpolation = split_seed, resize, interpolation

    @abstractmethod
    def pictures(self, data_root: Path | None) -> Pictures:
        """Return all images in order."""

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return ``val`` and ``test``; see :class:`Dataset`."""
        pictures = self.pictures(data_root)
        rows = draw_fifth(pictures.labels, self.split_seed)
        return {
            name: pictures.split(chosen, self.threads, SIZE, self.resize, self.interpolation)
            for name, chosen in rows.items()
        }


def draw_fifth(labels: NDArray[np.int64], seed: int) -> dict[str, NDArray[np.int64]]:
    """Rows of ``val``, a random fifth, and of ``test``, both ascending."""
    rows = draw_val(
        labels, {"split": "shuffled", "val_size": len(labels) // FIFTH, "split_seed": seed}
    )
    return {"val": rows["val"], "test": rows["train"]}
