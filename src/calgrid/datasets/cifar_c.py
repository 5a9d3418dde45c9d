"""CIFAR-10-C and CIFAR-100-C: the test images of CIFAR under 15 corruptions at five severities.

The archive has one array per corruption, of 5 x 10,000 images by ascending severity in the order of
the test split, and the labels. Nothing is unpacked: the arrays are memory-mapped in the archive, or
in the unpacked folder ``CIFAR-10-C`` or ``CIFAR-100-C`` below data_root. The four extra corruptions
for validation are not used.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from calgrid.components.options import Options
from calgrid.components.registry import register
from calgrid.datasets._archives import map_arrays
from calgrid.datasets._shifts import STANDARD_SHIFTS
from calgrid.datasets.base import ImageSplit, ShiftCondition, ShiftFamily
from calgrid.datasets.downloads import unpacked_or_download
from calgrid.errors import DataError

SOURCE = "Hendrycks and Dietterich, Benchmarking Neural Network Robustness, ICLR 2019"
FACTS: Options = {
    "role": "shift",
    "shifts": STANDARD_SHIFTS,
    "severities": (1, 2, 3, 4, 5),
    "image_shape": (3, 32, 32),
    "download": True,
}


class CifarC(ShiftFamily):
    """Base of CIFAR-10-C and CIFAR-100-C, which differ in their registered facts."""

    def build(
        self, data_root: Path | None, base: Mapping[str, ImageSplit]
    ) -> Iterator[ShiftCondition]:
        """Yield the conditions, corruption by corruption, severities ascending; see
        :class:`ShiftFamily`.
        """
        file = self.registered["files"][0]
        archive = unpacked_or_download(file, data_root, file["name"].removesuffix(".tar"))
        shifts, severities = self.registered["shifts"], self.registered["severities"]
        arrays = map_arrays(archive, [*(f"{shift}.npy" for shift in shifts), "labels.npy"])
        labels = base["test"].labels
        count = len(labels)
        if not np.array_equal(arrays["labels.npy"], np.tile(labels, len(severities))):
            raise DataError(
                f"The labels in {archive} differ from those of the test split; replace one of the "
                "two archives."
            )
        for shift in shifts:
            images = arrays[f"{shift}.npy"]
            if images.dtype != np.uint8 or images.shape != (count * len(severities), 32, 32, 3):
                raise DataError(
                    f"'{shift}.npy' in {archive} has the wrong type or shape, {images.dtype} "
                    f"{images.shape}; replace it."
                )
            for number, severity in enumerate(severities):
                part = images[number * count : (number + 1) * count].transpose(0, 3, 1, 2)
                yield ShiftCondition(shift, severity, ImageSplit(part, np.asarray(labels)))


@register(
    id="cifar10_c",
    source=SOURCE,
    **FACTS,
    label="CIFAR-10-C",
    base="cifar10",
    n_classes=10,
    files=(
        {
            "name": "CIFAR-10-C.tar",
            "url": "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
            "size": 2_918_471_680,
            "md5": "56bf5dcef84df0e2308c6dcbcbbd8499",
        },
    ),
)
class Cifar10C(CifarC):
    """Corrupted test images of CIFAR-10, in the order of the clean test split."""


@register(
    id="cifar100_c",
    source=SOURCE,
    **FACTS,
    label="CIFAR-100-C",
    base="cifar100",
    n_classes=100,
    files=(
        {
            "name": "CIFAR-100-C.tar",
            "url": "https://zenodo.org/records/3555552/files/CIFAR-100-C.tar",
            "size": 2_918_473_216,
            "md5": "11f0ed0f1191edbf9fa23466ae6021d3",
        },
    ),
)
class Cifar100C(CifarC):
    """Corrupted test images of CIFAR-100, in the order of the clean test split."""
