"""CIFAR-10.1: new test images for CIFAR-10, drawn from Tiny Images as those of CIFAR-10 were.

Version 6 has 2,000 images, 200 of each class, sorted by class; version 4, that of the paper's main
tables, has 2,021 in other shares. More than 90 % of their images are the same. The MD5 of images
and labels of version 6 are those in the code of other projects, that of the labels of version 4 was
computed from the published file. The images of version 4 have no known checksum: the first download
is trusted and recorded.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from calgrid.components.registry import register
from calgrid.datasets._archives import map_arrays
from calgrid.datasets.base import ImageSplit, ShiftCondition, ShiftFamily
from calgrid.datasets.downloads import download
from calgrid.errors import DataError


@register(
    source="Recht et al., Do CIFAR-10 Classifiers Generalize to CIFAR-10?, 2018, arXiv 1806.00451",
    role="shift",
    label="CIFAR-10.1",
    base="cifar10",
    shifts=("cifar10_1_v6", "cifar10_1_v4"),
    severities=(0,),
    sizes={"shift": 4_021},
    n_classes=10,
    image_shape=(3, 32, 32),
    download=True,
    files=(
        {
            "name": "cifar10.1_v6_data.npy",
            "url": "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/cifar10.1_v6_data.npy",
            "size": 6_144_128,
            "md5": "4fcae82cb1326aec9ed1dc1fc62345b8",
        },
        {
            "name": "cifar10.1_v6_labels.npy",
            "url": "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/cifar10.1_v6_labels.npy",
            "size": 8_128,
            "md5": "09a97fb7c430502fcbd69d95093a3f85",
        },
        {
            "name": "cifar10.1_v4_data.npy",
            "url": "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/cifar10.1_v4_data.npy",
        },
        {
            "name": "cifar10.1_v4_labels.npy",
            "url": "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/cifar10.1_v4_labels.npy",
            "size": 8_212,
            "md5": "6b7b8e6d26b5addd368440d9e0a24ead",
        },
    ),
)
class Cifar101(ShiftFamily):
    """New test images of CIFAR-10 in two versions, in the order of their files."""

    def build(
        self, data_root: Path | None, base: Mapping[str, ImageSplit]
    ) -> Iterator[ShiftCondition]:
        """Yield version 6 and version 4; see :class:`ShiftFamily`."""
        paths = [download(file, data_root) for file in self.registered["files"]]
        for shift, data, truth in zip(
            self.registered["shifts"], paths[::2], paths[1::2], strict=True
        ):
            arrays = map_arrays(data.parent, [data.name, truth.name])
            images, labels = arrays[data.name], arrays[truth.name]
            if images.dtype != np.uint8 or images.shape != (len(labels), 32, 32, 3):
                raise DataError(
                    f"{data} has the wrong type or shape, {images.dtype} {images.shape}, for "
                    f"{len(labels):,} labels; replace it."
                )
            split = ImageSplit(images.transpose(0, 3, 1, 2), labels.astype(np.int64))
            yield ShiftCondition(shift, 0, split)
