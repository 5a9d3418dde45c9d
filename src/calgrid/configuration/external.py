"""Logits made elsewhere, as a configuration names them: what must hold before any job reads them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from calgrid.errors import ConfigError


def check(given: Mapping[str, Any], path_of: Callable[[str], Path], where: str) -> None:
    """Raise ConfigError for files that are not there, for rows that would fit and score, for keys that say nothing.

    Parameters
    ----------
    given : the entry as it is written, without defaults.
    path_of : path of a file that the entry names.
    """
    for role in ("val", "test", "head"):
        if role in given and not path_of(given[role]).is_file():
            raise ConfigError(
                f"{where}.{role}: the file '{path_of(given[role])}' does not exist; correct it or data_root."
            )
    if "val" not in given and "split_seed" not in given:
        raise ConfigError(f"{where}: give a 'val' file, or 'split_seed' to split the test rows at random.")
    for key in ("split_seed", "val_fraction"):
        if "val" in given and key in given:
            raise ConfigError(f"{where}: 'val' and '{key}' exclude each other.")
    if "val" in given and path_of(given["val"]).samefile(path_of(given["test"])):
        raise ConfigError(
            f"{where}: 'val' and 'test' are the same file, and rows that fitted a calibrator never score it; give "
            "'split_seed' in the place of 'val' to split them."
        )
    if "val_seeds" in given and "val_rows" not in given:
        raise ConfigError(f"{where}.val_seeds says nothing without 'val_rows'; give both or remove it.")
