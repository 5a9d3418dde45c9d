"""Photos: 8x8 patches of the two photographs that come with scikit-learn, as an out-of-distribution set.

A ``resnet8`` trained on ``digits`` answers them with a mean largest probability of 71 % (62 to 82 % over five seeds),
and answers the test digits with 97 %.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calgrid.conventions import NO_LABEL
from calgrid.datasets.base import Dataset, ImageSplit, grey_to_rgb
from calgrid.registry import register

PATCH = 8
#: the photographs are shrunk by this factor, so that a patch shows structure rather than one smooth surface
SHRINK = 2
#: ITU-R BT.601 weights of red, green and blue in the luma of a picture
LUMA = (0.299, 0.587, 0.114)


@register(
    source="sample photographs of scikit-learn: china.jpg and flower.jpg, CC BY",
    role="ood",
    label="Photos",
    n_classes=0,
    image_shape=(3, 8, 8),
    sizes={"test": 900},
    download=False,
)
class Photos(Dataset):
    """Grey 8x8 patches of two photographs: a temple and a flower, no digits."""

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return ``test``: the non-overlapping patches of highest contrast; see :class:`Dataset`."""
        from sklearn.datasets import load_sample_images  # noqa: PLC0415  (a second to import, needed here only)

        patches = np.concatenate([_patches(_shrink(photo @ LUMA)) for photo in load_sample_images().images])
        # the smoother half shows sky and blurred ground
        by_contrast = np.argsort(-patches.std(axis=(1, 2)), kind="stable")
        rows = np.sort(by_contrast[: self.registered["sizes"]["test"]])
        grey = np.rint(patches[rows]).astype(np.uint8)
        labels = np.full(len(rows), NO_LABEL, dtype=np.int64)
        return {"test": ImageSplit(grey_to_rgb(grey), labels, rows.astype(np.int64))}


def _shrink(photo: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average blocks of SHRINK x SHRINK pixels of a grey photograph ``(H, W)``; a remainder is cut off."""
    height, width = (length // SHRINK for length in photo.shape)
    blocks = photo[: height * SHRINK, : width * SHRINK].reshape(height, SHRINK, width, SHRINK)
    return blocks.mean(axis=(1, 3))


def _patches(photo: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cut a grey photograph ``(H, W)`` into a grid of patches ``(N, 8, 8)``; a remainder is cut off."""
    rows, columns = (length // PATCH for length in photo.shape)
    grid = photo[: rows * PATCH, : columns * PATCH].reshape(rows, PATCH, columns, PATCH)
    return grid.transpose(0, 2, 1, 3).reshape(-1, PATCH, PATCH)
