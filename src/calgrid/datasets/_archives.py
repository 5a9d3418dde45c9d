"""Archives and pickles of published data sets, read without trusting them.

Nothing is ever extracted: the members that are needed are read by their exact names, so no path in an archive can reach
outside a folder. A member must be a regular file of at most the size that is expected.
"""

import math
import pickle
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from calgrid.errors import DataError

#: what the pickled NumPy arrays of the CIFAR archives are made of, under NumPy's old name and its new one
ALLOWED = frozenset(
    {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
    }
)


def read_members(archive: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    """Read members of a tar archive, compressed or not.

    Parameters
    ----------
    archive : file. limits : exact name of a member -> most bytes that it may have.

    Raises
    ------
    DataError : the archive is damaged, or a member is missing, twice there, no regular file or too large.
    """
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                if member.name not in limits:
                    continue
                if member.name in found or not member.isreg() or member.size > limits[member.name]:
                    raise DataError(
                        f"'{member.name}' in {archive} is no regular file of at most {limits[member.name]:,} bytes, or "
                        "is there twice: this is not the published archive, replace it."
                    )
                stream = tar.extractfile(member)
                found[member.name] = stream.read() if stream is not None else b""
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"The archive {archive} is damaged ({error}): replace it.") from None
    if missing := [name for name in limits if name not in found]:
        raise DataError(f"The archive {archive} has no member '{missing[0]}': replace it.")
    return found


def map_arrays(archive: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Map ``.npy`` files, by their last names, out of an uncompressed tar archive without copying or unpickling them.

    Raises
    ------
    DataError : the archive is damaged or compressed, or a file is missing, twice there or no plain array.
    """
    wanted, found = set(names), {}
    try:
        with tarfile.open(archive, "r:") as tar, archive.open("rb") as file:
            for member in tar:
                name = PurePosixPath(member.name).name
                if name not in wanted:
                    continue
                if name in found or not member.isreg():
                    raise DataError(f"'{name}' in {archive} is no regular file or there twice: replace the archive.")
                found[name] = _mapped(file, member, f"'{member.name}' in {archive}")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"The archive {archive} is damaged ({error}): replace it.") from None
    if missing := sorted(wanted - set(found)):
        raise DataError(f"The archive {archive} has no member '{missing[0]}': replace it.")
    return found


def _mapped(file: BinaryIO, member: tarfile.TarInfo, where: str) -> NDArray[Any]:
    file.seek(member.offset_data)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        begin = file.tell()
        if fortran or dtype.hasobject or begin + math.prod(shape) * dtype.itemsize != member.offset_data + member.size:
            raise ValueError("it is no array of plain numbers in C order")
        return np.memmap(file, dtype=dtype, mode="r", offset=begin, shape=shape)
    except ValueError as error:
        raise DataError(f"{where} is damaged ({error}): replace the archive.") from None


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        if name == "_reconstruct":
            return _reconstruct
        return getattr(np, name)


def _reconstruct(subtype: type, shape: tuple[int, ...], code: bytes | str) -> np.ndarray:
    """Return the empty array that a pickle then fills; always a plain one."""
    return np.ndarray.__new__(np.ndarray, (0,), np.int8)


def unpickle_arrays(stream: BinaryIO, where: str) -> dict[str, Any]:
    """Unpickle a dictionary of plain values and NumPy arrays, as Python 2 wrote it; nothing else is run.

    Raises
    ------
    DataError : the pickle is damaged, holds something else, or asks for anything but arrays.
    """
    try:
        value = _ArrayUnpickler(stream, encoding="latin1").load()
    except Exception as error:  # a hostile pickle can make the unpickler raise anything
        raise DataError(f"{where} is no pickle of plain arrays ({error}): replace the archive.") from None
    if not isinstance(value, dict):
        raise DataError(f"{where} holds no dictionary: replace the archive.")
    return value
