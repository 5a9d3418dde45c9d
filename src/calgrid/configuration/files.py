"""Folders and files that a configuration names: what must hold of them before any job."""

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calgrid.conventions import PUBLISHED_COLUMNS, PUBLISHED_UNITS
from calgrid.errors import ConfigError

#: columns of published numbers that hold numbers, and whether each row needs one
NUMBERS = {"value": True, "severity": False, "std": False}


def check_folders(config: Mapping[str, Any]) -> None:
    """Raise ConfigError unless the folders of the results and of the data can be used as such."""
    for key in ("results", "data_root"):
        if (config[key] or "").startswith("~"):
            raise ConfigError(f"{key}: '~' is not replaced by your home folder here; write the path in full.")
        if not is_path(config[key] or ""):
            raise ConfigError(f"{key}: {config[key]!r} holds a character that no path can have; write another one.")
    if wrong := sorted(set("{}\n") & set(config["results"])):
        raise ConfigError(f"results: the path must not hold {wrong[0]!r}, which means something to Snakemake.")
    _check_no_file(Path(config["results"], config["study"]), "results")
    if config["data_root"] is None:
        return
    data_root = Path(config["data_root"])
    _check_no_file(data_root, "data_root")
    # a folder beside the results is made by the first download; elsewhere a missing one is a slip
    if not data_root.is_dir() and len(data_root.parts) > 1:
        raise ConfigError(f"data_root: the folder '{data_root}' does not exist; create it or correct the path.")


def is_path(text: str) -> bool:
    """Can a path be written so?"""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _check_no_file(folder: Path, where: str) -> None:
    for path in (folder, *folder.parents):
        if path.exists():
            if not path.is_dir():
                raise ConfigError(f"{where}: '{path}' is a file; give a folder.")
            return


def check_published(path: Path, where: str) -> None:
    """Raise ConfigError unless a file holds published numbers (``config/published/README.md``)."""
    if not path.is_file():
        raise ConfigError(f"{where}: the file '{path}' does not exist; correct the path.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            _check_columns(columns := next(rows, []), f"{where}: '{path}'")
            for row in rows:
                if row:
                    _check_row(columns, row, f"{where}: '{path}', line {rows.line_num}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{where}: '{path}' is no CSV file in UTF-8 ({error}); correct or remove it.") from None


def _check_columns(columns: Sequence[str], where: str) -> None:
    if missing := [name for name in PUBLISHED_COLUMNS if name not in columns]:
        raise ConfigError(
            f"{where} is no CSV file of published numbers: it lacks the column{'s' if missing[1:] else ''} "
            f"{', '.join(missing)} (config/published/README.md explains them)."
        )
    if double := [name for name in columns if columns.count(name) > 1]:
        raise ConfigError(f"{where} has the column {double[0]} twice; remove one.")


def _check_row(columns: Sequence[str], row: Sequence[str], where: str) -> None:
    if len(row) != len(columns):
        raise ConfigError(f"{where}, has {len(row)} cells and not {len(columns)}; put cells with commas into quotes.")
    cells = dict(zip(columns, row, strict=True))
    if cells["unit"] not in PUBLISHED_UNITS:
        raise ConfigError(f"{where}: unit must be one of {', '.join(PUBLISHED_UNITS)}, got {cells['unit']!r}.")
    for name, needed in NUMBERS.items():
        text = cells.get(name, "")
        if (needed or text) and not _is_number(text):
            raise ConfigError(f"{where}: {name} must be a number, got {text!r}.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
