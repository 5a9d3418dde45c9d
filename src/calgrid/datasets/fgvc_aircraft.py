"""FGVC-Aircraft 2013b: 10,000 photographs of aircraft of 100 variants.

Rows are in the order of the published lists, classes in that of ``variants.txt``, as in torchvision's ``FGVCAircraft``.
The published ``trainval`` images are for training; a tenth of them is drawn for validation, stratified by class, with
the same seed for all runs. The official code of MbLS and FeDLaS validates on the test images
instead and selects its checkpoint on them, so its results are optimistic.

Images differ in size and are scaled once, when they are prepared, to ``size`` x ``size`` pixels, ignoring the aspect
ratio: 256 in the published configuration of MbLS for ResNet-101 on birds (then cropped to 224; that of FeDLaS for
aircraft is not public), 448 for ViT-B/16 at 384 in the code of FeDLaS. The line with the photographer's name at the
bottom of each image is kept, as in that code.
"""

from pathlib import Path

from calgrid.datasets._archives import LIST_LIMIT, read_members
from calgrid.datasets._picture_archive import PHOTOGRAPHS, Listed, StretchedPictures, pairs
from calgrid.registry import register

ROOT = "fgvc-aircraft-2013b/data"
LISTS = ("images_variant_trainval", "images_variant_test")


@register(
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
    """Photographs of aircraft of one hundred variants."""

    def listed(self, archive: Path) -> tuple[Listed, Listed]:
        """Return the ``trainval`` and the test images; see :class:`PictureArchive`."""
        lists = read_members(archive, {f"{ROOT}/{name}.txt": LIST_LIMIT for name in ("variants", *LISTS)})
        variants = [line.strip() for line in lists[f"{ROOT}/variants.txt"].decode("utf-8").splitlines()]
        train, test = (
            Listed.of(
                [(f"{ROOT}/images/{id}.jpg", variant) for id, variant in pairs(lists[f"{ROOT}/{name}.txt"])],
                variants,
                archive,
            )
            for name in LISTS
        )
        return train, test
