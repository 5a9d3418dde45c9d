"""Data sets published as one archive with encoded images and class lists.

Nothing is unpacked: a first pass through the archive reads the lists, a second one decodes each
image into arrays on disk, so that neither the archive nor the images must fit into memory. Rows are
in the order of the lists or names, not of the archive.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.datasets._archives import each_member
from calgrid.datasets._pictures import counted, decode
from calgrid.datasets._splits import draw_val
from calgrid.datasets.base import Dataset, ImageSplit, scratch_array
from calgrid.datasets.downloads import download
from calgrid.errors import DataError
from calgrid.parallel import in_threads

#: maximum bytes of an encoded image
LIMIT = 50_000_000
#: facts of photographs that are normalised by the constants of ImageNet
PHOTOGRAPHS: dict[str, Any] = {
    "role": "dataset",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "duplicates": "count",
    "download": True,
}


@dataclass(frozen=True)
class Listed:
    """Images of an archive: names of members and labels int64 ``(N,)``, in row order."""

    names: Sequence[str]
    labels: NDArray[np.int64]

    @classmethod
    def of(
        cls, pictures: Sequence[tuple[str, str]], classes: Sequence[str], archive: Path
    ) -> "Listed":
        """List images, given as (name of a member, name of its class); labels are positions in
        ``classes``.

        Raises DataError: a class is not in ``classes``.
        """
        number = {name: index for index, name in enumerate(classes)}
        if unknown := sorted({name for _, name in pictures} - set(number)):
            raise DataError(
                f"{archive} has images of '{unknown[0]}', which is not in its list of classes: "
                f"replace it."
            )
        labels = np.array([number[name] for _, name in pictures], dtype=np.int64)
        return cls([member for member, _ in pictures], labels)

    def at(self, rows: NDArray[np.int64]) -> "Listed":
        """Return the images at some rows."""
        return Listed([self.names[row] for row in rows], self.labels[rows])


class PictureArchive(Dataset):
    """Base of these data sets; subclasses define the lists and the size of images.

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
        """Return the images that were published for training, and those for testing."""
        raise NotImplementedError(f"{type(self).__name__} must define listed().")

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return the splits; see :class:`Dataset`."""
        archive = download(self.registered["files"][0], data_root)
        train, test = self.listed(archive)
        count = len(train.labels)
        rule = self.registered["drawn_val"]
        drawn = {"train": np.arange(count)} if self.val_is_test else draw_val(train.labels, rule)
        # rows of test images continue those of training images
        rows = {**drawn, "test": count + np.arange(len(test.labels))}
        parts = {**{name: train.at(chosen) for name, chosen in drawn.items()}, "test": test}
        images = self._decode(archive, {name: part.names for name, part in parts.items()})
        splits = {
            name: ImageSplit(images[name], part.labels, rows[name]) for name, part in parts.items()
        }
        return {
            "train": splits["train"],
            "val": splits.get("val", splits["test"]),
            "test": splits["test"],
        }

    def _decode(
        self, archive: Path, names: Mapping[str, Sequence[str]]
    ) -> dict[str, NDArray[np.uint8]]:
        shape = (3, self.size, self.size)
        images = {
            split: scratch_array((len(members), *shape), self.scratch)
            for split, members in names.items()
        }
        places = {
            name: (split, row)
            for split, members in names.items()
            for row, name in enumerate(members)
        }
        if len(places) != sum(map(len, names.values())):
            raise DataError(f"The lists in {archive} contain an image twice: replace it.")
        members = each_member(archive, dict.fromkeys(places, LIMIT))

        def read(member: tuple[str, bytes]) -> tuple[str, NDArray[np.uint8]]:
            name, content = member
            return name, decode(content, self.size, None, f"'{name}' in {archive}", self.stretch)

        for name, picture in counted(
            in_threads(read, members, self.threads), len(places), archive.name
        ):
            split, row = places[name]
            images[split][row] = picture
        return images
