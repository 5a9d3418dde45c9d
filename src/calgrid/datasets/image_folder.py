"""Images in one folder per class: ``train/cat/001.jpg``, ``train/dog/...``, ``test/cat/...``.

Classes are the folders of the training split in sorted order. Images are the files with an image
suffix anywhere below them, in sorted order of their paths, as in torchvision's ``ImageFolder``.
Hidden files are ignored. Links to files and folders are followed; a link to a folder that is
already read, or to one of its parents, is an error.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calgrid.components.registry import register
from calgrid.datasets._image_files import LIMITS, ImageFiles, Rows, Source
from calgrid.datasets._pictures import SUFFIXES
from calgrid.errors import DataError
from calgrid.storage.sources import files_below


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
        folders = [Path(data_root or "", name) for name in names]
        pictures = [_pictures(folder) for folder in folders]
        found = {file.split("/")[0] for part in pictures for file in part}
        classes = tuple(sorted(found)) if train is None else train.classes or ()
        if unknown := sorted(found - set(classes)):
            raise DataError(
                f"{', '.join(map(str, folders))}: the class '{unknown[0]}' has no folder in the "
                f"training split."
            )
        number = {name: index for index, name in enumerate(classes)}
        # sorted by class first, because a class may be in several folders
        listed = sorted(
            (file.split("/")[0], place, file)
            for place, part in enumerate(pictures)
            for file in part
        )
        paths = [folders[place] / file for _, place, file in listed]
        labels = np.array([number[name] for name, _, _ in listed], dtype=np.int64)

        def read(rows: Rows) -> Iterator[tuple[str, bytes]]:
            for row in rows:
                yield str(paths[row]), paths[row].read_bytes()

        def files() -> list[dict[str, Any]]:
            return [
                _record(folder, name, part)
                for folder, name, part in zip(folders, names, pictures, strict=True)
            ]

        return Source(labels, read, files, classes)


def _pictures(folder: Path) -> list[str]:
    """Relative paths of all images below the class folders; an empty class folder is an error."""
    if not folder.is_dir():
        raise DataError(f"{folder} must be a folder with one folder per class.")
    found = [
        file for file, _ in files_below(folder) if "/" in file and file.lower().endswith(SUFFIXES)
    ]
    classes = {
        path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    }
    if empty := sorted(classes - {file.split("/")[0] for file in found}):
        raise DataError(
            f"{folder / empty[0]} contains no image ({', '.join(SUFFIXES)}): fill or remove the "
            f"folder."
        )
    return found


def _record(folder: Path, name: str, pictures: Sequence[str]) -> dict[str, Any]:
    """Number and total size of the images of a folder, and the SHA-256 of their paths and contents
    in sorted order.
    """
    sha256, size = hashlib.sha256(), 0
    for picture in pictures:
        content = (folder / picture).read_bytes()
        size += len(content)
        sha256.update(f"{picture}\0{len(content)}\0".encode() + content)
    return {"path": name, "files": len(pictures), "size": size, "sha256": sha256.hexdigest()}
