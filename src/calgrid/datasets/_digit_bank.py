"""The 1,797 handwritten digits of scikit-learn as 8-bit grey images."""

import numpy as np
from numpy.typing import NDArray

#: the source counts inked pixels of a 4x4 block: 0 to 16
SOURCE_MAXIMUM = 16


def digit_bank() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images ``(1797, 8, 8)`` and their labels, in the order of the source; no two of the images are equal."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  (a second to import, needed here only)

    source = load_digits()
    return np.rint(source.images * (255 / SOURCE_MAXIMUM)).astype(np.uint8), source.target.astype(np.int64)
