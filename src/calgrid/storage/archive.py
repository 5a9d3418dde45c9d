"""Archives: results of one laboratory in one zip file, for another one.

``SHA256SUMS`` lists the SHA-256 of all its files. They are stored as they are (Parquet is
compressed), in the order of their names and without times: equal results give equal bytes.
"""

import hashlib
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from calgrid.errors import DataError
from calgrid.storage.atomic import flush, replacing, require_file
from calgrid.storage.logits import read_column, read_table
from calgrid.storage.records import sha256_of

ABOUT, STUDY, RUNS, SPLITS, SUMS = (
    "bank.json",
    "study.yaml",
    "runs.parquet",
    "splits.parquet",
    "SHA256SUMS",
)
#: the form of archives; raised when a reader of old ones would misread new ones
SCHEMA = 1
#: columns of a logits file that identify its rows
_ROWS = ("index", "label", "shift", "severity")
_MEMBER = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*", re.ASCII)
_LINE = re.compile(rf"([0-9a-f]{{64}})  ({_MEMBER.pattern})", re.ASCII)
#: errors of reading a damaged zip file; OSError for a negative seek position
_DAMAGED = (zipfile.BadZipFile, EOFError, ValueError, RuntimeError, OSError)


def write_archive(path: Path, files: Mapping[str, Path], digests: Mapping[str, str]) -> None:
    """Write an archive atomically, from its files and their SHA-256 by name in the archive."""
    sums = "".join(f"{digests[name]}  {name}\n" for name in sorted(files))
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name in sorted([*files, SUMS]):
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.external_attr, entry.create_system = 0o644 << 16, 3
            if name == SUMS:
                archive.writestr(entry, sums)
                continue
            entry.file_size = files[name].stat().st_size
            with files[name].open("rb") as source, archive.open(entry, "w") as target:
                shutil.copyfileobj(source, target, 2**20)


def unpack_archive(path: Path, folder: Path) -> dict[str, str]:
    """Unpack an archive into an empty folder; return the SHA-256 of each file, all of which were
    compared.

    Raises DataError: the file is missing or no archive, or a file in it is damaged, missing or not
    listed; it is named.
    """
    require_file(path, "archive")
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGED as error:
        raise DataError(
            f"{path} is damaged or no zip file ({str(error).rstrip('.')}): fetch it again."
        ) from None
    with archive:
        _unpack(archive, SUMS, path, folder)
        lines = (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
        found = [_LINE.fullmatch(line) for line in lines]
        sums = {match[2]: match[1] for match in found if match}
        if (
            None in found
            or len(sums) != len(lines)
            or sorted([*sums, SUMS]) != sorted(archive.namelist())
        ):
            raise DataError(
                f"{path} does not hold the files that its {SUMS} lists: fetch it again."
            )
        for name, digest in sums.items():
            _unpack(archive, name, path, folder)
            if sha256_of(folder / name) != digest:
                raise DataError(
                    f"{name} in {path} is damaged (its SHA-256 differs from {SUMS}): fetch it "
                    f"again."
                )
    return sums


def _unpack(archive: zipfile.ZipFile, name: str, path: Path, folder: Path) -> None:
    """Write a file of an archive into the folder."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        for block in _blocks(archive, name, path):
            file.write(block)
    flush(target)


def _blocks(archive: zipfile.ZipFile, name: str, path: Path) -> Iterator[bytes]:
    try:
        entry = archive.getinfo(name)
        if (
            entry.compress_type != zipfile.ZIP_STORED
        ):  # stored members cannot expand beyond the archive's size
            raise zipfile.BadZipFile("it is compressed")
        with archive.open(entry) as content:
            while block := content.read(2**20):
                yield block
    except KeyError:
        raise DataError(
            f"{path} is not an archive of calgrid ({name} is missing); give the output of 'calgrid "
            f"pack'."
        ) from None
    except _DAMAGED as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise DataError(f"{name} in {path} is damaged ({reason}): fetch it again.") from None


def logits_names(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield split or shift family, and path, of the logits files among the files of a run."""
    for name in files:
        folder, _, below = name.partition("/")
        if folder == "logits" and name.endswith(".parquet"):
            yield below.partition("/")[2].removesuffix(".parquet"), name


def rows_of(path: Path) -> tuple[int, str]:
    """Number of rows of a logits file, and SHA-256 of their index, label and (of shifts) shift and
    severity.
    """
    table = read_table(path, "logits file", columns=_ROWS)
    columns = {name: read_column(table, name, path) for name in _ROWS if name in table.column_names}
    return table.num_rows, digest_of_rows(**columns)


def digest_of_rows(index: np.ndarray, label: np.ndarray, **settings: np.ndarray) -> str:
    """SHA-256 of the rows of a split: index and label as little-endian int32, then the settings,
    one per line.
    """
    digest = hashlib.sha256()
    for values in (index, label):
        digest.update(np.ascontiguousarray(values, "<i4").tobytes())
    for name in sorted(settings):
        digest.update("\n".join(map(str, settings[name].tolist())).encode())
    return digest.hexdigest()
