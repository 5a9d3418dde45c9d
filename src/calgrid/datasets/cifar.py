"""CIFAR-10 and CIFAR-100 from their original Python archives, and their shifts.

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

CIFAR-10-C and CIFAR-100-C: the test images under 15 corruptions at five severities. The archive has
one array per corruption, of 5 x 10,000 images by ascending severity in the order of the test split,
and the labels. Nothing is unpacked: the arrays are memory-mapped in the archive, or in the unpacked
folder ``CIFAR-10-C`` or ``CIFAR-100-C`` below data_root. The four extra corruptions for validation
are not used.

CIFAR-10.1: new test images for CIFAR-10, drawn from Tiny Images as those of CIFAR-10 were. Version
6 has 2,000 images, 200 of each class, sorted by class; version 4, that of the paper's main tables,
has 2,021 in other shares. More than 90 % of their images are the same. The MD5 of images and labels
of version 6 are those in the code of other projects, that of the labels of version 4 was computed
from the published file. The images of version 4 have no known checksum: the first download is
trusted and recorded.
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
from calgrid.datasets._archives import each_member, map_arrays, unpickle_arrays
from calgrid.datasets._shifts import STANDARD_SHIFTS
from calgrid.datasets._splits import Labelled, split_published
from calgrid.datasets.base import Dataset, ImageSplit, ShiftCondition, ShiftFamily
from calgrid.datasets.downloads import download, unpacked_or_download
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
CORRUPTED_SOURCE = "Hendrycks and Dietterich, Benchmarking Neural Network Robustness, ICLR 2019"
CORRUPTED: Options = {
    "role": "shift",
    "shifts": STANDARD_SHIFTS,
    "severities": (1, 2, 3, 4, 5),
    "image_shape": (3, 32, 32),
    "download": True,
}


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


class CifarC(ShiftFamily):
    """Base of CIFAR-10-C and CIFAR-100-C, which differ in their registered facts."""

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftCondition]:
        """Return the conditions, corruption by corruption, severities ascending; see
        :class:`ShiftFamily`.
        """
        file = self.registered["files"][0]
        archive = unpacked_or_download(file, data_root, file["name"].removesuffix(".tar"))
        shifts, severities = self.registered["shifts"], self.registered["severities"]
        arrays = map_arrays(archive, [*(f"{shift}.npy" for shift in shifts), "labels.npy"])
        labels = base["test"].labels
        count = len(labels)
        if not np.array_equal(arrays["labels.npy"], np.tile(labels, len(severities))):
            raise DataError(
                f"The labels in {archive} differ from those of the test split; replace one of the "
                "two archives."
            )
        conditions = []
        for shift in shifts:
            images = arrays[f"{shift}.npy"]
            if images.dtype != np.uint8 or images.shape != (count * len(severities), 32, 32, 3):
                raise DataError(
                    f"'{shift}.npy' in {archive} has the wrong type or shape, {images.dtype} "
                    f"{images.shape}; replace it."
                )
            for number, severity in enumerate(severities):
                part = images[number * count : (number + 1) * count].transpose(0, 3, 1, 2)
                conditions.append(
                    ShiftCondition(shift, severity, ImageSplit(part, np.asarray(labels)))
                )
        return conditions


@register(
    id="cifar10_c",
    source=CORRUPTED_SOURCE,
    **CORRUPTED,
    label="CIFAR-10-C",
    base="cifar10",
    n_classes=10,
    files=(
        {
            "name": "CIFAR-10-C.tar",
            "url": "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
            "size": 2_918_471_680,
            "md5": "56bf5dcef84df0e2308c6dcbcbbd8499",
        },
    ),
)
class Cifar10C(CifarC):
    """Corrupted test images of CIFAR-10, in the order of the clean test split."""


@register(
    id="cifar100_c",
    source=CORRUPTED_SOURCE,
    **CORRUPTED,
    label="CIFAR-100-C",
    base="cifar100",
    n_classes=100,
    files=(
        {
            "name": "CIFAR-100-C.tar",
            "url": "https://zenodo.org/records/3555552/files/CIFAR-100-C.tar",
            "size": 2_918_473_216,
            "md5": "11f0ed0f1191edbf9fa23466ae6021d3",
        },
    ),
)
class Cifar100C(CifarC):
    """Corrupted test images of CIFAR-100, in the order of the clean test split."""


@register(
    id="cifar10_1",
    source="Recht et al., Do CIFAR-10 Classifiers Generalize to CIFAR-10?, 2018, arXiv 1806.00451",
    role="shift",
    label="CIFAR-10.1",
    base="cifar10",
    shifts=("cifar10_1_v6", "cifar10_1_v4"),
    severities=(0,),
    sizes={"shift": 4_021},
    n_classes=10,
    image_shape=(3, 32, 32),
    download=True,
    files=(
        {
            "name": "cifar10.1_v6_data.npy",
            "url": "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/cifar10.1_v6_data.npy",
            "size": 6_144_128,
            "md5": "4fcae82cb1326aec9ed1dc1fc62345b8",
        },
        {
            "name": "cifar10.1_v6_labels.npy",
            "url": "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/cifar10.1_v6_labels.npy",
            "size": 8_128,
            "md5": "09a97fb7c430502fcbd69d95093a3f85",
        },
        {
            "name": "cifar10.1_v4_data.npy",
            "url": "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/cifar10.1_v4_data.npy",
        },
        {
            "name": "cifar10.1_v4_labels.npy",
            "url": "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/cifar10.1_v4_labels.npy",
            "size": 8_212,
            "md5": "6b7b8e6d26b5addd368440d9e0a24ead",
        },
    ),
)
class Cifar101(ShiftFamily):
    """New test images of CIFAR-10 in two versions, in the order of their files."""

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftCondition]:
        """Return version 6 and version 4; see :class:`ShiftFamily`."""
        paths = [download(file, data_root) for file in self.registered["files"]]
        conditions = []
        for shift, data, truth in zip(
            self.registered["shifts"], paths[::2], paths[1::2], strict=True
        ):
            arrays = map_arrays(data.parent, [data.name, truth.name])
            images, labels = arrays[data.name], arrays[truth.name]
            if images.dtype != np.uint8 or images.shape != (len(labels), 32, 32, 3):
                raise DataError(
                    f"{data} has the wrong type or shape, {images.dtype} {images.shape}, for "
                    f"{len(labels):,} labels; replace it."
                )
            split = ImageSplit(images.transpose(0, 3, 1, 2), labels.astype(np.int64))
            conditions.append(ShiftCondition(shift, 0, split))
        return conditions
