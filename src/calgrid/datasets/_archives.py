"""Safe reading of archives and pickles of published data sets.

Nothing is extracted to disk: members are read by their exact names, so that paths in an archive
cannot escape a folder. :func:`each_member` reads them in the order of the archive, which may be
compressed; a member must be a regular file of limited size. :func:`open_archive` reads in any
order.
"""

import contextlib
import math
import os
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from calgrid.errors import DataError
from calgrid.storage.sources import files_below

#: globals in the pickled NumPy arrays of the CIFAR archives, with NumPy's old and new module names
ALLOWED = frozenset(
    {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
    }
)


#: maximum bytes of a list of images, labels or classes
LIST_LIMIT = 10_000_000
#: errors of reading a damaged archive; an encrypted zip file raises RuntimeError
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError)


def read_members(archive: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    """Read members of an archive into memory; see :func:`each_member`."""
    return dict(each_member(archive, limits))


def each_member(archive: Path, limits: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """Read members of a zip or (compressed) tar archive in the archive's order.

    Raises DataError: the archive is damaged, or a member is missing, duplicated, not a regular file
    or too large.

    Parameters
    ----------
    archive : file, or its unpacked folder; the names of members then start with the name of the
        folder.
    limits : exact name of a member (without a leading ``./``) -> maximum bytes.

    Yields
    ------
    Name and content of each member, once.
    """
    found = set()
    with _intact(f"The archive {archive}"):
        read = (
            _in_folder if archive.is_dir() else _zipped if zipfile.is_zipfile(archive) else _tarred
        )
        for name, size, content in read(archive, limits):
            if name in found or size is None or size > limits[name]:
                raise DataError(
                    f"'{name}' in {archive} is not a regular file of at most {limits[name]:,} "
                    f"bytes, or occurs twice: "
                    "this is not the published archive, replace it."
                )
            found.add(name)
            yield name, content()
    if missing := [name for name in limits if name not in found]:
        raise DataError(f"The archive {archive} has no member '{missing[0]}': replace it.")


#: name of a member, its size (None if not a regular file), and a function that reads it
Found = tuple[str, int | None, Callable[[], bytes]]


def _in_folder(folder: Path, names: Iterable[str]) -> Iterator[Found]:
    for path in (folder.parent / name for name in names):
        if path.exists():
            size = path.stat().st_size if path.is_file() else None
            yield path.relative_to(folder.parent).as_posix(), size, path.read_bytes


def _tarred(archive: Path, names: Container[str]) -> Iterator[Found]:
    with tarfile.open(archive, "r:*") as tar:
        for name, member in _members(tar):
            if name in names:
                yield name, member.size if member.isreg() else None, partial(_read, tar, member)


def _members(tar: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    for member in tar:
        yield member.name.removeprefix("./"), member
        vars(tar)["members"] = []  # or every member of a large archive would stay in memory


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    return stream.read() if stream is not None else b""


def _zipped(archive: Path, names: Container[str]) -> Iterator[Found]:
    with zipfile.ZipFile(archive) as pack:
        for member in pack.infolist():
            name = member.filename.removeprefix("./")
            if name in names:
                yield (
                    name,
                    None if member.is_dir() else member.file_size,
                    partial(pack.read, member),
                )


@dataclass(frozen=True)
class ArchiveReader:
    """A folder, an uncompressed tar archive or a zip archive: names of files, and functions for
    content and size.
    """

    place: Path
    names: Collection[str]
    read: Callable[[str], bytes]
    size: Callable[[str], int]


def open_archive(place: Path, wanted: Callable[[str], bool] = bool) -> ArchiveReader:
    """Open a folder or an archive for its regular files; their names have no leading ``./``.

    Raises DataError: the archive is damaged or a compressed tar archive.

    Parameters
    ----------
    wanted : selects files by their name; by default all.
    """
    if place.is_dir():
        names = [name for name, _ in files_below(place) if wanted(name)]
        return ArchiveReader(
            place,
            names,
            lambda name: (place / name).read_bytes(),
            lambda name: (place / name).stat().st_size,
        )
    return (_open_zip if zipfile.is_zipfile(place) else _open_tar)(place, wanted)


@contextlib.contextmanager
def _intact(what: str) -> Iterator[None]:
    """Turn errors of a damaged archive, or of a member, into a DataError about it."""
    try:
        yield
    except DAMAGED as error:
        raise DataError(f"{what} is damaged ({error}): replace it.") from None


def _open_tar(archive: Path, wanted: Callable[[str], bool]) -> ArchiveReader:
    found = {}
    with _intact(f"The archive {archive}"), tarfile.open(archive, "r:") as tar:
        for name, member in _members(tar):
            if member.isreg() and wanted(name):
                found[name] = (member.offset_data, member.size)
    file = archive.open("rb")

    def read(name: str) -> bytes:
        offset, size = found[name]
        content = os.pread(file.fileno(), size, offset)
        if len(content) != size:
            raise DataError(f"The archive {archive} is truncated within '{name}': replace it.")
        return content

    return ArchiveReader(archive, found, read, lambda name: found[name][1])


def _open_zip(archive: Path, wanted: Callable[[str], bool]) -> ArchiveReader:
    with _intact(f"The archive {archive}"):
        pack = zipfile.ZipFile(archive)
    members = {
        member.filename.removeprefix("./"): member
        for member in pack.infolist()
        if not member.is_dir()
    }
    found = {name: member for name, member in members.items() if wanted(name)}

    def read(name: str) -> bytes:
        with _intact(f"'{name}' in {archive}"):
            return pack.read(found[name])

    return ArchiveReader(archive, found, read, lambda name: found[name].file_size)


def map_arrays(archive: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Memory-map ``.npy`` files of an uncompressed tar archive, given by their file names, without
    unpickling.

    An unpacked folder can replace the archive. Raises DataError: the archive is damaged or
    compressed, or a file is missing, duplicated or not a plain array.
    """
    wanted, found = set(names), {}
    if archive.is_dir():
        return {name: _map_file(archive / name) for name in wanted}
    with (
        _intact(f"The archive {archive}"),
        tarfile.open(archive, "r:") as tar,
        archive.open("rb") as file,
    ):
        for member in tar:
            name = PurePosixPath(member.name).name
            if name not in wanted:
                continue
            if name in found or not member.isreg():
                raise DataError(
                    f"'{name}' in {archive} is not a regular file or occurs twice: replace the "
                    f"archive."
                )
            found[name] = _mapped(
                file, member.offset_data, member.size, f"'{member.name}' in {archive}"
            )
    if missing := sorted(wanted - set(found)):
        raise DataError(f"The archive {archive} has no member '{missing[0]}': replace it.")
    return found


def _map_file(path: Path) -> NDArray[Any]:
    try:
        with path.open("rb") as file:
            return _mapped(file, 0, path.stat().st_size, str(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): complete its folder.") from None


def _mapped(file: BinaryIO, start: int, size: int, where: str) -> NDArray[Any]:
    """Memory-map the array of a ``.npy`` file at bytes ``start`` to ``start + size`` of another
    file.
    """
    file.seek(start)
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
        begin = file.tell()
        if fortran or dtype.hasobject or begin + math.prod(shape) * dtype.itemsize != start + size:
            raise ValueError("it is not an array of plain numbers in C order")
        return np.memmap(file, dtype=dtype, mode="r", offset=begin, shape=shape)
    except ValueError as error:
        raise DataError(f"{where} is damaged ({error}): replace it.") from None


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        if name == "_reconstruct":
            return _reconstruct
        return getattr(np, name)


def _reconstruct(subtype: type, shape: tuple[int, ...], code: bytes | str) -> np.ndarray:
    """Return the empty plain array that a pickle then fills."""
    return np.ndarray.__new__(np.ndarray, (0,), np.int8)


def unpickle_arrays(stream: BinaryIO, where: str) -> dict[str, Any]:
    """Unpickle a Python 2 dictionary of plain values and NumPy arrays, without running other code.

    Raises DataError: the pickle is damaged or contains other objects.
    """
    try:
        value = _ArrayUnpickler(stream, encoding="latin1").load()
    except Exception as error:  # a malicious pickle can raise any error
        raise DataError(
            f"{where} is not a pickle of plain arrays ({error}): replace the archive."
        ) from None
    if not isinstance(value, dict):
        raise DataError(f"{where} is not a dictionary: replace the archive.")
    return value
