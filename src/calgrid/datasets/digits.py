"""Digits: 1,797 handwritten digits of 8x8 pixels that come with scikit-learn, nothing to download.

The split leaves 12 training images a class. A network that fits them all is over-confident on the rest: ``resnet8``
with cross-entropy under the protocol ``digits`` reaches 91.1 % accuracy at 97.3 % mean confidence (ECE 6.3 %, where
a perfectly calibrated model would score 0.9 % on 1,200 images; means of five seeds). Milder settings leave
little to calibrate: 300 training images at a rate of 0.05 gave 96.6 % accuracy and an ECE of 1.0 % (three seeds).
Grey pictures are repeated to three channels. No two of the pictures are equal.
"""

from pathlib import Path

from calgrid.datasets._digit_bank import digit_bank
from calgrid.datasets._splits import stratified_split
from calgrid.datasets.base import Dataset, ImageSplit, grey_to_rgb
from calgrid.registry import register

SPLIT_SEED = 1


@register(
    source="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI repository, 1998",
    role="dataset",
    label="Digits",
    n_classes=10,
    image_shape=(3, 8, 8),
    mean=(0.305, 0.305, 0.305),
    std=(0.377, 0.377, 0.377),
    sizes={"train": 120, "val": 477, "test": 1_200},
    families=("digits_c", "ood/photos"),
    download=False,
)
class Digits(Dataset):
    """Handwritten digits of 8x8 pixels, few for training and many for testing."""

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return the three splits, drawn once for all runs and stratified by class; see :class:`Dataset`."""
        images, labels = digit_bank()
        images = grey_to_rgb(images)
        splits = stratified_split(labels, self.registered["sizes"], SPLIT_SEED)
        return {name: ImageSplit(images[rows], labels[rows], rows) for name, rows in splits.items()}
