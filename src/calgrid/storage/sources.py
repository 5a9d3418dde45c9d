"""Files of users: the SHA-256 of their content, and lists of files below a folder."""

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NotRequired, TypedDict

from calgrid.errors import ConfigError
from calgrid.progress import Progress
from calgrid.storage.atomic import write_json
from calgrid.storage.records import sha256_of

#: special files by a test of their mode; other non-regular files are devices
SPECIAL = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
#: digests of files and folders of so many bytes are kept for the next call
KEPT_BYTES = 2**20
#: seconds in which a file may change twice with the same mtime; a younger file is read again
SETTLED_SECONDS = 2.0
#: files of a folder that are read at once
READERS = 8
#: files of a folder from which on progress is shown
MANY_FILES = 10_000
#: status of a file, by its name below a folder; '' of a file itself
Statuses = Sequence[tuple[str, os.stat_result]]


def source_digest(data_root: str | Path | None, name: str) -> str:
    """Return the SHA-256 of a file, or of a folder: of the names and digests of all files below it.

    The source's own name, place and times do not count, so that a copy has the same digest.
    ``name`` is a path below ``data_root``, or below the working directory if None. Digests of large
    sources are cached in the user's cache folder (``XDG_CACHE_HOME``) until the size, a time or the
    inode of a file changes.

    Raises
    ------
    ConfigError : it does not exist, cannot be read, is or holds something else than files and
        folders, or changes while it is read.
    """
    path = Path(data_root or "", name)
    try:
        return _digest(path)
    except FileNotFoundError as error:
        raise ConfigError(
            f"the file or folder '{error.filename}' does not exist; {name_data_root(name)}."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"'{error.filename or path}' cannot be read ({error.strerror}); replace it, or correct "
            "its permissions."
        ) from None


def _digest(path: Path) -> str:
    begin, statuses = time.time(), _statuses(path)
    state, kept = _state(statuses), cache_file("sources", str(path.resolve()))
    size = sum(status.st_size for _, status in statuses)
    if size >= KEPT_BYTES and (found := _read_kept(kept)).get("state") == state:
        return str(found["sha256"])
    if path.is_dir():
        digests = _digests(path, [name for name, _ in statuses])
        content = hashlib.sha256(json.dumps(digests).encode()).hexdigest()
    else:
        content = sha256_of(path)
    if _state(_statuses(path)) != state:
        raise ConfigError(f"'{path}' changes while it is read; wait until it is complete.")
    newest = max((max(each.st_mtime, each.st_ctime) for _, each in statuses), default=0.0)
    if kept is not None and size >= KEPT_BYTES and newest < begin - SETTLED_SECONDS:
        keep(kept, {"path": str(path.resolve()), "state": state, "sha256": content})
    return content


def _statuses(path: Path) -> Statuses:
    if path.is_dir():
        return _files_below(path)
    return [("", _regular(path.stat(), str(path)))]


def _state(statuses: Statuses) -> str:
    """Hash of all file attributes that change on a write."""
    state = [
        [name, each.st_size, each.st_mtime_ns, each.st_ctime_ns, each.st_ino]
        for name, each in statuses
    ]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def _digests(folder: Path, names: Iterable[str]) -> list[tuple[str, str]]:
    """Name and SHA-256 of each file of a folder."""
    paths = {name: folder / name for name in names}
    with ThreadPoolExecutor(READERS) as readers:
        digests = readers.map(_file_digest, paths.values())
        if len(paths) < MANY_FILES:
            return list(zip(paths, digests, strict=True))
        found = []
        with Progress(f"read {folder}", len(paths), "file") as progress:
            for each in zip(paths, digests, strict=True):
                found.append(each)
                progress.advance()
    return found


def _file_digest(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # reading, unlike opening, does not name it
        raise


def cache_file(room: str, key: str | bytes) -> Path | None:
    """File of a key in a room of the user's cache folder; None without such a folder."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return None
    return Path(cache, "calgrid", room, f"{hashlib.sha256(os.fsencode(key)).hexdigest()}.json")


def _read_kept(path: Path | None) -> Mapping[str, object]:
    try:
        found = json.loads(path.read_bytes()) if path else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def keep(path: Path, content: dict[str, str]) -> None:
    """Write a file of the cache folder, if writable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, content)
    except OSError:  # a cache folder that is full or of somebody else: read again next time
        return


def name_data_root(name: str) -> str:
    """Return the end of the error message for a file or folder that is not below ``data_root``."""
    if Path(name).exists():
        return (
            "it is below the folder that you call from: write its path below data_root, or the "
            "line 'data_root: .', if no other file of the study is below another folder"
        )
    return "put it there, correct the path, or add a line 'data_root: FOLDER' with its folder"


def files_below(folder: Path) -> list[tuple[str, int]]:
    """List all files below a folder as (relative path with slashes, size), sorted, without hidden
    files and folders.

    Links to files and folders are followed, as data sets are often linked together. A link to a
    folder being read, or to a parent of one, would never end or count pictures twice, and is
    refused.

    Raises
    ------
    ConfigError : such a link, a file that is no regular one (a FIFO, a device, a link to nothing),
        or a name that is not UTF-8.
    """
    return [(name, status.st_size) for name, status in _files_below(folder)]


def _files_below(folder: Path) -> Statuses:
    found: list[tuple[str, os.stat_result]] = []
    waiting, read = [("", str(folder))], _with_parents(str(folder))
    for prefix, place in waiting:
        with os.scandir(place) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.startswith("."):
                    continue
                status = _status(entry)
                if not stat.S_ISDIR(status.st_mode):
                    found.append((f"{prefix}{entry.name}", _regular(status, entry.path)))
                    continue
                waiting.append((f"{prefix}{entry.name}/", entry.path))
                real = os.path.realpath(entry.path)
                if entry.is_symlink() and real in read:
                    raise ConfigError(
                        f"The link '{entry.path}' leads to '{real}', which is read already or "
                        "holds a folder that is; remove the link."
                    )
                read |= _with_parents(real) if entry.is_symlink() else {real}
    return sorted(found, key=lambda each: each[0])


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


def _regular(status: os.stat_result, path: str) -> os.stat_result:
    """Return the status of a regular file; ConfigError for others, whose opening may block."""
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for test, name in SPECIAL if test(status.st_mode)), "a device")
        raise ConfigError(
            f"'{path}' is {kind} and no regular file; remove it, or name another file."
        )
    return status


class SourceRecord(TypedDict):
    """A source file in a manifest, or a folder of so many ``files``; an unpacked archive has no
    size.
    """

    path: str
    size: NotRequired[int]
    sha256: NotRequired[str]
    files: NotRequired[int]


def record(path: Path, name: str) -> SourceRecord:
    """Size and SHA-256 of a file, for a manifest with ``name`` as its name."""
    return {"path": name, "size": path.stat().st_size, "sha256": sha256_of(path)}
