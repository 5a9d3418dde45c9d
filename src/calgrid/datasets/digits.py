"""Digits: 1,797 handwritten digits of 8x8 pixels, included in scikit-learn.

There are 12 training images per class. A network that fits them all is overconfident on the
others: ``resnet8`` with cross-entropy under the protocol ``digits`` reaches 91.1 % accuracy at 97.3
% mean confidence (ECE 6.3 %, where a perfectly calibrated model would score 0.9 % on 1,200 images;
means of five seeds). With 300 training images and a learning rate of 0.05 there is little to
calibrate: 96.6 % accuracy, ECE 1.0 % (three seeds). Grey images get three equal channels. No two
images are equal.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calgrid.components.registry import register
from calgrid.datasets.base import (
    Dataset,
    ImageSplit,
    deal_rows,
    draw_val,
    grey_to_rgb,
    stratified_order,
)

SPLIT_SEED = 1
#: the source counts the set pixels of 4x4 blocks: 0 to 16
SOURCE_MAXIMUM = 16


@register(
    source="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI repository, 1998",
    role="dataset",
    label="Digits",
    n_classes=10,
    image_shape=(3, 8, 8),
    mean=(0.305, 0.305, 0.305),
    std=(0.377, 0.377, 0.377),
    sizes={"train": 120, "val": 477, "test": 1_200},
    drawn_val={"split": "stratified", "val_size": 477, "split_seed": SPLIT_SEED},
    families=("ood/photos",),
    far=("ood/photos",),
    download=False,
)
class Digits(Dataset):
    """Handwritten digits of 8x8 pixels, few for training and many for testing."""

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return the three splits, drawn at once and stratified by class; see :class:`Dataset`.

        A ``val_seed`` draws the validation rows anew from all rows except test rows.
        """
        images, labels = digit_bank()
        images = grey_to_rgb(images)
        splits = deal_rows(stratified_order(labels, SPLIT_SEED), self.registered["sizes"])
        if self.val_seed is not None:
            left = np.sort(np.concatenate([splits["train"], splits["val"]]))
            for name, rows in draw_val(labels[left], self.drawn_val).items():
                splits[name] = left[rows]
        return {name: ImageSplit(images[rows], labels[rows], rows) for name, rows in splits.items()}


def digit_bank() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All digits as 8-bit grey images ``(1797, 8, 8)`` and their labels, in the order of the
    source.
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415  (a slow import)

    source = load_digits()
    images = np.rint(source.images * (255 / SOURCE_MAXIMUM)).astype(np.uint8)
    return images, source.target.astype(np.int64)
