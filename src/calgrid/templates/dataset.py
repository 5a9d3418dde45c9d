"""MyComponent: say here where these images come from."""

from pathlib import Path

import numpy as np

from calgrid.components.registry import register
from calgrid.datasets import Dataset, ImageSplit


@register(
    source="authors, title, year",
    role="dataset",  # "ood": a test split alone; "shift" is for a ShiftFamily
    label="MyComponent",  # its name in tables
    download=False,
    n_classes=2,
    image_shape=(3, 8, 8),
    mean=(0.5, 0.5, 0.5),
    std=(0.3, 0.3, 0.3),
    sizes={"train": 256, "val": 64, "test": 64},
)
class MyComponent(Dataset):
    """Noise, dark in class 0 and bright in class 1."""

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return the splits: uint8 images (N, 3, H, W) and labels (N,) from 0."""
        rng = np.random.default_rng(1)
        splits = {}
        for name, size in self.registered["sizes"].items():
            labels = np.arange(size) % 2
            images = rng.integers(0, 156, (size, 3, 8, 8), dtype=np.uint8)
            images[labels == 1] += 100
            splits[name] = ImageSplit(images, labels)
        return splits
