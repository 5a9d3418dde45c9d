"""CIFAR-10-C and CIFAR-100-C: the published corruptions of the CIFAR test images, mapped out of their tar archive.

The archive holds one array a corruption, of 5 x 10,000 images by ascending severity in the order of the test split,
and the labels. Nothing is unpacked: the arrays are mapped into memory where they lie in the archive.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from calgrid.datasets._archives import map_arrays
from calgrid.datasets._download import download
from calgrid.datasets.base import ImageSplit, ShiftFamily, ShiftSetting
from calgrid.errors import DataError


class CifarC(ShiftFamily):
    """Base of both; what differs is registered."""

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftSetting]:
        """Return the settings, corruption by corruption, severities ascending; see :class:`ShiftFamily`."""
        archive = download(self.registered["files"][0], data_root)
        shifts, severities = self.registered["shifts"], self.registered["severities"]
        arrays = map_arrays(archive, [*(f"{shift}.npy" for shift in shifts), "labels.npy"])
        labels = base["test"].labels
        count = len(labels)
        if not np.array_equal(arrays["labels.npy"], np.tile(labels, len(severities))):
            raise DataError(
                f"The labels in {archive} are not those of the test split: replace one of the two archives."
            )
        settings = []
        for shift in shifts:
            images = arrays[f"{shift}.npy"]
            if images.dtype != np.uint8 or images.shape != (count * len(severities), 32, 32, 3):
                raise DataError(
                    f"'{shift}.npy' in {archive} has another form ({images.dtype} {images.shape}): replace it."
                )
            for number, severity in enumerate(severities):
                part = images[number * count : (number + 1) * count].transpose(0, 3, 1, 2)
                settings.append(ShiftSetting(shift, severity, ImageSplit(part, np.asarray(labels))))
        return settings
