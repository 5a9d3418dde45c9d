"""Atomic files: readers see the old file or the new one, never a part of it."""

import contextlib
import errno
import json
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calgrid.errors import DataError, StateError

#: error numbers of a disk on which there is no room
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file in the folder of ``path``; on success it replaces ``path``.

    On any error, including a full disk or a kill, ``path`` is unchanged. The data are flushed
    before the rename, so that a power cut leaves no empty file under the final name. The file mode
    follows the umask. Errors of the file system name ``path``, not the temporary file.
    """
    path = Path(path)
    with _sibling(path) as temporary:
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        temporary.chmod(mode)  # some writers (safetensors) make their file private
        flush(temporary)
        temporary.replace(path)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, renamed to ``path`` on success, and removed on any error; ``path``
    must not exist or be empty.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name[:40]}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        temporary.rename(path)
    except OSError as error:
        raise disk_error(error, path) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def require_writable(path: Path) -> None:
    """Raise the error that writing ``path`` would, because of name, folder or permissions."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with _sibling(path), contextlib.suppress(FileNotFoundError):
        path.lstat()


@contextlib.contextmanager
def _sibling(path: Path) -> Iterator[Path]:
    """Create an empty temporary file beside ``path``; it is deleted afterwards unless renamed."""
    # only the start of the name: a long name with the suffix would exceed the limit of the file
    # system
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
    """Return errors of disks and file names as one sentence, and other errors unchanged."""
    if error.errno in FULL:
        return StateError(
            f"The disk is full while writing {path}: nothing was changed there; free some space "
            "and run again."
        )
    if error.errno == errno.ENAMETOOLONG:
        return StateError(f"The path {path} is too long for this file system; give shorter names.")
    if error.errno == errno.EROFS:
        return StateError(
            f"The path {path} is on a file system that can only be read; write somewhere else."
        )
    return error


def link_or_copy(source: Path, target: Path) -> None:
    """Make ``target`` a hard link to ``source``, or a copy on a file system without hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        with replacing(target) as temporary:
            shutil.copyfile(source, temporary)


def flush(path: Path) -> None:
    """Flush a file's content to the disk."""
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


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    """Write a JSON file atomically, keys sorted, so that equal content gives equal bytes.

    Without ``indent`` it is one line, written many times faster.
    """
    text = json.dumps(value, indent=indent, sort_keys=True, allow_nan=True)
    write_bytes(path, f"{text}\n".encode())


def require_file(path: Path, what: str = "file") -> None:
    """Raise DataError if ``path`` is missing or a folder, PermissionError if it cannot be read."""
    if path.is_dir():
        raise DataError(f"The {what} {path} is a folder; give the file itself.")
    if not path.is_file():
        raise DataError(f"The {what} {path} does not exist.")
    path.open("rb").close()


def parse_json(text: str | bytes) -> Any:
    """Parse JSON of a file; raise ValueError if it is not valid, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path, what: str = "file", mend: str = "delete it and run again") -> Any:
    """Read a JSON file; DataError, with its name ``what`` and the fix ``mend``, if it is missing or
    damaged.
    """
    try:
        return parse_json(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"The {what} {path} does not exist.") from None
    except IsADirectoryError:
        raise DataError(f"The {what} {path} is a folder; {mend}.") from None
    except ValueError as error:
        raise DataError(f"The {what} {path} is not valid JSON ({error}); {mend}.") from None
