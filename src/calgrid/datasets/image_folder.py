"""Images in folders, one folder a class: ``train/cat/001.jpg``, ``train/dog/...``, ``test/cat/...``.

Classes are the folders of the training split in sorted order, images the files with the suffix of a picture anywhere
below them, in sorted order of their paths, as torchvision's ``ImageFolder`` has them. Hidden files are left out.
Links to files and folders are followed; one to a folder that is read already, or that holds such a folder, is refused.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calgrid.datasets._image_files import LIMITS, ImageFiles, Rows, Source
from calgrid.datasets._pictures import SUFFIXES
from calgrid.errors import DataError
from calgrid.registry import register
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
    """Pictures of your own in one folder a class; configured under a name of your own.

    Options are those of :class:`ImageFiles`; ``train``, ``test`` and ``val`` name folders that hold one folder a class,
    and without ``n_classes`` the folders of the training split are counted.
    """

    def open(self, data_root: Path | None, names: Sequence[str], train: Source | None) -> Source:
        """List the images of one split; see :class:`ImageFiles`."""
        folders = [Path(data_root or "", name) for name in names]
        pictures = [_pictures(folder) for folder in folders]
        found = {file.split("/")[0] for part in pictures for file in part}
        classes = tuple(sorted(found)) if train is None else train.classes or ()
        if unknown := sorted(found - set(classes)):
            raise DataError(
                f"{', '.join(map(str, folders))}: the class '{unknown[0]}' has no folder in the training split."
            )
        number = {name: index for index, name in enumerate(classes)}
        # classes first: the images of a class stand together even where it is spread over several folders
        listed = sorted((file.split("/")[0], place, file) for place, part in enumerate(pictures) for file in part)
        paths = [folders[place] / file for _, place, file in listed]
        labels = np.array([number[name] for name, _, _ in listed], dtype=np.int64)

        def read(rows: Rows) -> Iterator[tuple[str, bytes]]:
            for row in rows:
                yield str(paths[row]), paths[row].read_bytes()

        def files() -> list[dict[str, Any]]:
            return [_record(folder, name, part) for folder, name, part in zip(folders, names, pictures, strict=True)]

        return Source(labels, read, files, classes)


def _pictures(folder: Path) -> list[str]:
    """Relative paths of all images below the class folders; an empty class folder is an error."""
    if not folder.is_dir():
        raise DataError(f"{folder} must be a folder that holds one folder a class.")
    found = [file for file, _ in files_below(folder) if "/" in file and file.lower().endswith(SUFFIXES)]
    classes = {path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}
    if empty := sorted(classes - {file.split("/")[0] for file in found}):
        raise DataError(f"{folder / empty[0]} holds no image ({', '.join(SUFFIXES)}): fill or remove the folder.")
    return found


def _record(folder: Path, name: str, pictures: Sequence[str]) -> dict[str, Any]:
    """Number, size and one SHA-256 of all images of a folder: over their paths and contents, in sorted order."""
    sha256, size = hashlib.sha256(), 0
    for picture in pictures:
        content = (folder / picture).read_bytes()
        size += len(content)
        sha256.update(f"{picture}\0{len(content)}\0".encode() + content)
    return {"path": name, "files": len(pictures), "size": size, "sha256": sha256.hexdigest()}
