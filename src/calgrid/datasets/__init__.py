"""Data sets, shift families and out-of-distribution sets, prepared once as memory-mapped uint8 arrays.

A new data set is a file ``datasets/<id>.py``, or a class with ``@register(id=...)`` in the file of its family; this one
is noise::

    import numpy as np

    from calgrid.datasets import Dataset, ImageSplit
    from calgrid.registry import register

    @register(
        source="an example",
        role="dataset",
        label="Noise",
        download=False,
        n_classes=2,
        image_shape=(3, 8, 8),
        mean=(0.5, 0.5, 0.5),
        std=(0.3, 0.3, 0.3),
        sizes={"train": 64, "val": 32, "test": 32},
    )
    class Noise(Dataset):
        def build(self, data_root):
            rng = np.random.RandomState(1)
            return {
                name: ImageSplit(rng.randint(0, 256, (size, 3, 8, 8)).astype(np.uint8), np.arange(size) % 2)
                for name, size in self.registered["sizes"].items()
            }

"""

from calgrid.datasets._manifest import SHIFT_SPLIT, Prepared, Setting, open_prepared
from calgrid.datasets._prepared import prepare
from calgrid.datasets.base import Dataset, ImageSplit, ShiftFamily, ShiftSetting

__all__ = [
    "SHIFT_SPLIT",
    "Dataset",
    "ImageSplit",
    "Prepared",
    "Setting",
    "ShiftFamily",
    "ShiftSetting",
    "open_prepared",
    "prepare",
]
