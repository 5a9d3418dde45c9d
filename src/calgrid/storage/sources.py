"""Source files that a user supplies: a cheap identity for planning, and the whole truth for the record."""

import hashlib
import os
from pathlib import Path
from typing import Any

from calgrid.errors import ConfigError
from calgrid.fingerprint import digest

#: bytes at the end of a file that its identity covers: a Parquet file describes there all that it holds
TAIL = 65_536


def identity(data_root: str | Path | None, name: str) -> str:
    """Identify a source without reading it as a whole.

    Of a file count its size and its last 64 KiB, of a folder the names and sizes of all files below it; times do not
    count, so that a copied source is the same source.

    Parameters
    ----------
    data_root : folder of the sources; the working directory if None.
    name : path of a file or folder below it.

    Raises
    ------
    ConfigError : it does not exist.
    """
    path = Path(data_root or "", name)
    if path.is_dir():
        return digest([[relative, size] for relative, size in files_below(path)])
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            return digest([size, hashlib.sha256(file.read()).hexdigest()])
    except FileNotFoundError:
        raise ConfigError(f"the file or folder '{path}' does not exist; correct the path or data_root.") from None


def files_below(folder: Path) -> list[tuple[str, int]]:
    """All files below a folder as (relative path with slashes, size), sorted; hidden files and folders are left out."""
    found = []
    waiting = [("", str(folder))]
    for prefix, place in waiting:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    waiting.append((f"{prefix}{entry.name}/", entry.path))
                else:
                    found.append((f"{prefix}{entry.name}", entry.stat().st_size))
    return sorted(found)


def record(path: Path, name: str) -> dict[str, Any]:
    """Size and SHA-256 of a file, for a manifest; ``name`` is how the manifest calls it."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return {"path": name, "size": file.tell(), "sha256": sha256}
