"""Banks of results: archives of ``calgrid pack``, or their unpacked folders, read in place.

``bank.json`` lists the runs; the record of each run's logits has the SHA-256 of their files.
"""

import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from calgrid.calibrators._probabilities import resemble_probabilities
from calgrid.class_names import as_names
from calgrid.errors import DataError
from calgrid.storage.atomic import parse_json
from calgrid.storage.logits import identity_of_rows, read_matrix, read_metadata
from calgrid.storage.records import (
    BANK,
    CHECKSUM,
    FILES,
    PREDICT,
    SPLITS,
    RunKey,
    digest_of,
    logits_file,
    outside,
)

#: folder of the logits of a run: its names become names of folders here
FOLDER = re.compile(r"runs/((?!\.\.?/)[^/\\]+/){4}seed[0-9]+/predict-[0-9a-f]+")
#: an archive may unpack to at most so many times its size, plus so many bytes
UNPACKED_RATIO, UNPACKED_BYTES = 20, 10**8


@dataclass(frozen=True)
class BankRun:
    """A run of a bank.

    Attributes
    ----------
    folder : folder of its logits in the bank.
    files : SHA-256 of each file of logits of val and test, by its path below ``folder``.
    disjoint_validation, sees_validation, draws_validation : how it was trained, as in the manifest
        of its study.
    """

    key: RunKey
    folder: str
    files: Mapping[str, str]
    disjoint_validation: bool = False
    sees_validation: bool = False
    draws_validation: bool = False

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Tested checkpoints."""
        return tuple(dict.fromkeys(Path(name).parent.name for name in self.files))


class BankRows(NamedTuple):
    """Rows of a split: numbers of rows and classes, identity, and class names, if known."""

    size: int
    n_classes: int
    identity: str
    classes: list[str] | None


class Bank:
    """An open bank.

    Attributes
    ----------
    origin : creators, licence and citation of the results. runs : its runs.

    Raises
    ------
    DataError : it has no list of runs, or a file is missing or damaged.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile | None) -> None:
        self.path, self._archive = path, archive
        content = self._record(BANK)
        try:
            self.origin: Mapping[str, Any] = content["origin"]
            self.runs: list[BankRun] = []
            for entry in content["runs"]:
                self.runs.append(self._run(RunKey(**entry.pop("key")), **entry))
        except (LookupError, TypeError, AttributeError):
            raise self._damaged(BANK, "it has another form") from None

    def _run(self, key: RunKey, predict: str, **trained: bool) -> BankRun:
        folder = PurePosixPath(predict)
        if folder.parent != PurePosixPath("runs", key.path) or not FOLDER.fullmatch(predict):
            raise self._damaged(BANK, f"{predict!r} is no folder of {key.path}")
        listed = self._record(f"{predict}/{PREDICT}").get(FILES, {})
        files = {}
        for test in sorted(name for name in listed if name.endswith("/test.parquet")):
            for split in SPLITS:
                name = logits_file(Path(test).parent.name, split)
                if name not in listed:
                    raise self._damaged(f"{predict}/{name}", "it is missing")
                files[name] = listed[name]["sha256"]
        return BankRun(key, predict, files, **trained)

    def read(self, run: BankRun, name: str) -> bytes:
        """Content of a file of logits, verified."""
        path = f"{run.folder}/{name}"
        content = self._content(path)
        if hashlib.sha256(content).hexdigest() != run.files[name]:
            raise self._damaged(path, "its SHA-256 differs from the record")
        return content

    def identity(self, run: BankRun) -> dict[str, BankRows]:
        """The rows of val and test; all files of the run are verified."""
        found, columns = {}, ["index", "label", "logits"]
        for name in run.files:
            table = pq.read_table(BytesIO(self.read(run, name)), columns=columns)
            logits = read_matrix(table, "logits", self.path)
            if resemble_probabilities(logits):
                raise self._damaged(f"{run.folder}/{name}", "its logits are probabilities")
            identity = identity_of_rows(table["index"].to_numpy(), table["label"].to_numpy())
            names = as_names(read_metadata(table).get("classes"))
            found[Path(name).stem] = BankRows(len(table), logits.shape[1], identity, names)
        return found

    def _record(self, name: str) -> dict[str, Any]:
        """Content of a record, without its checksum."""
        try:
            content = parse_json(self._content(name))
            right = content.pop(CHECKSUM) == digest_of(content)
        except (ValueError, LookupError, AttributeError, TypeError):
            right = False
        if not right:
            raise self._damaged(name, "it has been changed since it was written")
        if outer := outside(content):
            raise self._damaged(name, f"it lists {outer!r}, outside of its folder")
        return content

    def _content(self, name: str) -> bytes:
        try:
            return self._archive.read(name) if self._archive else (self.path / name).read_bytes()
        except (KeyError, FileNotFoundError):
            raise self._damaged(name, "it is missing") from None
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise self._damaged(name, str(error)) from None

    def _damaged(self, name: str, reason: str) -> DataError:
        return DataError(f"The bank {self.path} is damaged or no bank ({name}: {reason}).")


@contextmanager
def opened(path: Path) -> Iterator[Bank]:
    """Open an archive or its unpacked folder; see :class:`Bank` for refused ones."""
    if path.is_dir():
        yield Bank(path, None)
        return
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise DataError(f"The bank {path} is not a readable archive ({error}).") from None
    with archive:
        check_unpacked(archive, path)
        yield Bank(path, archive)


def check_unpacked(archive: zipfile.ZipFile, path: Path) -> None:
    """Raise DataError if an archive would fill the memory or the disk."""
    size = sum(member.file_size for member in archive.infolist())
    if size > UNPACKED_RATIO * path.stat().st_size + UNPACKED_BYTES:
        raise DataError(f"{path} would unpack to {size / 1e9:.1f} GB, far more than its own size.")
