"""CIFAR-10 and CIFAR-100 from their original Python archives.

Images are rows of 3072 bytes, channel by channel. Training rows count through the batches in the order of their
numbers, which is torchvision's order. Validation rows are the first of NumPy's legacy shuffle, not stratified: the
split of focal_calibration (``random_seed=1``), which is the same for all seeds of a run here.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.datasets._archives import read_members, unpickle_arrays
from calgrid.datasets._download import download
from calgrid.datasets._splits import draw_val
from calgrid.datasets.base import Dataset, ImageSplit
from calgrid.errors import DataError

SHAPE = (3, 32, 32)
#: most bytes of a member: 50,000 images with names and labels
LIMIT = 200_000_000


class Cifar(Dataset):
    """Base of both; a data set says which members of its archive hold what."""

    train_members: tuple[str, ...]
    test_member: str
    label_key: str

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return the splits; see :class:`Dataset`."""
        archive = download(self.registered["files"][0], data_root)
        members = read_members(archive, dict.fromkeys((*self.train_members, self.test_member), LIMIT))
        parts = [self._batch(members[name], f"'{name}' in {archive}") for name in self.train_members]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        rule: Mapping[str, Any] = self.registered["drawn_val"]
        if len(labels) <= rule["val_size"]:
            raise DataError(f"{archive} holds only {len(labels)} training images: replace it.")
        rows = draw_val(labels, rule)
        test_images, test_labels = self._batch(members[self.test_member], f"'{self.test_member}' in {archive}")
        return {
            "train": ImageSplit(images[rows["train"]], labels[rows["train"]], rows["train"]),
            "val": ImageSplit(images[rows["val"]], labels[rows["val"]], rows["val"]),
            # rows count on through the test file
            "test": ImageSplit(test_images, test_labels, len(labels) + np.arange(len(test_labels))),
        }

    def _batch(self, content: bytes, where: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        batch = unpickle_arrays(io.BytesIO(content), where)
        images, labels = batch.get("data"), batch.get(self.label_key)
        fits = isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.shape[1:] == (3072,)
        if not fits or not isinstance(labels, list) or len(labels) != len(images):
            raise DataError(f"{where} does not hold uint8 rows of 3072 and as many '{self.label_key}': replace it.")
        return images.reshape(-1, *SHAPE), np.array(labels, dtype=np.int64)
