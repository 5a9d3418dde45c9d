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
class ArchiveReader:
    """Where files lie, their names, and what returns the content of one, and its size in bytes."""

    place: Path
    names: Collection[str]
    read: Callable[[str], bytes]
    size: Callable[[str], int]


def open_archive(place: Path, wanted: Callable[[str], bool] = bool) -> ArchiveReader:
    """Open a folder or an archive, of which regular files count only; its names have no leading ``./``.

    Parameters
    ----------
    wanted : says by its name which file counts; all do if it is not given.

    Raises
    ------
    DataError : the archive is damaged or a compressed tar archive.
    """
    if place.is_dir():
        names = [name for name, _ in files_below(place) if wanted(name)]
        return ArchiveReader(
            place, names, lambda name: (place / name).read_bytes(), lambda name: (place / name).stat().st_size
        )
    return (_open_zip if zipfile.is_zipfile(place) else _open_tar)(place, wanted)


def _open_tar(archive: Path, wanted: Callable[[str], bool]) -> ArchiveReader:
    found = {}
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if member.isreg() and wanted(name):
                    found[name] = (member.offset_data, member.size)
                vars(tar)["members"] = []  # or every member of a large archive would stay in memory
    except DAMAGED as error:
        raise DataError(f"The archive {archive} is damaged ({error}): replace it.") from None
    file = archive.open("rb")

    def read(name: str) -> bytes:
        offset, size = found[name]
        content = os.pread(file.fileno(), size, offset)
        if len(content) != size:
            raise DataError(f"The archive {archive} ends within '{name}': replace it.")
        return content

    return ArchiveReader(archive, found, read, lambda name: found[name][1])


def _open_zip(archive: Path, wanted: Callable[[str], bool]) -> ArchiveReader:
    try:
        pack = zipfile.ZipFile(archive)
    except DAMAGED as error:
        raise DataError(f"The archive {archive} is damaged ({error}): replace it.") from None
    members = {member.filename.removeprefix("./"): member for member in pack.infolist() if not member.is_dir()}
    found = {name: member for name, member in members.items() if wanted(name)}

    def read(name: str) -> bytes:
        try:
            return pack.read(found[name])
        except DAMAGED as error:
            raise DataError(f"'{name}' in {archive} is damaged ({error}): replace the archive.") from None

    return ArchiveReader(archive, found, read, lambda name: found[name].file_size)
