"""``calgrid board``: a study as a page in which a reader chooses what is shown."""

import argparse
import sys
from pathlib import Path

from calgrid.cli.study_of import study_folder
from calgrid.errors import StateError
from calgrid.reporting.board import write_board
from calgrid.reporting.results import load_study
from calgrid.storage.atomic import require_writable
from calgrid.storage.schema import SUMMARY


def board(options: argparse.Namespace) -> None:
    """Write the board of a finished study.

    Raises
    ------
    ConfigError : there is no finished study.
    DataError : a file is missing or damaged.
    """
    study = study_folder(options.study)
    if not (study / SUMMARY).is_file():
        raise StateError(f"The study in {study} is not finished ({SUMMARY} is missing); run it.")
    out: Path = options.out or study / "board.html"
    require_writable(out)
    left_out = write_board(load_study(study), out)
    size = f"{out}: {out.stat().st_size / 1e6:.1f} MB"
    sys.stdout.write("\n".join([size, *left_out]) + "\n")
