"""SVHN: 99,289 house numbers of 32x32 pixels, cropped to one digit; ``ood/svhn`` is its test split.

From the publisher's MATLAB files (images in a 4-dimensional array, height x width x channel x
image; the label 10 means the digit 0). The 531,131 easier images of ``extra_32x32.mat`` are not
used. A tenth of the training rows is drawn for validation as for CIFAR: not stratified, with the
same seed for all runs. This split is our choice, because the published methods use SVHN for testing
only. Images are normalised by the constants of CIFAR-10, as the official code of focal_calibration
does.
"""

from pathlib import Path

import numpy as np
import scipy.io
from scipy.io.matlab import MatReadError

from calgrid.components.registry import register
from calgrid.datasets.base import Dataset, ImageSplit, Labelled, split_published
from calgrid.datasets.downloads import download
from calgrid.errors import DataError

#: label of the digit 0 in the files
ZERO = 10


@register(
    source=(
        "Netzer et al., Reading Digits in Natural Images with Unsupervised Feature Learning, NIPS "
        "workshop 2011"
    ),
    role="dataset",
    label="SVHN",
    n_classes=10,
    image_shape=(3, 32, 32),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    sizes={"train": 65_932, "val": 7_325, "test": 26_032},
    drawn_val={"split": "shuffled", "val_size": 7_325, "split_seed": 1},
    duplicates="count",
    families=("ood/cifar10", "ood/cifar100"),
    download=True,
    files=(
        {
            "name": "train_32x32.mat",
            "url": "https://ufldl.stanford.edu/housenumbers/train_32x32.mat",
            "size": 182_040_794,
            "md5": "e26dedcc434d2e4c54c9b2d4a06d8373",
        },
        {
            "name": "test_32x32.mat",
            "url": "https://ufldl.stanford.edu/housenumbers/test_32x32.mat",
            "size": 64_275_384,
            "md5": "eb5a983be6a315427106f1b164d9cef3",
        },
    ),
)
class Svhn(Dataset):
    """Photographs of house numbers, cropped to one digit."""

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return the splits; see :class:`Dataset`."""
        paths = [download(file, data_root) for file in self.registered["files"]]
        train, test = map(_read, paths)
        return split_published(train, test, self.drawn_val, paths[0])


def _read(path: Path) -> Labelled:
    """Return a view of the images as ``(N, 3, H, W)``, and their labels 0 to 9."""
    try:
        content = scipy.io.loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"]
    except (MatReadError, ValueError, TypeError, KeyError, OSError) as error:
        raise DataError(f"{path} has no arrays 'X' and 'y' ({error}); replace it.") from None
    if images.dtype != np.uint8 or images.ndim != 4:
        raise DataError(
            f"'X' in {path} must be uint8 with 4 axes, but is {images.dtype} {images.shape}; "
            "replace it."
        )
    if labels.size != images.shape[3] or not np.isin(labels, np.arange(1, ZERO + 1)).all():
        raise DataError(
            f"'y' in {path} must have a label from 1 to {ZERO} for each image; replace the file."
        )
    return images.transpose(3, 2, 0, 1), labels.ravel().astype(np.int64) % ZERO
