"""SVHN, test split: 26,032 house numbers of 32x32 pixels, as an out-of-distribution set for CIFAR.

From the publisher's MATLAB file (images in a 4-dimensional array, height x width x channel x image). No image is left
out; the labels play no part.
"""

from pathlib import Path

import numpy as np
import scipy.io

from calgrid.conventions import NO_LABEL
from calgrid.datasets._base import Dataset, ImageSplit
from calgrid.datasets._download import obtain
from calgrid.errors import DataError
from calgrid.registry import register


@register(
    source="Netzer et al., Reading Digits in Natural Images with Unsupervised Feature Learning, NIPS workshop 2011",
    role="ood",
    label="SVHN",
    n_classes=0,
    image_shape=(3, 32, 32),
    sizes={"test": 26_032},
    download=True,
    files=(
        {
            "name": "test_32x32.mat",
            "url": "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
            "size": 64_275_384,
            "md5": "eb5a983be6a315427106f1b164d9cef3",
            "insecure": True,
        },
    ),
)
class Svhn(Dataset):
    """Photographs of house numbers, cut to one digit."""

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return ``test``; see :class:`Dataset`."""
        path = obtain(self.registered["files"][0], data_root)
        try:
            images = scipy.io.loadmat(path, variable_names=["X"])["X"]
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise DataError(f"{path} holds no array 'X' ({error}): replace it.") from None
        if images.dtype != np.uint8 or images.ndim != 4:
            raise DataError(
                f"'X' in {path} must be uint8 with 4 axes, it is {images.dtype} {images.shape}: replace it."
            )
        labels = np.full(images.shape[3], NO_LABEL, dtype=np.int64)
        return {"test": ImageSplit(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels)}
