"""Atomic files: readers see the old file or the new one, never a part of it."""

import contextlib
import errno
import json
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calgrid.errors import DataError, StateError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of ``path`` to write to; on success it takes the place of ``path``.

    On any error, also a full disk or a kill, ``path`` is as it was. The data reach the disk before the rename, so
    that a power cut leaves no empty file under the final name. The file's mode follows the umask, whoever writes it.
    Errors of the file system name ``path``, never the sibling.
    """
    path = Path(path)
    with _sibling(path) as temporary:
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        temporary.chmod(mode)  # some writers (safetensors) make their file private
        flush(temporary)
        temporary.replace(path)


def require_writable(path: Path) -> None:
    """Raise now what writing ``path`` would raise because of its name, its folder or permissions."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with _sibling(path), contextlib.suppress(FileNotFoundError):
        path.lstat()


@contextlib.contextmanager
def _sibling(path: Path) -> Iterator[Path]:
    """An empty file in the folder of ``path``, which is gone afterwards unless it was renamed."""
    # the start of the name tells whose it is; all of a long name would be too long with what is added to it
    temporary = path.with_name(f".{path.name[:40]}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        yield temporary
    except OSError as error:
        if str(error.filename) == str(temporary):
            error = type(error)(error.errno, error.strerror, str(path))
        raise disk_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def disk_error(error: OSError, path: Path) -> OSError | StateError:
    """Turn what is said of disks and names of files into one sentence; every other error is returned as it is."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StateError(
            f"The disk is full while writing {path}: nothing was changed there; free some space and run again."
        )
    if error.errno == errno.ENAMETOOLONG:
        return StateError(f"The path {path} is too long for this file system: give shorter names.")
    if error.errno == errno.EROFS:
        return StateError(f"The path {path} is on a file system that can only be read: write somewhere else.")
    return error


def flush(path: Path) -> None:
    """Force a file's content to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, keys sorted, so that equal content gives equal bytes."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=True) + "\n")


def require_file(path: Path, what: str = "file") -> None:
    """Raise DataError where ``path`` is missing or a folder, PermissionError where it is there but closed to us."""
    if path.is_dir():
        raise DataError(f"The {what} {path} is a folder: give the file itself.")
    if not path.is_file():
        raise DataError(f"The {what} {path} does not exist.")
    path.open("rb").close()


def read_json(path: Path, what: str = "file", mend: str = "delete it and run again") -> Any:
    """Read a JSON file; a missing or damaged one raises DataError naming ``what`` it is, and how to ``mend`` it."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"The {what} {path} does not exist.") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(f"The {what} {path} is not valid JSON ({error}): {mend}.") from None
