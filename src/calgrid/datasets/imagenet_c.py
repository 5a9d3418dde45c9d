"""ImageNet-C: the test images of ``imagenet`` under 19 corruptions at severity 5, as SMART scores
them.

The published sets have all 50,000 validation images; here each condition has the 40,000 of the
split ``test``, so that no calibrator is scored on images whose clean version it was fitted on. The
published images have 224 x 224 pixels; as in SMART they are scaled and cropped like the clean
images, although their authors only cropped them.

The published archives are downloaded to data_root; the folder ``imagenet_c`` with
``corruption/severity/wnid/file`` or ``category/corruption/severity/wnid/file`` can replace them.
The images of the 19 conditions stay encoded and need as much disk space as the archives; as arrays
they would take 114 GB.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from calgrid.components import registry
from calgrid.components.registry import register
from calgrid.datasets._archives import open_archive
from calgrid.datasets._imagenet import WNID_AND_FILE, Pictures, draw_fifth, in_folders
from calgrid.datasets._shifts import EXTRA_SHIFTS, STANDARD_SHIFTS
from calgrid.datasets.base import ImageSplit, ShiftCondition, ShiftFamily
from calgrid.datasets.downloads import download
from calgrid.errors import DataError

#: folder that replaces the archives
FOLDER = "imagenet_c"


class CorruptedPictures(ShiftFamily):
    """Base of ImageNet-C and Tiny-ImageNet-C: images in ``corruption/severity/wnid/file``."""

    def pictures(self, places: Sequence[Path]) -> Iterator[tuple[str, int, Pictures]]:
        """Yield corruption, severity and images of all conditions, in the registered order.

        Parameters
        ----------
        places : archives or folders, of which one has the images of a condition.

        Raises
        ------
        DataError : none or several have them.
        """
        wanted = list(itertools.product(self.registered["shifts"], self.registered["severities"]))
        folders = "|".join(f"{shift}/{severity}" for shift, severity in wanted)
        pattern = re.compile(rf"(?:.*/)?({folders})/{WNID_AND_FILE}")
        stores = []
        for place in places:
            store = open_archive(place, lambda name: pattern.fullmatch(name) is not None)
            stores.append((store, in_folders(store, pattern)))
        for shift, severity in wanted:
            name = f"{shift}/{severity}"
            sets = [(store, members[name]) for store, members in stores if name in members]
            if len(sets) != 1:
                raise DataError(
                    f"{len(sets)} of {', '.join(map(str, places))} have the images of '{name}': "
                    f"each archive or folder of {self.registered['label']} must occur once."
                )
            yield shift, severity, Pictures(*sets[0], self.registered["n_classes"])


@register(
    source="Hendrycks and Dietterich, Benchmarking Neural Network Robustness, ICLR 2019",
    role="shift",
    label="ImageNet-C",
    base="imagenet",
    shifts=(*STANDARD_SHIFTS, *EXTRA_SHIFTS),
    severities=(5,),
    n_classes=1000,
    image_shape=(3, 224, 224),
    encoded=True,
    download=True,
    files=(
        {
            "name": "noise.tar",
            "url": "https://zenodo.org/records/2235448/files/noise.tar",
            "md5": "e80562d7f6c3f8834afb1ecf27252745",
        },
        {
            "name": "blur.tar",
            "url": "https://zenodo.org/records/2235448/files/blur.tar",
            "md5": "2d8e81fdd8e07fef67b9334fa635e45c",
        },
        {
            "name": "weather.tar",
            "url": "https://zenodo.org/records/2235448/files/weather.tar",
            "md5": "33ffea4db4d93fe4a428c40a6ce0c25d",
        },
        {
            "name": "digital.tar",
            "url": "https://zenodo.org/records/2235448/files/digital.tar",
            "md5": "89157860d7b10d5797849337ca2e5c03",
        },
        {
            "name": "extra.tar",
            "url": "https://zenodo.org/records/2235448/files/extra.tar",
            "md5": "d492dfba5fc162d8ec2c3cd8ee672984",
        },
    ),
)
class ImagenetC(CorruptedPictures):
    """Corrupted test images of ImageNet, in the order of the clean test split."""

    def build(
        self, data_root: Path | None, base: Mapping[str, ImageSplit]
    ) -> Iterator[ShiftCondition]:
        """Yield the conditions in the registered order; see :class:`ShiftFamily`."""
        if data_root is not None and (data_root / FOLDER).is_dir():
            places = [data_root / FOLDER]
        else:
            places = [download(file, data_root) for file in self.registered["files"]]
        seed = registry.describe("dataset", "imagenet").options["split_seed"].default
        for shift, severity, pictures in self.pictures(places):
            rows = draw_fifth(pictures.labels, seed)["test"]
            complete = len(pictures.labels) == sum(map(len, base.values()))
            if not complete or not np.array_equal(pictures.labels[rows], base["test"].labels):
                raise DataError(
                    f"{pictures.store.place} does not have exactly the validation images of "
                    f"ImageNet under '{shift}/{severity}'; complete them."
                )
            yield ShiftCondition(shift, severity, pictures.split(rows, self.threads))
