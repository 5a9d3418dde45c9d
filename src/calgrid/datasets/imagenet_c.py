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
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from calgrid.components import registry
from calgrid.components.registry import register
from calgrid.datasets._archives import Archive, open_archive
from calgrid.datasets._imagenet import Pictures, by_class, draw_fifth
from calgrid.datasets._shifts import EXTRA_SHIFTS, STANDARD_SHIFTS
from calgrid.datasets.base import ImageSplit, ShiftCondition, ShiftFamily
from calgrid.datasets.downloads import download
from calgrid.errors import DataError

FOLDER = "imagenet_c"


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
class ImagenetC(ShiftFamily):
    """Corrupted test images of ImageNet, in the order of the clean test split."""

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftCondition]:
        """Return the conditions in the registered order; see :class:`ShiftFamily`."""
        wanted = list(itertools.product(self.registered["shifts"], self.registered["severities"]))
        folder = None if data_root is None else data_root / FOLDER
        if folder is not None and not folder.is_dir():
            folder = None
        archives = self._archives(data_root, wanted) if folder is None else []
        conditions: list[ShiftCondition] = []
        for shift, severity in wanted:
            if folder is None:
                stores = _in_archives(archives, shift, severity)
            else:
                stores = _in_folder(folder, shift, severity)
            if len(stores) != 1:
                raise DataError(
                    f"{folder or data_root} has the images of '{shift}/{severity}' in "
                    f"{len(stores)} places: each archive or folder of ImageNet-C must occur once."
                )
            ((store, members),) = stores
            split = self._split(store, members, f"'{shift}/{severity}'", base)
            conditions.append(ShiftCondition(shift, severity, split))
        return conditions

    def _split(
        self,
        store: Archive,
        members: Mapping[str, str],
        name: str,
        base: Mapping[str, ImageSplit],
    ) -> ImageSplit:
        """The test images under one corruption at one severity."""
        pictures = Pictures.of(store, members, self.registered["n_classes"])
        seed = registry.describe("dataset", "imagenet").options["split_seed"].default
        rows = draw_fifth(pictures.labels, seed)["test"]
        complete = len(members) == sum(map(len, base.values()))
        if not complete or not np.array_equal(pictures.labels[rows], base["test"].labels):
            raise DataError(
                f"{store.place} does not have exactly the validation images of ImageNet under "
                f"{name}; complete them."
            )
        return pictures.split(rows, self.threads)

    def _archives(self, data_root: Path | None, wanted: list[tuple[str, int]]) -> list[Archive]:
        """The published archives, restricted to the given conditions."""
        paths = [download(file, data_root) for file in self.registered["files"]]
        folders = "|".join(f"{shift}/{severity}" for shift, severity in wanted)
        pattern = re.compile(rf"(?:.*/)?(?:{folders})/.*")
        return [open_archive(path, lambda name: pattern.match(name) is not None) for path in paths]


#: stores with the images of a condition, and their ``wnid/file`` -> name in the store
Stores = list[tuple[Archive, Mapping[str, str]]]


def _in_folder(folder: Path, shift: str, severity: int) -> Stores:
    stores: Stores = []
    for place in (folder / shift / str(severity), *sorted(folder.glob(f"*/{shift}/{severity}"))):
        if place.is_dir():
            store = open_archive(place)
            stores.append((store, by_class(store)))
    return stores


def _in_archives(archives: list[Archive], shift: str, severity: int) -> Stores:
    stores: Stores = []
    for archive in archives:
        members = by_class(archive, f"/{shift}/{severity}/")
        if members:
            stores.append((archive, members))
    return stores
