"""Records: JSON files with inputs and results of a stage, and the SHA-256 of its files.

A record contains a checksum of itself. Readers of a published file verify it with
:meth:`Record.verified`; the workflow checks all files of a study before planning
(:meth:`Record.damaged`).
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from calgrid.errors import DataError, StateError
from calgrid.storage.atomic import read_json, write_json

HIDDEN = ".calgrid"
#: file names of the records of stages
TRAIN, PREDICT, CALIBRATE, AGGREGATE = (
    f"{stage}.json" for stage in ("train", "predict", "calibrate", "aggregate")
)
#: file of a trained network
MODEL = "model.safetensors"
HISTORY = "history.parquet"
#: origin of a run that was merged from an archive; no job may change such a run
ORIGIN = "origin.json"
#: record key of the checksum of all other keys
CHECKSUM = "checksum"
#: record key of size and SHA-256 of each file, by its path below the root
FILES = "files"
#: record key of the SHA-256 of each input of the stage
INPUTS = "inputs"
#: end of every message about a damaged result, which the workflow recreates
AGAIN = "run again to recompute it"


class FileFacts(TypedDict):
    """Size and SHA-256 of a file in a record."""

    bytes: int
    sha256: str


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(content: Any) -> str:
    """SHA-256 of a JSON-like value, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file with a checksum of its content, atomically."""
    plain = json.loads(json.dumps(dict(content)))  # as read later: no tuples, keys are strings
    write_json(path, {**plain, CHECKSUM: digest_of(plain)})


def read_record(path: Path, what: str = "record") -> dict[str, Any]:
    """Read a file of :func:`write_record`, without the checksum.

    Raises DataError: the file is missing or damaged; the message names ``what`` it is.
    """
    content = read_json(path, what, AGAIN)
    found = content.pop(CHECKSUM, None) if isinstance(content, dict) else None
    if found is None or found != digest_of(content):
        raise DataError(f"The {what} {path} has been changed since it was written: {AGAIN}.")
    return content


def check_fingerprint(
    facts: Mapping[str, Any], expected: str | None, what: str, mend: str = "delete it and run again"
) -> None:
    """Raise StateError unless ``facts`` have the expected fingerprint; None accepts any.

    The message names the file, ``what`` with its path, and how to ``mend`` it.
    """
    found = facts.get("fingerprint")
    if expected is not None and found != expected:
        raise StateError(
            f"The {what} belongs to another configuration or code version (fingerprint {found}, "
            f"expected {expected}): "
            f"{mend}."
        )


def listed(folder: Path, names: Iterable[str]) -> dict[str, FileFacts]:
    """Return size and SHA-256 of files below a folder, for a record."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)}
        for name in names
    }


@dataclass(frozen=True)
class Record:
    """A record and the files that it lists.

    Attributes
    ----------
    root : folder of the record and the files.
    name : path of the record below it, ``train.json``.
    content : its content.
    """

    root: Path
    name: str
    content: Mapping[str, Any]

    @classmethod
    def read(cls, root: Path, name: str) -> "Record":
        """Read a record; raise DataError if it is missing or damaged."""
        return cls(Path(root), name, read_record(Path(root, name), f"{Path(name).stem} record"))

    def verify(self) -> None:
        """Raise DataError or StateError unless all listed files are intact."""
        for name in self.files:
            self.verified(name)

    @property
    def files(self) -> Mapping[str, FileFacts]:
        """Size and SHA-256 of each file."""
        return self.content.get(FILES, {})

    @property
    def seen(self) -> Path:
        """File with the change time of each file at its last verification."""
        return self.root / HIDDEN / f"{self.name.replace('/', '_').removesuffix('.json')}.seen"

    def sha256(self, name: str) -> str:
        """Return the listed SHA-256 of a file; raise StateError if the record does not list it."""
        if name not in self.files:
            raise StateError(f"The record {self.root / self.name} does not list {name}: {AGAIN}.")
        return self.files[name]["sha256"]

    def verified(self, name: str, what: str = "file") -> Path:
        """Verify the content of a listed file and return its path.

        Raises DataError: it is missing. StateError: it is not listed, or its content is another
        one.
        """
        path, expected = self.root / name, self.sha256(name)
        if not path.is_file():
            raise DataError(f"The {what} {path} does not exist: {AGAIN}.")
        if path.stat().st_size != self.files[name]["bytes"] or sha256_of(path) != expected:
            with contextlib.suppress(OSError):  # a read-only disk
                self.seen.unlink()  # so that the next call reads the content again
            raise StateError(
                f"The {what} {path} is damaged (its SHA-256 differs from the record): {AGAIN}."
            )
        return path

    def damaged(self, remember: bool = True) -> list[str]:
        """Return the names of listed files that are missing or changed.

        A file with the change time of its last verification is not read. ``remember`` stores the
        change times for the next call, if possible.
        """
        known, right = self._seen(), {}
        for name, facts in self.files.items():
            path = self.root / name
            try:
                found = path.stat()
                changed = found.st_ctime_ns  # set by every write, and not settable by programs
                if found.st_size == facts["bytes"] and (
                    changed == known.get(name) or sha256_of(path) == facts["sha256"]
                ):
                    right[name] = changed
            except OSError:
                continue
        if remember and right != known:
            with contextlib.suppress(OSError, StateError):
                write_json(self.seen, right)
        return [name for name in self.files if name not in right]

    def _seen(self) -> dict[str, int]:
        try:
            return read_json(self.seen)
        except (DataError, OSError):
            return {}


def verified(root: Path | str, record: str, name: str, what: str = "file") -> Path:
    """Verify a file listed in a record and return its path: see :meth:`Record.verified`.

    A file that was copied without its record is not verified; in a study the workflow recreates a
    missing record.
    """
    if not Path(root, record).exists():
        return Path(root, name)
    return Record.read(Path(root), record).verified(name, what)


def study_record(out: Path) -> Path:
    """Path of the record of tables, figures or a report."""
    return out.parent / HIDDEN / f"{out.stem}.json"
