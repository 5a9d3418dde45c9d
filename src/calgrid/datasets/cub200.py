"""CUB-200-2011: 11,788 photographs of birds of 200 species.

Rows are in the order of the image ids. A tenth of the training images is drawn for validation, stratified by class,
with the same seed for all runs. The official code of MbLS and FeDLaS
validates on the test images instead and selects its checkpoint on them, so its results are optimistic.

Images differ in size and are scaled once, when they are prepared, to ``size`` x ``size`` pixels, ignoring the aspect
ratio: 256 in the published configuration of MbLS for ResNet-101 (then cropped to 224), 448 for ViT-B/16 at 384 in the
code of FeDLaS. Grey images get three equal channels.
"""

from pathlib import Path

from calgrid.datasets._archives import LIST_LIMIT, read_members
from calgrid.datasets._picture_archive import PHOTOGRAPHS, Listed, StretchedPictures, pairs
from calgrid.errors import DataError
from calgrid.registry import register

ROOT = "CUB_200_2011"
LISTS = ("classes", "images", "image_class_labels", "train_test_split")


@register(
    source="Wah et al., The Caltech-UCSD Birds-200-2011 Dataset, technical report CNS-TR-2011-001, 2011",
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
    """Photographs of two hundred species of birds."""

    def listed(self, archive: Path) -> tuple[Listed, Listed]:
        """Return the training and the test images; see :class:`PictureArchive`."""
        lists = read_members(archive, {f"{ROOT}/{name}.txt": LIST_LIMIT for name in LISTS})
        classes, images, labels, parts = (dict(pairs(lists[f"{ROOT}/{name}.txt"])) for name in LISTS)
        ids = sorted(images, key=int)
        if set(ids) != set(labels) or set(ids) != set(parts):
            raise DataError(f"The lists in {archive} name different images: replace it.")
        known = sorted(classes, key=int)
        train, test = (
            Listed.of([(f"{ROOT}/images/{images[id]}", labels[id]) for id in ids if parts[id] == part], known, archive)
            for part in ("1", "0")
        )
        return train, test
