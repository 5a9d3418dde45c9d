"""ImageNet-V2: three new test sets for ImageNet of 10,000 photographs each.

They differ in the share of annotators who chose the class: as often as in ImageNet
(``matched_frequency``), at least 0.7 (``threshold07``), and the most agreed (``top_images``).
Images are scaled and cropped like those of ImageNet. The archives (1.3 GB each) are downloaded to
data_root, or replaced by their unpacked folders ``imagenetv2-...-format-val``. They have folders
"0" to "999", whose numbers are the classes; rows are in the order of class and file name. There is
no published checksum: the first download is trusted and recorded.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from calgrid.components.registry import register
from calgrid.datasets._archives import list_members
from calgrid.datasets._imagenet import RESIZE, SIZE
from calgrid.datasets._picture_archive import decode_members
from calgrid.datasets.base import ImageSplit, ShiftCondition, ShiftFamily, scratch_array
from calgrid.datasets.downloads import unpacked_or_download
from calgrid.datasets.encoded import SUFFIXES
from calgrid.errors import DataError

#: images of each class
PER_CLASS = 10
#: number of the class and file; hidden files are left out
NUMBERED = re.compile(r"(?:.*/)?(\d+)/([^/.][^/]*)")


@register(
    source="Recht et al., Do ImageNet Classifiers Generalize to ImageNet?, ICML 2019",
    role="shift",
    label="ImageNet-V2",
    base="imagenet",
    shifts=("matched_frequency", "threshold07", "top_images"),
    severities=(0,),
    sizes={"shift": 30_000},
    n_classes=1000,
    image_shape=(3, 224, 224),
    download=True,
    files=(
        {
            "name": "imagenetv2-matched-frequency.tar.gz",
            "url": "https://huggingface.co/datasets/vaishaal/ImageNetV2/resolve/main/imagenetv2-matched-frequency.tar.gz",
        },
        {
            "name": "imagenetv2-threshold0.7.tar.gz",
            "url": "https://huggingface.co/datasets/vaishaal/ImageNetV2/resolve/main/imagenetv2-threshold0.7.tar.gz",
        },
        {
            "name": "imagenetv2-top-images.tar.gz",
            "url": "https://huggingface.co/datasets/vaishaal/ImageNetV2/resolve/main/imagenetv2-top-images.tar.gz",
        },
    ),
)
class ImagenetV2(ShiftFamily):
    """New test images of ImageNet, in three selections."""

    def build(
        self, data_root: Path | None, base: Mapping[str, ImageSplit]
    ) -> Iterator[ShiftCondition]:
        """Yield the three sets, each in the order of its archive; see :class:`ShiftFamily`."""
        n_classes = self.registered["n_classes"]
        for shift, file in zip(self.registered["shifts"], self.registered["files"], strict=True):
            unpacked = f"{file['name'].removesuffix('.tar.gz')}-format-val"
            place = unpacked_or_download(file, data_root, unpacked)
            pictures = []
            for name in list_members(place):
                match = NUMBERED.fullmatch(name)
                if match and name.lower().endswith(SUFFIXES):
                    pictures.append((int(match[1]), match[2], name))
            pictures.sort()
            labels = np.array([label for label, _, _ in pictures], dtype=np.int64)
            if not np.array_equal(labels, np.repeat(np.arange(n_classes), PER_CLASS)):
                raise DataError(
                    f"{place} does not have {PER_CLASS} images of each of {n_classes:,} classes; "
                    "complete or replace it."
                )
            images = scratch_array((len(labels), 3, SIZE, SIZE), self.scratch)
            names = [name for _, _, name in pictures]
            decode_members(place, names, (SIZE, RESIZE, False), images, self.threads)
            yield ShiftCondition(shift, 0, ImageSplit(images, labels))
