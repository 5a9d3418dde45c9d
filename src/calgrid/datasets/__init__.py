"""Data sets, shift families and out-of-distribution sets, prepared once as memory-mapped uint8
arrays.

``calgrid new dataset my_dataset`` writes a template, ``datasets/my_dataset.py``, and its test. Data
sets that differ only in numbers may share a file, each as a class with ``@register(id=...)``.
"""

from calgrid.datasets.base import Dataset, ImageSplit, ShiftCondition, ShiftFamily
from calgrid.datasets.preparation import prepare
from calgrid.datasets.prepared import SHIFT_SPLIT, Condition, Prepared, open_prepared

__all__ = [
    "SHIFT_SPLIT",
    "Condition",
    "Dataset",
    "ImageSplit",
    "Prepared",
    "ShiftCondition",
    "ShiftFamily",
    "open_prepared",
    "prepare",
]
