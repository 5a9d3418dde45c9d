"""Data sets, shift families and out-of-distribution sets, prepared once as memory-mapped uint8 arrays."""

from calgrid.datasets._base import ImageSplit
from calgrid.datasets._manifest import SHIFT_SPLIT, Prepared, Setting, open_prepared
from calgrid.datasets._prepared import prepare

__all__ = ["SHIFT_SPLIT", "ImageSplit", "Prepared", "Setting", "open_prepared", "prepare"]
