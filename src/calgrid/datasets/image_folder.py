"""Images in one folder per class: ``train/cat/001.jpg``, ``train/dog/...``, ``test/cat/...``.

Classes are the folders of the training split, in the order of the option ``classes`` or else sorted
as text (1, 10, 2). Images are the files with an image
suffix anywhere below them, in sorted order of their paths, as in torchvision's ``ImageFolder``.
Hidden files are ignored. Links to files and folders are followed; a link to a folder that is
already read, or to one of its parents, is an error.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from calgrid.class_names import unlike
from calgrid.components.registry import register
from calgrid.datasets._image_files import LIMITS, ImageFiles, NamedImage, Rows, Source
from calgrid.datasets.encoded import SUFFIXES
from calgrid.errors import DataError, visible
from calgrid.progress import warn
from calgrid.storage.sources import SourceRecord, files_below

#: suffixes of left-out files that a message lists
MOST_KINDS = 5


@register(
    source="the layout of torchvision's ImageFolder",
    role="dataset",
    label="Image folders",
    configurable=True,
    encoded=True,
    download=False,
    limits=LIMITS,
)
class ImageFolder(ImageFiles):
    """Your own images in one folder per class, under a name that a configuration defines.

    Options are those of :class:`ImageFiles`; ``train``, ``test`` and ``val`` are folders with one
    folder per class, and ``n_classes`` defaults to the number of class folders of the training
    split.
    """

    def open(self, data_root: Path | None, names: Sequence[str], train: Source | None) -> Source:
        """List the images of one split; see :class:`ImageFiles`."""
        source = FolderSource(data_root, names, self.known_classes(train), self.groups)
        for name in source.classes if train is None else ():
            if name not in source.present:
                raise DataError(
                    f"{', '.join(names)} has no folder of the class '{visible(name)}'; add it, or "
                    "correct 'classes' of the data set."
                )
        return source


class FolderSource(Source):
    """Images of one or more folders with the same class folders.

    Parameters
    ----------
    data_root, names : the folders are ``data_root/name``.
    classes : classes in their order; None: those of the folders, sorted.
    groups : regular expression of the groups, if there are some.

    Attributes
    ----------
    present : classes that have a folder.

    Raises
    ------
    DataError : a folder is missing, or has an empty or an unknown class, or an image no group.
    """

    def __init__(
        self,
        data_root: Path | None,
        names: Sequence[str],
        classes: tuple[str, ...] | None,
        groups: str | None = None,
    ) -> None:
        self.folders = {name: Path(data_root or "", name) for name in names}
        self.pictures: dict[str, list[str]] = {}
        listed = []
        for name, folder in self.folders.items():
            self.pictures[name] = _pictures(folder)
            for picture in self.pictures[name]:
                listed.append((_class_of(picture), folder, picture))
        # by class first, because a class may be in several folders
        listed.sort(key=lambda one: one[0])
        self.present = tuple(dict.fromkeys(name for name, _, _ in listed))
        if classes is None:
            classes = self.present
        self.classes: tuple[str, ...] = classes
        number = {name: index for index, name in enumerate(classes)}
        labels = []
        images = []
        for name, folder, picture in listed:
            if name not in number:
                raise DataError(
                    f"{', '.join(map(str, self.folders.values()))}: the class '{visible(name)}' "
                    "has no folder in the training split, or is not in 'classes' of the data set"
                    f"{unlike([name], number)}."
                )
            labels.append(number[name])
            images.append(folder / picture)
        self.images = images
        self.labels = np.array(labels, dtype=np.int64)
        if groups is not None:
            self.groups = _groups([picture for _, _, picture in listed], groups)

    def read(self, rows: Rows) -> Iterator[NamedImage]:
        """Yield the encoded images at some rows."""
        for row in rows:
            yield str(self.images[row]), _read(self.images[row])

    def files(self) -> Iterator[SourceRecord]:
        """Yield number and total size of the images of each folder, and the SHA-256 of their paths
        and contents in sorted order.
        """
        for name, folder in self.folders.items():
            sha256 = hashlib.sha256()
            size = 0
            for picture in self.pictures[name]:
                content = _read(folder / picture)
                size += len(content)
                sha256.update(f"{picture}\0{len(content)}\0".encode() + content)
            count = len(self.pictures[name])
            yield {"path": name, "files": count, "size": size, "sha256": sha256.hexdigest()}


def _pictures(folder: Path) -> list[str]:
    """Relative paths of all images below the class folders; an empty class folder is an error, and
    so are images without a class folder.
    """
    if not folder.is_dir():
        mend = "; unpack it" if folder.is_file() else ""
        raise DataError(f"{folder} must be a folder with one folder per class{mend}.")
    found, skipped = [], Counter[str]()
    for file, _ in files_below(folder):
        if file.lower().endswith(SUFFIXES):
            found.append(file)
        elif "/" in file:
            skipped[PurePosixPath(file).suffix.lower() or "without suffix"] += 1
    if skipped:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in skipped.most_common(MOST_KINDS))
        warn(
            f"{folder}: files of class folders are left out, {visible(kinds)}; images "
            f"must be {', '.join(SUFFIXES)}."
        )
    pictures = [file for file in found if "/" in file]
    if found and not pictures:
        raise DataError(
            f"{folder} has {len(found)} images, but no folder of a class; give the folder that "
            "holds one folder per class, or write images with labels as Parquet "
            "(base: image_parquet)."
        )
    classes = {
        path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    }
    empty = sorted(classes - set(map(_class_of, pictures)))
    if empty:
        raise DataError(
            f"{folder / empty[0]} contains no image ({', '.join(SUFFIXES)}); fill or remove the "
            "folder."
        )
    return pictures


def _groups(pictures: Sequence[str], expression: str) -> NDArray[np.str_]:
    """Groups of images by their paths."""
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise DataError(f"groups: '{expression}' is no regular expression ({error}).") from None
    groups = []
    for picture in pictures:
        found = pattern.search(picture)
        if found is None:
            raise DataError(f"groups: '{expression}' is not found in '{visible(picture)}'.")
        groups.append(found[min(pattern.groups, 1)] or "")
    return np.array(groups)


def _class_of(picture: str) -> str:
    return picture.split("/", maxsplit=1)[0]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); replace or remove it."
        ) from None
