"""Tiny-ImageNet-C: the published validation images of Tiny-ImageNet, our test split, under 15
corruptions at five severities, and under four extra ones.

The archives are downloaded to data_root, or replaced by their unpacked folders ``Tiny-ImageNet-C``
and ``Tiny-ImageNet-C-extra``. They have ``corruption/severity/wnid/file``; rows of a condition are
in the sorted order of ``wnid/file``. It is reported that equal file names are other images than in
Tiny-ImageNet, so the rows are not those of the clean test split, and only the number of images of
each class is compared. The MD5 are those in the code of torch-uncertainty.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from calgrid.components.options import Options
from calgrid.components.registry import register
from calgrid.datasets._shifts import EXTRA_SHIFTS, STANDARD_SHIFTS
from calgrid.datasets.base import ImageSplit, ShiftCondition
from calgrid.datasets.downloads import unpacked_or_download
from calgrid.datasets.imagenet_c import CorruptedPictures
from calgrid.errors import DataError

FACTS: Options = {
    "source": "Hendrycks and Dietterich, Benchmarking Neural Network Robustness, ICLR 2019",
    "role": "shift",
    "base": "tiny_imagenet",
    "severities": (1, 2, 3, 4, 5),
    "n_classes": 200,
    "image_shape": (3, 64, 64),
    "encoded": True,
    "download": True,
}


class TinyImagenetCorrupted(CorruptedPictures):
    """Base of both parts of Tiny-ImageNet-C, which differ in their registered facts."""

    def build(
        self, data_root: Path | None, base: Mapping[str, ImageSplit]
    ) -> Iterator[ShiftCondition]:
        """Yield the conditions, corruption by corruption, severities ascending; see
        :class:`ShiftFamily`.
        """
        (file,) = self.registered["files"]
        place = unpacked_or_download(file, data_root, file["name"].removesuffix(".tar"))
        counts = np.bincount(base["test"].labels, minlength=self.registered["n_classes"])
        for shift, severity, pictures in self.pictures([place]):
            if not np.array_equal(np.bincount(pictures.labels), counts):
                raise DataError(
                    f"{place} does not have as many images of each class as the test split "
                    f"under '{shift}/{severity}'; replace it."
                )
            rows = np.arange(len(pictures.labels))
            split = pictures.split(rows, self.threads, size=64, resize=64)
            yield ShiftCondition(shift, severity, split)


@register(
    id="tiny_imagenet_c",
    **FACTS,
    label="Tiny-ImageNet-C",
    shifts=STANDARD_SHIFTS,
    files=(
        {
            "name": "Tiny-ImageNet-C.tar",
            "url": "https://zenodo.org/records/8206060/files/Tiny-ImageNet-C.tar",
            "size": 1_794_775_040,
            "md5": "f9c9a9dbdc11469f0b850190f7ad8be1",
        },
    ),
)
class TinyImagenetC(TinyImagenetCorrupted):
    """Tiny-ImageNet under the fifteen corruptions of means."""


@register(
    id="tiny_imagenet_c_extra",
    **FACTS,
    label="Tiny-ImageNet-C (extra)",
    shifts=EXTRA_SHIFTS,
    files=(
        {
            "name": "Tiny-ImageNet-C-extra.tar",
            "url": "https://zenodo.org/records/8206060/files/Tiny-ImageNet-C-extra.tar",
            "md5": "0db0588d243cf403ef93449ec52b70eb",
        },
    ),
)
class TinyImagenetCExtra(TinyImagenetCorrupted):
    """Tiny-ImageNet under the four corruptions for validation."""
