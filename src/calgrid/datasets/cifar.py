"""CIFAR-10 and CIFAR-100 from their original Python archives.

Images are rows of 3072 bytes, channel by channel. Training rows are numbered through the batches in
order, as in torchvision. The archive below data_root may be packed anew, and its unpacked folder
``cifar-10-batches-py`` or ``cifar-100-python`` can replace it: the files in it are verified by
their published MD5. Labels of CIFAR-100 are the fine ones. Validation rows are the first of NumPy's
legacy shuffle, not stratified: the split of focal_calibration (``random_seed=1``), the same for all
seeds of a run.

Images of both are normalised by the constants of CIFAR-10, as in the training of the official code
of focal_calibration and FeDLaS. That code tests CIFAR-100 with the constants of ImageNet; here all
splits use the same constants unless the protocol sets ``test_normalisation``, as the studies of
FeDLaS and MaC-Cal do beside the same constants.
"""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from calgrid.components.options import Options
from calgrid.components.registry import register
from calgrid.datasets._archives import each_member, unpickle_arrays
from calgrid.datasets.base import Dataset, ImageSplit, Labelled, split_published
from calgrid.datasets.downloads import unpacked_or_download
from calgrid.errors import DataError

SOURCE = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, technical report, 2009"
SHAPE = (3, 32, 32)
#: far out-of-distribution sets of OpenOOD 1.5; all but SVHN are the user's, by these names
FAR = ("ood/mnist", "ood/svhn", "ood/textures", "ood/places365")
FACTS: Options = {
    "role": "dataset",
    "image_shape": SHAPE,
    "mean": (0.4914, 0.4822, 0.4465),
    "std": (0.2023, 0.1994, 0.2010),
    "sizes": {"train": 45_000, "val": 5_000, "test": 10_000},
    "drawn_val": {"split": "shuffled", "val_size": 5_000, "split_seed": 1},
    "duplicates": "count",
    "download": True,
}
#: maximum bytes of a member: 50,000 images with names and labels
LIMIT = 200_000_000


class Cifar(Dataset):
    """Base of CIFAR-10 and CIFAR-100; subclasses list the members of the archive and their MD5, the
    test batch last.
    """

    members: Mapping[str, str]
    label_key: str

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return the splits; see :class:`Dataset`."""
        file = self.registered["files"][0]
        archive = Path(data_root or "", file["name"])
        # packed anew, it is another file with the same members
        if data_root is None or not archive.is_file() or not tarfile.is_tarfile(archive):
            folder, _, _ = next(iter(self.members)).partition("/")
            archive = unpacked_or_download(file, data_root, folder)
        contents = dict(each_member(archive, dict.fromkeys(self.members, LIMIT)))
        batches = []
        for name, md5 in self.members.items():
            if hashlib.md5(contents[name], usedforsecurity=False).hexdigest() != md5:
                raise DataError(
                    f"'{name}' in {archive} is not the published file (its MD5 differs); replace "
                    f"it, or remove {archive} so that the published archive is downloaded."
                )
            batches.append(self._batch(contents[name], f"'{name}' in {archive}"))
        images, labels = zip(*batches[:-1], strict=True)
        train = np.concatenate(images), np.concatenate(labels)
        return split_published(train, batches[-1], self.drawn_val, archive)

    def _batch(self, content: bytes, where: str) -> Labelled:
        batch = unpickle_arrays(io.BytesIO(content), where)
        images, labels = batch.get("data"), batch.get(self.label_key)
        if (
            not isinstance(images, np.ndarray)
            or (images.dtype, images.shape[1:]) != (np.uint8, (3072,))
            or not isinstance(labels, list)
            or len(labels) != len(images)
        ):
            raise DataError(
                f"{where} must have uint8 rows of length 3072 and as many '{self.label_key}'; "
                "replace it."
            )
        return images.reshape(-1, *SHAPE), np.array(labels, dtype=np.int64)


@register(
    id="cifar10",
    source=SOURCE,
    **FACTS,
    label="CIFAR-10",
    n_classes=10,
    families=("ood/svhn", "ood/cifar100"),
    near=("ood/cifar100",),
    far=FAR,
    files=(
        {
            "name": "cifar-10-python.tar.gz",
            "url": "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "size": 170_498_071,
            "sha256": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        },
    ),
)
class Cifar10(Cifar):
    """Photographs of ten kinds of animals and vehicles."""

    members = MappingProxyType(
        {
            "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
            "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
            "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
        }
    )
    label_key = "labels"


@register(
    id="cifar100",
    source=SOURCE,
    **FACTS,
    label="CIFAR-100",
    n_classes=100,
    families=("ood/svhn", "ood/cifar10"),
    near=("ood/cifar10",),
    far=FAR,
    files=(
        {
            "name": "cifar-100-python.tar.gz",
            "url": "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "size": 169_001_437,
            "sha256": "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        },
    ),
)
class Cifar100(Cifar):
    """Photographs of one hundred kinds of things, by their fine labels."""

    members = MappingProxyType(
        {
            "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
            "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        }
    )
    label_key = "fine_labels"
