"""CUB-200-2011, 11,788 photographs of birds, and FGVC-Aircraft 2013b, 10,000 photographs of
aircraft.

A tenth of the training images is drawn for validation, stratified by class, with the same seed for
all runs. The official code of MbLS and FeDLaS validates on the test images instead and selects its
checkpoint on them, so its results are optimistic.

Images differ in size and are scaled once, when they are prepared, to ``size`` x ``size`` pixels,
ignoring the aspect ratio: 256 in the published configuration of MbLS for ResNet-101 on birds (then
cropped to 224; that of FeDLaS for aircraft is not public), 448 for ViT-B/16 at 384 in the code of
FeDLaS. Grey images get three equal channels.
"""

from collections.abc import Iterator
from pathlib import Path

from calgrid.components.registry import register
from calgrid.datasets._archives import LIST_LIMIT, each_member
from calgrid.datasets._picture_archive import PHOTOGRAPHS, Listed, PictureArchive, listed
from calgrid.errors import DataError

BIRDS, PLANES = "CUB_200_2011", "fgvc-aircraft-2013b/data"
BIRD_LISTS = ("classes", "images", "image_class_labels", "train_test_split")
PLANE_LISTS = ("images_variant_trainval", "images_variant_test")


class StretchedPictures(PictureArchive):
    """Images of any size, scaled to a square; the aspect ratio is ignored."""

    stretch = True

    def __init__(self, *, size: int = 256) -> None:
        self.size = size


@register(
    id="cub200",
    source=(
        "Wah et al., The Caltech-UCSD Birds-200-2011 Dataset, technical report CNS-TR-2011-001, "
        "2011"
    ),
    **PHOTOGRAPHS,
    label="CUB-200-2011",
    n_classes=200,
    image_shape=(3, 256, 256),
    sizes={"train": 5_395, "val": 599, "test": 5_794},
    drawn_val={"split": "stratified", "val_size": 599, "split_seed": 1},
    files=(
        {
            "name": "CUB_200_2011.tgz",
            "url": "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            "size": 1_150_585_339,
            "md5": "97eceeb196236b17998738112f37df78",
        },
    ),
    limits={"size": "[1, 4096]"},
)
class Cub200(StretchedPictures):
    """Photographs of two hundred species of birds, in the order of the image ids."""

    def listed(self, archive: Path) -> tuple[Listed, Listed]:
        """Return the training and the test images; see :class:`PictureArchive`."""
        lists = dict(
            each_member(archive, {f"{BIRDS}/{name}.txt": LIST_LIMIT for name in BIRD_LISTS})
        )
        classes, images, labels, parts = (
            dict(_pairs(lists[f"{BIRDS}/{name}.txt"])) for name in BIRD_LISTS
        )
        ids = sorted(images, key=int)
        if set(ids) != set(labels) or set(ids) != set(parts):
            raise DataError(f"The lists in {archive} name different images; replace it.")
        train: list[tuple[str, str]] = []
        test: list[tuple[str, str]] = []
        for id in ids:
            part = train if parts[id] == "1" else test
            part.append((f"{BIRDS}/images/{images[id]}", labels[id]))
        names = sorted(classes, key=int)
        return listed(train, names, archive), listed(test, names, archive)


@register(
    id="fgvc_aircraft",
    source="Maji et al., Fine-Grained Visual Classification of Aircraft, arXiv 1306.5151, 2013",
    **PHOTOGRAPHS,
    label="FGVC-Aircraft",
    n_classes=100,
    image_shape=(3, 256, 256),
    sizes={"train": 6_001, "val": 666, "test": 3_333},
    drawn_val={"split": "stratified", "val_size": 666, "split_seed": 1},
    files=(
        {
            "name": "fgvc-aircraft-2013b.tar.gz",
            "url": "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",
            "size": 2_753_340_328,
            "md5": "d4acdd33327262359767eeaa97a4f732",
        },
    ),
    limits={"size": "[1, 4096]"},
)
class FgvcAircraft(StretchedPictures):
    """Photographs of aircraft of one hundred variants, in the order of the lists, as torchvision's
    ``FGVCAircraft``.

    The published ``trainval`` images are for training. The line with the photographer's name at the
    bottom of each image is kept, as in the code of FeDLaS.
    """

    def listed(self, archive: Path) -> tuple[Listed, Listed]:
        """Return the ``trainval`` and the test images; see :class:`PictureArchive`."""
        names = [f"{PLANES}/{name}.txt" for name in ("variants", *PLANE_LISTS)]
        lists = dict(each_member(archive, dict.fromkeys(names, LIST_LIMIT)))
        variants = lists[f"{PLANES}/variants.txt"].decode("utf-8").splitlines()
        names = [line.strip() for line in variants]
        parts = []
        for name in PLANE_LISTS:
            pairs = _pairs(lists[f"{PLANES}/{name}.txt"])
            pictures = [(f"{PLANES}/images/{id}.jpg", variant) for id, variant in pairs]
            parts.append(listed(pictures, names, archive))
        train, test = parts
        return train, test


def _pairs(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield the lines of a list, each split at its first space."""
    for line in content.decode("utf-8").splitlines():
        if line.strip():
            first, _, rest = line.strip().partition(" ")
            yield first, rest.strip()
