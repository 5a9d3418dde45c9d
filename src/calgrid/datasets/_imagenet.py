"""The ImageNet family: test images in folders named by WordNet ids, for pretrained networks.

Rows are in the sorted order of ``wnid/file``, and a class is the index of its id in the sorted ids.
Every image is resized (bilinear) to 256 pixels on its shorter side and centre-cropped to 224 x 224,
for all networks, as in SMART. This is also the preset of torchvision's V1 weights, except for
Swin-B (238 pixels, bicubic), which needs the options ``resize`` and ``interpolation``.

Only ``imagenet_1k`` has a training split. In the others, as in SMART, calibrators are fitted on a
random fifth of the images (``val``) and scored on the others (``test``); the seed is an option. The
draw uses NumPy, SMART's uses torch, so the images differ.
"""

import dataclasses
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from calgrid.components.options import Options
from calgrid.datasets._archives import Archive
from calgrid.datasets._pictures import SUFFIXES, Interpolation
from calgrid.datasets._splits import draw_val
from calgrid.datasets.base import Dataset, ImageSplit
from calgrid.datasets.encoded import Encoded, EncodedImages, Scaling
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
PICTURE = re.compile(r"(?:.*/)?(n\d{8}/[^/.][^/]*)")


@dataclass(frozen=True)
class Pictures:
    """Encoded images with labels int64 ``(N,)``, in the order of rows; ``members`` are their names
    in the store.

    ``wnids`` are the WordNet ids of the classes. ``resize`` (pixels of the shorter side before the
    crop to ``size``) and ``interpolation`` define the resizing. ``kept``: also a few images stay
    encoded.
    """

    store: Archive
    wnids: list[str]
    members: list[str]
    labels: NDArray[np.int64]
    resize: int = RESIZE
    interpolation: Interpolation = "bilinear"
    kept: bool = False
    size: int = SIZE

    @classmethod
    def of(cls, store: Archive, members: Mapping[str, str], n_classes: int) -> "Pictures":
        """Order images, given as ``wnid/file`` -> name in the store.

        Raises
        ------
        DataError : they do not have ``n_classes`` classes.
        """
        names = sorted(members)
        wnids, labels = np.unique([name.split("/")[0] for name in names], return_inverse=True)
        if len(wnids) != n_classes:
            raise DataError(
                f"{store.place} has images of {len(wnids):,} classes instead of {n_classes:,}; "
                "complete it."
            )
        return cls(store, wnids.tolist(), [members[name] for name in names], labels)

    def split(self, rows: NDArray[np.int64], threads: int) -> ImageSplit:
        """Return the images at some rows, which are decoded on access."""
        members = [self.members[row] for row in rows]
        source = Encoded(
            lambda row: self.store.read(members[row]),
            lambda row: f"'{members[row]}' in {self.store.place}",
            sum(map(self.store.sizes.__getitem__, members)),
        )
        shape = (len(rows), 3, self.size, self.size)
        scaling = Scaling(self.size, self.resize, self.interpolation)
        images = EncodedImages(source, shape, scaling, threads, self.kept)
        # behaves like an array
        return ImageSplit(cast(NDArray[np.uint8], images), self.labels[rows], rows)


def by_class(store: Archive, inside: str = "") -> dict[str, str]:
    """Images of a store in folders named by WordNet ids: ``wnid/file`` -> name in the store.

    Parameters
    ----------
    inside : path of their parent folder, such as ``fog/5/``, anywhere in the store; any if empty.

    Raises
    ------
    DataError : two have the same id and file.
    """
    members: dict[str, str] = {}
    for name in store.sizes:
        match = PICTURE.fullmatch(name)
        if match is None or not name.lower().endswith(SUFFIXES):
            continue
        parent = f"/{name[: match.start(1)]}"
        if not parent.endswith(inside):
            continue
        picture = match[1]
        if picture in members:
            raise DataError(
                f"{store.place} has the same image twice, '{members[picture]}' and '{name}'; "
                "remove one."
            )
        members[picture] = name
    return members


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
        raise NotImplementedError(f"{type(self).__name__} must define pictures().")

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return ``val`` and ``test``; see :class:`Dataset`."""
        pictures = dataclasses.replace(
            self.pictures(data_root), resize=self.resize, interpolation=self.interpolation
        )
        rows = draw_fifth(pictures.labels, self.split_seed)
        return {name: pictures.split(chosen, self.threads) for name, chosen in rows.items()}


def draw_fifth(labels: NDArray[np.int64], seed: int) -> dict[str, NDArray[np.int64]]:
    """Rows of ``val``, a random fifth, and of ``test``, both ascending."""
    rows = draw_val(
        labels, {"split": "shuffled", "val_size": len(labels) // FIFTH, "split_seed": seed}
    )
    return {"val": rows["val"], "test": rows["train"]}
