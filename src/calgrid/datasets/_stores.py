"""Files in a folder, an uncompressed tar archive or a zip archive, read by name in any order without unpacking."""

import os
import tarfile
import zipfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from calgrid.datasets._archives import DAMAGED
from calgrid.errors import DataError
from calgrid.storage.sources import files_below


@dataclass(frozen=True)
class Store:
    """Where files lie, their names, and what returns the content of one."""

    place: Path
    names: Collection[str]
    read: Callable[[str], bytes]


def open_store(place: Path) -> Store:
    """Open a folder or an archive, of which regular files count only; its names have no leading ``./``.

    Raises
    ------
    DataError : the archive is damaged or a compressed tar archive.
    """
    if place.is_dir():
        return Store(place, [name for name, _ in files_below(place)], lambda name: (place / name).read_bytes())
    return _open_zip(place) if zipfile.is_zipfile(place) else _open_tar(place)


def _open_tar(archive: Path) -> Store:
    found = {}
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                if member.isreg():
                    found[member.name.removeprefix("./")] = (member.offset_data, member.size)
                tar.members = []  # or every member of a large archive would stay in memory
    except DAMAGED as error:
        raise DataError(f"The archive {archive} is damaged ({error}): replace it.") from None
    file = archive.open("rb")

    def read(name: str) -> bytes:
        offset, size = found[name]
        content = os.pread(file.fileno(), size, offset)
        if len(content) != size:
            raise DataError(f"The archive {archive} ends within '{name}': replace it.")
        return content

    return Store(archive, found, read)


def _open_zip(archive: Path) -> Store:
    try:
        pack = zipfile.ZipFile(archive)
    except DAMAGED as error:
        raise DataError(f"The archive {archive} is damaged ({error}): replace it.") from None
    found = {member.filename.removeprefix("./"): member for member in pack.infolist() if not member.is_dir()}

    def read(name: str) -> bytes:
        try:
            return pack.read(found[name])
        except DAMAGED as error:
            raise DataError(f"'{name}' in {archive} is damaged ({error}): replace the archive.") from None

    return Store(archive, found, read)
