"""Photos-32: 32x32 colour patches of the two photographs that come with scikit-learn, as an out-of-distribution set.

For networks trained on small colour photographs (CIFAR): pieces of a temple, its sky and trees, and of a flower, none
of which shows a whole object.
"""

from pathlib import Path

import numpy as np

from calgrid.conventions import NO_LABEL
from calgrid.datasets.base import Dataset, ImageSplit
from calgrid.registry import register

PATCH = 32


@register(
    source="sample photographs of scikit-learn: china.jpg and flower.jpg, CC BY",
    role="ood",
    label="Photos-32",
    n_classes=0,
    image_shape=(3, 32, 32),
    sizes={"test": 520},
    download=False,
)
class Photos32(Dataset):
    """Colour patches of 32x32 pixels that tile two photographs of 427x640 pixels."""

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return ``test``: all whole patches, photograph by photograph, row by row; see :class:`Dataset`."""
        from sklearn.datasets import load_sample_images  # noqa: PLC0415  (a second to import, needed here only)

        patches = []
        for photo in load_sample_images().images:
            rows, columns = (length // PATCH for length in photo.shape[:2])
            grid = photo[: rows * PATCH, : columns * PATCH].reshape(rows, PATCH, columns, PATCH, 3)
            patches.append(grid.transpose(0, 2, 4, 1, 3).reshape(-1, 3, PATCH, PATCH))
        images = np.ascontiguousarray(np.concatenate(patches))
        count = len(images)
        return {"test": ImageSplit(images, np.full(count, NO_LABEL, np.int64), np.arange(count, dtype=np.int64))}
