"""The ImageNet family: test images in folders named by WordNet ids, for pretrained networks.

Rows are in the sorted order of ``wnid/file``, and a class is the index of its id in the sorted ids.
Every image is resized (bilinear) to 256 pixels on its shorter side and centre-cropped to 224 x 224,
for all networks, as in SMART. This is also the preset of torchvision's V1 weights, except for
Swin-B (238 pixels, bicubic), which needs the options ``resize`` and ``interpolation``.

Only ``imagenet_1k`` has a training split. In the others, as in SMART, calibrators are fitted on a
random fifth of the images (``val``) and scored on the others (``test``); the seed is an option. The
draw uses NumPy, SMART's uses torch, so the images differ.

``imagenet``: the 50,000 validation images of ImageNet-1K must be downloaded by hand. Put the two
published archives below data_root, or the folder ``imagenet/val`` or ``val`` with one folder of
images per WordNet id. Both give the same rows: the class numbers of the devkit's ground truth
differ from the order of the sorted ids and are translated with its ``meta.mat``.

``imagenet_lt`` is the test set of ImageNet-LT. Only the training list of ImageNet-LT is
long-tailed; its test list has these 50,000 balanced images. Evaluating networks trained on ImageNet
on it, as in SMART, repeats the evaluation on ImageNet: there is no long tail, and results differ
from those on ``imagenet`` only by the draw of the calibration images. Results have a warning.

``imagenet_1k``: also the 1,281,167 training images, to train networks. They must be downloaded by
hand. Unpack the archive of the training images, and the archives of the classes in it, into the
folder ``imagenet/train`` or ``train`` below data_root, in one folder per WordNet id. ``test`` are
the 50,000 validation images, from the folder or the archives of ``imagenet``; ``val`` is drawn from
the training images. The images stay encoded: the prepared data have a copy of the image files, 155
GB with the test images, where arrays would take 200 GB.

``imagenet_sketch``: some 50,000 drawings of the 1,000 classes. The documentation gives 50 drawings
per class, but other sources 50,889 in total, so the number is not checked. The archive (7.8 GB) is
downloaded from the copy of its second author to data_root; the folder ``imagenet_sketch`` with one
folder of images per WordNet id can replace it. There is no published checksum: the first download
is trusted and recorded; size and SHA-256 of the archive are in the manifest.
"""

import dataclasses
import io
import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import scipy.io
from numpy.typing import NDArray
from scipy.io.matlab import MatReadError

from calgrid.components.options import Options
from calgrid.components.registry import register
from calgrid.datasets._archives import LIST_LIMIT, Archive, each_member, open_archive
from calgrid.datasets._pictures import SUFFIXES, Interpolation
from calgrid.datasets._splits import draw_val
from calgrid.datasets.base import Dataset, ImageSplit
from calgrid.datasets.downloads import (
    PublishedFile,
    find_local,
    published,
    unpacked_or_download,
)
from calgrid.datasets.encoded import Encoded, EncodedImages, Scaling
from calgrid.errors import DataError
from calgrid.storage.sources import SourceRecord, record

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


#: places of the images, if they are unpacked
FOLDERS = ("imagenet/val", "val")
TRAINING_FOLDERS = ("imagenet/train", "train")
TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
META = "ILSVRC2012_devkit_t12/data/meta.mat"
#: of the training images
ARCHIVE: PublishedFile = {
    "name": "ILSVRC2012_img_train.tar",
    "url": "https://image-net.org",
    "size": 147_897_477_120,
    "md5": "1d675b47d978889d74fa0da5fadfb00e",
}
#: of the validation images
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


@register(
    id="imagenet_1k",
    source="Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015",
    **TRAINED,
    label="ImageNet-1K",
    download=False,
    keep_encoded=True,
    sizes={"train": 1_231_167, "val": 50_000, "test": 50_000},
    drawn_val={"split": "stratified", "val_size": 50_000, "split_seed": 1},
    files=(ARCHIVE, *ARCHIVES),
)
class ImagenetTrained(Imagenet):
    """Photographs of one thousand classes, to train networks and test them on the validation set.

    Parameters as of ``imagenet``.
    """

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return ``train``, ``val`` and ``test``; see :class:`Dataset`."""
        train = unpacked(data_root, TRAINING_FOLDERS, self.registered["n_classes"])
        if train is None:
            raise DataError(
                f"The training images of ImageNet require a registration; unpack "
                f"{published(ARCHIVE)} into the folder {TRAINING_FOLDERS[0]} of "
                f"{data_root or 'a data_root'}, in one folder per WordNet id."
            )
        test = self.pictures(data_root)
        ours, theirs = set(train.wnids), set(test.wnids)
        if ours != theirs:
            raise DataError(
                f"The class '{min(ours - theirs)}' of {train.store.place} is not in "
                f"{test.store.place}, which has '{min(theirs - ours)}' instead; correct the names "
                "of the folders."
            )
        seed = self.split_seed if self.val_seed is None else self.val_seed
        rows = draw_val(train.labels, {**self.drawn_val, "split_seed": seed})
        tested = np.arange(len(test.labels))
        splits = {}
        for name, pictures, chosen in (
            ("train", train, rows["train"]),
            ("val", train, rows["val"]),
            ("test", test, tested),
        ):
            splits[name] = pictures.split(
                chosen, self.threads, SIZE, self.resize, self.interpolation, kept=True
            )
        # rows of test images continue those of training images
        splits["test"] = dataclasses.replace(splits["test"], rows=len(train.labels) + tested)
        return splits


DRAWINGS = "imagenet_sketch"


@register(
    id="imagenet_sketch",
    source=(
        "Wang et al., Learning Robust Global Representations by Penalizing Local Predictive "
        "Power, NeurIPS 2019"
    ),
    **FACTS,
    label="ImageNet-Sketch",
    download=True,
    files=(
        {
            "name": "ImageNet-Sketch.zip",
            "url": "https://huggingface.co/datasets/songweig/imagenet_sketch/resolve/main/data/ImageNet-Sketch.zip",
        },
    ),
)
class ImagenetSketch(Evaluated):
    """Drawings of one thousand classes, a fifth of them for calibration."""

    def pictures(self, data_root: Path | None) -> Pictures:
        """Return all drawings; see :class:`Evaluated`."""
        (file,) = self.registered["files"]
        store = open_archive(unpacked_or_download(file, data_root, DRAWINGS))
        pictures = Pictures(store, by_class(store), self.registered["n_classes"])
        source: SourceRecord = {"path": DRAWINGS, "files": len(pictures.members)}
        if not store.place.is_dir():
            source = record(store.place, file["name"])
        self.facts = {"sources": [source]}
        return pictures
