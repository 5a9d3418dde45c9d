"""Prepared data: one folder of memory-mappable arrays for each data set, described by
``manifest.json``.

::

    digits/     train_images.npy  train_labels.npy  val_*.npy  test_*.npy  manifest.json
    digits_ambiguous/   also train_distribution.npy ...: the class probabilities of each image
    digits_c/   images.npy  labels.npy  manifest.json      all conditions, one after another
    photos/     test_images.npy  test_labels.npy  manifest.json

Images of a large split stay encoded: ``test_images.bin`` contains the bytes of all image files, and
``test_images_offsets.npy`` their offsets. They are decoded when they are read, to the same pixels
as in an array.

The manifest is moved into place last, so a folder that has one is complete. Preparing again gives
the same bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from calgrid.datasets.base import ImageSplit
from calgrid.datasets.encoded import Encoded, EncodedImages, Scaling
from calgrid.errors import DataError, StateError
from calgrid.storage.records import MANIFEST, Facts, Record, read_record

FORMAT = 2
#: name of the only split of a shift family, in ``Prepared.splits`` and in the manifest
SHIFT_SPLIT = "shift"


class ArrayFacts(TypedDict):
    """An array in the manifest; of encoded images ``offsets`` and ``scaling`` of :class:`Scaling`,
    too.
    """

    file: str
    dtype: str
    shape: list[int]
    offsets: "NotRequired[ArrayFacts]"
    scaling: NotRequired[Any]


@dataclass(frozen=True)
class Condition:
    """Rows ``start`` to ``stop`` (exclusive) of a shift family: its images under ``shift`` at
    ``severity``.
    """

    shift: str
    severity: int
    start: int
    stop: int


@dataclass(frozen=True)
class Prepared:
    """A prepared folder: memory-mapped arrays, or encoded images, and their manifest.

    Attributes
    ----------
    id, role : registered identifier; ``dataset``, ``shift`` or ``ood``.
    n_classes : K; 0 for an out-of-distribution set.
    mean, std : normalisation constants of the three channels, for pixels in [0, 1]. A shift family
        has the constants of its base, an out-of-distribution set the constants of the base it was
        prepared for, or None.
    splits : read-only splits ``train``, ``val``, ``test`` (dataset), ``test`` (ood) or ``shift``
        (all conditions of a shift family).
    conditions : the conditions of a shift family, in the order of its rows; else empty.
    manifest : the whole manifest.
    folder : folder of the arrays.
    """

    id: str
    role: str
    n_classes: int
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    splits: Mapping[str, ImageSplit]
    conditions: tuple[Condition, ...]
    manifest: Facts
    folder: Path = Path()

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of the channels.

        Raises
        ------
        DataError : the data set has none.
        """
        if self.mean is None or self.std is None:
            raise DataError(
                f"'{self.id}' has no normalisation constants; prepare it for a data set."
            )
        return self.mean, self.std

    def verify(self) -> "Prepared":
        """Read every file, and return the object.

        Raises
        ------
        DataError or StateError : one differs from the manifest.
        """
        Record(self.folder, MANIFEST, self.manifest).verify()
        return self


def open_prepared(folder: Path | str, fingerprint: str | None = None, threads: int = 1) -> Prepared:
    """Open a prepared folder; its arrays are memory-mapped read-only, and encoded images decoded
    when they are read.

    Parameters
    ----------
    folder : folder written by :func:`prepare`.
    fingerprint : expected fingerprint of a configured data set.
    threads : number of threads that decode images; the pixels do not depend on it.

    Raises
    ------
    DataError : no or unreadable manifest, or an array that is missing or differs from the manifest.
    StateError : the folder holds a configured data set of another configuration.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(
            f"{folder} contains no prepared data ({MANIFEST} is missing); prepare the data set "
            "there."
        )
    manifest = read_record(path, "manifest")
    if manifest.get("format") != FORMAT:
        raise DataError(f"{path} is not a manifest of format {FORMAT}; prepare the data set again.")
    prepared_with = manifest.get("fingerprint")
    if fingerprint is not None and prepared_with not in (None, fingerprint):
        raise StateError(
            f"{folder} holds '{manifest['id']}' of another configuration or code version "
            f"(fingerprint {prepared_with}, expected {fingerprint}); prepare it again, and give "
            "data sets of different options different names."
        )
    splits = {}
    for name, facts in manifest["splits"].items():
        images = _open_images(folder, facts["images"], threads)
        distribution = None
        if "distribution" in facts:
            distribution = _open_array(folder, facts["distribution"])
        labels = _open_array(folder, facts["labels"])
        splits[name] = ImageSplit(images, labels, distribution=distribution)
    return Prepared(
        id=manifest["id"],
        role=manifest["role"],
        n_classes=manifest["n_classes"],
        mean=manifest["mean"] and tuple(manifest["mean"]),
        std=manifest["std"] and tuple(manifest["std"]),
        splits=splits,
        conditions=tuple(Condition(**facts) for facts in manifest["conditions"]),
        manifest=manifest,
        folder=folder,
    )


def _open_images(folder: Path, facts: ArrayFacts, threads: int) -> Any:
    """Images as an array, or encoded images that behave like one."""
    if "offsets" not in facts:
        return _open_array(folder, facts)
    path, offsets = folder / facts["file"], _open_array(folder, facts["offsets"])
    try:
        content = np.memmap(path, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); prepare the data set again.") from error
    if len(content) != offsets[-1] or len(offsets) != facts["shape"][0] + 1:
        raise DataError(
            f"{path} does not have the size in its manifest; prepare the data set again."
        )
    source = Encoded.concatenated(content, offsets, lambda row: f"Image {row} of {path}")
    return EncodedImages(source, tuple(facts["shape"]), Scaling(**facts["scaling"]), threads)


def _open_array(folder: Path, facts: ArrayFacts) -> NDArray[Any]:
    path = folder / facts["file"]
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; prepare the data set again.") from error
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged ({error}); prepare the data set again.") from error
    if list(array.shape) != facts["shape"] or array.dtype.name != facts["dtype"]:
        raise DataError(
            f"{path} holds {array.dtype.name} {array.shape}, its manifest says {facts['dtype']} "
            f"{tuple(facts['shape'])}; prepare the data set again."
        )
    return array
