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
from collections.abc import Callable, Iterable, Iterator, Mapping
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
#: name of a member of an archive, its bytes (None if it is no regular file), and its content
Member = tuple[str, int | None, Callable[[], bytes]]
#: errors of reading a damaged archive; an encrypted zip file raises RuntimeError
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError)


def each_member(archive: Path, limits: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """Read members of a zip or (compressed) tar archive in the archive's order.

    Parameters
    ----------
    archive : file, or its unpacked folder; the names of members then start with the name of the
        folder.
    limits : exact name of a member (without a leading ``./``) -> maximum bytes.

    Yields
    ------
    Name and content of each member, once.

    Raises
    ------
    DataError : the archive is damaged, or a member is missing, duplicated, not a regular file or
        too large.
    """
    seen = set()
    with _intact(f"The archive {archive}"):
        for name, size, read in _members(archive):
            limit = limits.get(name)
            if limit is None:
                continue
            if name in seen or size is None or size > limit:
                raise DataError(
                    f"'{name}' in {archive} is not a regular file of at most {limit:,} "
                    "bytes, or occurs twice: this is not the published archive, replace it."
                )
            seen.add(name)
            yield name, read()
    for name in limits:
        if name not in seen:
            raise DataError(f"The archive {archive} has no member '{name}'; replace it.")


def list_members(archive: Path) -> list[str]:
    """Return the names of the regular files of an archive or unpacked folder, as
    :func:`each_member` takes them.

    Raises
    ------
    DataError : the archive is damaged.
    """
    with _intact(f"The archive {archive}"):
        return [name for name, size, _ in _members(archive) if size is not None]


def _members(archive: Path) -> Iterator[Member]:
    if archive.is_dir():
        for name, size in files_below(archive):
            yield f"{archive.name}/{name}", size, (archive / name).read_bytes
    elif zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as pack:
            for entry in pack.infolist():
                bytes_of_file = None if entry.is_dir() else entry.file_size
                yield _plain(entry.filename), bytes_of_file, partial(pack.read, entry)
    else:
        with tarfile.open(archive, "r:*") as tar:
            for info in _each_info(tar):
                stream = tar.extractfile(info) if info.isreg() else None
                if stream is None:
                    yield _plain(info.name), None, bytes
                else:
                    yield _plain(info.name), info.size, stream.read


def _each_info(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for info in tar:
        yield info
        vars(tar)["members"] = []  # or every member of a large archive would stay in memory


def _plain(name: str) -> str:
    return name.removeprefix("./")


@dataclass(frozen=True)
class Archive:
    """Regular files of a folder, an uncompressed tar archive or a zip archive, in any order.

    Attributes
    ----------
    place : the folder or archive.
    sizes : name of each file, without a leading ``./``, -> its bytes.
    read : returns the content of a file by its name.
    """

    place: Path
    sizes: Mapping[str, int]
    read: Callable[[str], bytes]


def open_archive(place: Path, wanted: Callable[[str], bool] = bool) -> Archive:
    """Open a folder or an archive for its regular files.

    Parameters
    ----------
    wanted : selects files by their name; by default all.

    Raises
    ------
    DataError : the archive is damaged or a compressed tar archive.
    """
    if place.is_dir():
        sizes = {name: size for name, size in files_below(place) if wanted(name)}
        return Archive(place, sizes, lambda name: (place / name).read_bytes())
    return _open_zip(place, wanted) if zipfile.is_zipfile(place) else _open_tar(place, wanted)


def _open_zip(place: Path, wanted: Callable[[str], bool]) -> Archive:
    with _intact(f"The archive {place}"):
        pack = zipfile.ZipFile(place)
    members = {
        _plain(info.filename): info
        for info in pack.infolist()
        if not info.is_dir() and wanted(_plain(info.filename))
    }

    def read(name: str) -> bytes:
        with _intact(f"'{name}' in {place}"):
            return pack.read(members[name])

    return Archive(place, {name: info.file_size for name, info in members.items()}, read)


def _open_tar(place: Path, wanted: Callable[[str], bool]) -> Archive:
    sizes: dict[str, int] = {}
    offsets: dict[str, int] = {}
    with _intact(f"The archive {place}"), tarfile.open(place, "r:") as tar:
        for info in _each_info(tar):
            name = _plain(info.name)
            if info.isreg() and wanted(name):
                sizes[name], offsets[name] = info.size, info.offset_data
    file = place.open("rb")

    def read(name: str) -> bytes:
        content = os.pread(file.fileno(), sizes[name], offsets[name])
        if len(content) != sizes[name]:
            raise DataError(f"The archive {place} is truncated within '{name}'; replace it.")
        return content

    return Archive(place, sizes, read)


@contextlib.contextmanager
def _intact(what: str) -> Iterator[None]:
    """Turn errors of a damaged archive, or of a member, into a DataError about it."""
    try:
        yield
    except DAMAGED as error:
        raise DataError(f"{what} is damaged ({error}); replace it.") from None


def map_arrays(archive: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Memory-map ``.npy`` files of an uncompressed tar archive, given by their file names, without
    unpickling.

    An unpacked folder can replace the archive.

    Raises
    ------
    DataError : the archive is damaged or compressed, or a file is missing, duplicated or not a
        plain array.
    """
    wanted = set(names)
    arrays: dict[str, NDArray[Any]] = {}
    if archive.is_dir():
        for name in wanted:
            path = archive / name
            try:
                with path.open("rb") as file:
                    arrays[name] = _mapped(file, 0, path.stat().st_size, str(path))
            except OSError as error:
                raise DataError(
                    f"{path} cannot be read ({error.strerror}); complete its folder."
                ) from None
        return arrays
    with (
        _intact(f"The archive {archive}"),
        tarfile.open(archive, "r:") as tar,
        archive.open("rb") as file,
    ):
        for info in tar:
            name = PurePosixPath(info.name).name
            if name not in wanted:
                continue
            where = f"'{info.name}' in {archive}"
            if name in arrays or not info.isreg():
                raise DataError(
                    f"'{name}' in {archive} is not a regular file or occurs twice; replace the "
                    "archive."
                )
            arrays[name] = _mapped(file, info.offset_data, info.size, where)
    missing = sorted(wanted - set(arrays))
    if missing:
        raise DataError(f"The archive {archive} has no member '{missing[0]}'; replace it.")
    return arrays


def _mapped(file: BinaryIO, start: int, size: int, where: str) -> NDArray[Any]:
    """Memory-map the array of a ``.npy`` file at bytes ``start`` to ``start + size`` of another
    file.
    """
    file.seek(start)
    try:
        read_header = np.lib.format.read_array_header_2_0
        if np.lib.format.read_magic(file) == (1, 0):
            read_header = np.lib.format.read_array_header_1_0
        shape, fortran, dtype = read_header(file)
        begin = file.tell()
        if fortran or dtype.hasobject or begin + math.prod(shape) * dtype.itemsize != start + size:
            raise ValueError("it is not an array of plain numbers in C order")
        return np.memmap(file, dtype=dtype, mode="r", offset=begin, shape=shape)
    except ValueError as error:
        raise DataError(f"{where} is damaged ({error}); replace it.") from None


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


def unpickle_arrays(stream: BinaryIO, where: str) -> dict[str, object]:
    """Unpickle a Python 2 dictionary of plain values and NumPy arrays, without running other code.

    Raises
    ------
    DataError : the pickle is damaged or contains other objects.
    """
    try:
        value = _ArrayUnpickler(stream, encoding="latin1").load()
    except Exception as error:  # a malicious pickle can raise any error
        raise DataError(
            f"{where} is not a pickle of plain arrays ({error}); replace the archive."
        ) from None
    if not isinstance(value, dict):
        raise DataError(f"{where} is not a dictionary; replace the archive.")
    return value
