"""Data sets published as one archive with encoded images and class lists.

Nothing is unpacked: a first pass through the archive reads the lists, a second one decodes each
image into arrays on disk, so that neither the archive nor the images must fit into memory. Rows are
in the order of the lists or names, not of the archive.
"""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calgrid.components.options import Options
from calgrid.datasets._archives import each_member
from calgrid.datasets.base import Dataset, ImageSplit, draw_val, scratch_array
from calgrid.datasets.downloads import download
from calgrid.datasets.encoded import counted, decode
from calgrid.errors import DataError
from calgrid.parallel import in_threads

#: maximum bytes of an encoded image
LIMIT = 50_000_000
#: names of members of an archive, and labels int64 ``(N,)``, in row order
Listed = tuple[NDArray[np.str_], NDArray[np.int64]]
#: facts of photographs that are normalised by the constants of ImageNet
PHOTOGRAPHS: Options = {
    "role": "dataset",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "duplicates": "count",
    "download": True,
}


def listed(pictures: Sequence[tuple[str, str]], classes: Sequence[str], archive: Path) -> Listed:
    """List images, given as (name of a member, name of its class); labels are positions in
    ``classes``.

    Raises
    ------
    DataError : a class is not in ``classes``.
    """
    number = {name: index for index, name in enumerate(classes)}
    members, labels = [], []
    for member, name in pictures:
        if name not in number:
            raise DataError(
                f"{archive} has images of '{name}', which is not in its list of classes; "
                "replace it."
            )
        members.append(member)
        labels.append(number[name])
    return np.array(members, dtype=str), np.array(labels, dtype=np.int64)


class PictureArchive(Dataset):
    """Base of data sets from an archive of pictures; subclasses define the lists and the size of
    images.

    ``size`` is the side of the images in pixels. ``stretch`` scales images to a square and ignores
    their aspect ratio. With ``val_is_test``, the test images are also the validation split, and all
    training images are for training; else the validation split is drawn from the training images by
    the registered rule.
    """

    size: int
    stretch = False
    val_is_test = False

    @abstractmethod
    def listed(self, archive: Path) -> tuple[Listed, Listed]:
        """Return the published training images and test images."""

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return the splits; see :class:`Dataset`."""
        archive = download(self.registered["files"][0], data_root)
        (names, labels), (tested, test_labels) = self.listed(archive)
        count = len(labels)
        drawn = {"train": np.arange(count)}
        if not self.val_is_test:
            drawn = draw_val(labels, self.drawn_val)
        members = np.concatenate([*(names[rows] for rows in drawn.values()), tested])
        images = decode_members(
            archive,
            members.tolist(),
            (self.size, None, self.stretch),
            scratch_array((len(members), 3, self.size, self.size), self.scratch),
            self.threads,
        )
        splits = {}
        for name, rows in drawn.items():
            own, images = np.split(images, [len(rows)])
            splits[name] = ImageSplit(own, labels[rows], rows)
        # rows of test images continue those of training images
        test = ImageSplit(images, test_labels, count + np.arange(len(test_labels)))
        return {"train": splits["train"], "val": splits.get("val", test), "test": test}


def decode_members(
    place: Path,
    names: Sequence[str],
    scaling: tuple[int, int | None, bool],
    images: NDArray[np.uint8],
    threads: int,
) -> NDArray[np.uint8]:
    """Decode members of an archive or folder into ``images`` (N, 3, H, W), in the order of
    ``names``.

    The archive is read once, in its own order. ``scaling`` are ``size``, ``resize`` and ``stretch``
    of :func:`calgrid.datasets.encoded.decode`.

    Raises
    ------
    DataError : a name occurs twice, or is no member; a member is no image.
    """
    rows = {name: row for row, name in enumerate(names)}
    if len(rows) < len(names):
        raise DataError(f"The lists in {place} contain an image twice; replace it.")
    size, resize, stretch = scaling

    def read(member: tuple[str, bytes]) -> tuple[int, NDArray[np.uint8]]:
        name, content = member
        return rows[name], decode(content, size, resize, f"'{name}' in {place}", stretch)

    pictures = in_threads(read, each_member(place, dict.fromkeys(rows, LIMIT)), threads)
    for row, picture in counted(pictures, len(rows), place.name):
        images[row] = picture
    return images
