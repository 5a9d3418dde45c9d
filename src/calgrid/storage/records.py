"""Records: JSON files that say what a stage was told and found, and the SHA-256 of every file that it published.

A record carries a checksum of its own content. Whoever reads a published file verifies it against its record with
:meth:`Record.verified`; the workflow looks over all files of a study before it plans (:meth:`Record.damaged`).
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calgrid.errors import DataError, StateError
from calgrid.storage.atomic import read_json, write_json

HIDDEN = ".calgrid"
#: names of the records of stages
TRAIN, PREDICT, CALIBRATE, AGGREGATE = (f"{stage}.json" for stage in ("train", "predict", "calibrate", "aggregate"))
#: a trained network, which the record of its training lists
MODEL = "model.safetensors"
HISTORY = "history.parquet"
#: beside the records of a run that was merged from an archive: who made it; no job may change such a run
ORIGIN = "origin.json"
#: key of a record with the checksum of everything else in it
CHECKSUM = "checksum"
#: key of a record with size and SHA-256 of each file, by its path below the root
FILES = "files"
#: key of a record with the SHA-256 of what the stage has read
INPUTS = "inputs"
#: how every message about a damaged result ends; the workflow makes it true
AGAIN = "run again, and it is made anew"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(content: Any) -> str:
    """SHA-256 of what is JSON-like, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file with a checksum of its content, atomically."""
    plain = json.loads(json.dumps(dict(content)))  # as it will be read: no tuples, keys are strings
    write_json(path, {**plain, CHECKSUM: digest_of(plain)})


def read_record(path: Path, what: str = "record") -> dict[str, Any]:
    """Read what :func:`write_record` wrote, without the checksum.

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
    """Raise StateError unless the facts of a file hold the fingerprint that is expected; any will do for None.

    Parameters
    ----------
    what : the file in messages, with its path. mend : what to do about another fingerprint.
    """
    found = facts.get("fingerprint")
    if expected is not None and found != expected:
        raise StateError(
            f"The {what} belongs to another configuration or code version (fingerprint {found}, expected {expected}): "
            f"{mend}."
        )


def listed(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of files below a folder, for a record."""
    return {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)} for name in names}


@dataclass(frozen=True)
class Record:
    """A record and the files that it lists.

    Attributes
    ----------
    root : folder below which the record and the files lie.
    name : path of the record below it, ``train.json``.
    content : all that it says.
    """

    root: Path
    name: str
    content: Mapping[str, Any]

    @classmethod
    def read(cls, root: Path, name: str) -> "Record":
        """Read a record; raises DataError where it is missing or damaged."""
        return cls(Path(root), name, read_record(Path(root, name), f"{Path(name).stem} record"))

    def verify(self) -> None:
        """Raise DataError or StateError unless all listed files are right."""
        for name in self.files:
            self.verified(name)

    @property
    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """Size and SHA-256 of each file."""
        return self.content.get(FILES, {})

    @property
    def seen(self) -> Path:
        """File with the change time that each file had when its content was last verified."""
        return self.root / HIDDEN / f"{self.name.replace('/', '_').removesuffix('.json')}.seen"

    def sha256(self, name: str) -> str:
        """Listed SHA-256 of a file; raises StateError where the record does not list it."""
        if name not in self.files:
            raise StateError(f"The record {self.root / self.name} does not list {name}: {AGAIN}.")
        return self.files[name]["sha256"]

    def verified(self, name: str, what: str = "file") -> Path:
        """Path of a listed file, after its content was compared with the record.

        Raises DataError: it is missing. StateError: it is not listed, or its content is another one.
        """
        path, expected = self.root / name, self.sha256(name)
        if not path.is_file():
            raise DataError(f"The {what} {path} does not exist: {AGAIN}.")
        if path.stat().st_size != self.files[name]["bytes"] or sha256_of(path) != expected:
            with contextlib.suppress(OSError):  # a disk that can only be read
                self.seen.unlink()  # so that the next call looks at the content too
            raise StateError(f"The {what} {path} is damaged (it has not the SHA-256 of its record): {AGAIN}.")
        return path

    def damaged(self, remember: bool = True) -> list[str]:
        """Names of listed files that are missing or hold something else.

        A file whose change time is the one that was seen when it was last right is not read.

        Parameters
        ----------
        remember : keep the change times, where that is possible, for the next call.
        """
        known, right = self._seen(), {}
        for name, facts in self.files.items():
            path = self.root / name
            try:
                found = path.stat()
                changed = found.st_ctime_ns  # every write sets it, and no program can
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
    """Path of a file that a record lists, after its content was verified: see :meth:`Record.verified`.

    A file that was copied without its record is taken as it is; in a study the workflow makes a missing record again.
    """
    if not Path(root, record).exists():
        return Path(root, name)
    return Record.read(Path(root), record).verified(name, what)


def study_record(out: Path) -> Path:
    """Place of the record of tables, figures or a report, whose folders hold nothing but them."""
    return out.parent / HIDDEN / f"{out.stem}.json"
