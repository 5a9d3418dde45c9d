"""Source files of users: a cheap identity for planning, and a full checksum for the record."""

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

from calgrid.components.fingerprint import digest
from calgrid.errors import ConfigError
from calgrid.storage.records import sha256_of

#: bytes at the end of a file in its identity: a Parquet file has its metadata there
TAIL = 65_536
#: special files by a test of their mode; other non-regular files are devices
SPECIAL = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))


def identity(data_root: str | Path | None, name: str) -> str:
    """Return a hash of a source without reading it completely.

    Of a file count its size and its last 64 KiB, of a folder the names and sizes of all files below
    it; times do not count, so that a copied source is the same source. ``name`` is a path below
    ``data_root``, or below the working directory if that is None.

    Raises
    ------
    ConfigError : it does not exist, cannot be read, or is or holds something else than files and
        folders.
    """
    path = Path(data_root or "", name)
    try:
        if path.is_dir():
            return digest(files_below(path))
        size = _size(path.stat(), str(path))
        with path.open("rb") as file:
            file.seek(max(0, size - TAIL))
            return digest([size, hashlib.sha256(file.read()).hexdigest()])
    except FileNotFoundError:
        raise ConfigError(
            f"the file or folder '{path}' does not exist; {name_data_root(name)}."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"'{error.filename or path}' cannot be read ({error.strerror}); replace it, or correct "
            "its permissions."
        ) from None


def name_data_root(name: str) -> str:
    """Return the end of the error message for a file or folder that is not below ``data_root``."""
    if Path(name).exists():
        return "it is below the folder that you call from, so write the line 'data_root: .'"
    return "put it there, correct the path, or add a line 'data_root: FOLDER' with its folder"


def files_below(folder: Path) -> list[tuple[str, int]]:
    """List all files below a folder as (relative path with slashes, size), sorted, without hidden
    files and folders.

    Links to files and folders are followed, as data sets are often linked together. A link to a
    folder that is being read already, or to one that holds such a folder, would never end or count
    pictures twice: it is refused.

    Raises
    ------
    ConfigError : such a link, a file that is no regular one (a FIFO, a device, a link to nothing),
        or a name that is not UTF-8.
    """
    found: list[tuple[str, int]] = []
    waiting, read = [("", str(folder))], _with_parents(str(folder))
    for prefix, place in waiting:
        with os.scandir(place) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.startswith("."):
                    continue
                status = _status(entry)
                if not stat.S_ISDIR(status.st_mode):
                    found.append((f"{prefix}{entry.name}", _size(status, entry.path)))
                    continue
                waiting.append((f"{prefix}{entry.name}/", entry.path))
                real = os.path.realpath(entry.path)
                if entry.is_symlink() and real in read:
                    raise ConfigError(
                        f"The link '{entry.path}' leads to '{real}', which is read already or "
                        "holds a folder that is; remove the link."
                    )
                read |= _with_parents(real) if entry.is_symlink() else {real}
    return sorted(found)


def _with_parents(folder: str) -> set[str]:
    """Resolved paths of the folder and its parents."""
    real = Path(folder).resolve()
    return {str(place) for place in (real, *real.parents)}


def _status(entry: os.DirEntry[str]) -> os.stat_result:
    """Status of an entry of a folder, links followed."""
    try:
        entry.name.encode()
        return entry.stat()
    except UnicodeEncodeError:
        raise ConfigError(
            f"The name of the file {os.fsencode(entry.path)!r} is not UTF-8; rename it."
        ) from None
    except OSError as error:
        reason = "it is a broken link" if isinstance(error, FileNotFoundError) else error.strerror
        raise ConfigError(f"'{entry.path}' cannot be read ({reason}); mend or remove it.") from None


def _size(status: os.stat_result, path: str) -> int:
    """Size of a regular file; opening a special file may block."""
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for test, name in SPECIAL if test(status.st_mode)), "a device")
        raise ConfigError(
            f"'{path}' is {kind} and no regular file; remove it, or name another file."
        )
    return status.st_size


def record(path: Path, name: str) -> dict[str, Any]:
    """Size and SHA-256 of a file, for a manifest; ``name`` is how the manifest calls it."""
    return {"path": name, "size": path.stat().st_size, "sha256": sha256_of(path)}
