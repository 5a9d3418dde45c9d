"""Options that several commands have, and the types of options."""

import argparse
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEVICES = ("auto", "cpu", "cuda")
#: folder of all results of the working directory
RESULTS = Path("results")
OR_ALL = "; or the folder of all studies (results)"
FILE_HELP = "logits and labels: .npz, .pt, .parquet or .csv"
LABELS_OF_ALL = "labels of all files, if in a separate file"
RUN_HELP = "method, or path of a run or its end (ce/seed1)"


def must(
    be: str, valid: Callable[[str], object], read: Callable[[str], Any] = str, where: str = ""
) -> Any:
    """Return the type of an option: reads a valid text, and refuses another one."""

    def checked(text: str) -> Any:
        if not valid(text):
            raise argparse.ArgumentTypeError(f"must be {be}, got {text!r}{where}")
        return read(text)

    return checked


def _is_duration(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _are_names(text: str) -> bool:
    names = _names(text)
    return len(names) >= 2 and all(names) and len(set(names)) == len(names)


_OR_VARIABLE = " (from the option or the variable CALGRID_{})"
count = must("a whole number of at least 1", lambda text: text.isdecimal() and int(text) >= 1, int)
seconds = must("a number of seconds", _is_duration, float, _OR_VARIABLE.format("RESUME_SECONDS"))
device = must(
    f"one of {', '.join(DEVICES)}", DEVICES.__contains__, where=_OR_VARIABLE.format("DEVICE")
)
classes = must("at least two different names separated by commas", _are_names, _names)
spdx = must(
    "an SPDX identifier such as CC-BY-4.0 or CC0-1.0",
    re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*").fullmatch,
)


def path(
    parser: argparse.ArgumentParser, name: str, metavar: str | None, help: str, **options: Any
) -> None:
    """Add an option that is a path."""
    parser.add_argument(name, type=Path, metavar=metavar, help=help, **options)


def flag(parser: argparse.ArgumentParser, name: str, help: str) -> None:
    """Add an option without a value."""
    parser.add_argument(name, action="store_true", help=help)


def json_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    flag(parser, "--json", "machine-readable output")


def threads_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--threads``."""
    parser.add_argument("--threads", type=count, default=1, help=f"{what} (1)")


def results_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--results``, the folder into which a command writes."""
    path(parser, "--results", None, "folder of the results (results)", default=RESULTS)


# files of logits ------------------------------------------------------------------------------


def file_options(parser: argparse.ArgumentParser) -> None:
    """Add how files of logits are read and scored."""
    kind = "kind of values in the files (logits, or that of a saved calibrator)"
    parser.add_argument("--kind", choices=("logits", "probabilities"), help=kind)
    named = (
        "name of the array or column of logits or probabilities, or the common prefix of one "
        "column per class"
    )
    parser.add_argument("--values-key", metavar="NAME", help=named)
    parser.add_argument("--label-key", metavar="NAME", help="name of the array or column of labels")
    order = "class names in the order of the columns, if labels or columns have class names"
    parser.add_argument("--classes", type=classes, metavar="A,B,...", help=order)
    flag(parser, "--binary", "the files have one column, for class 1 of two classes")
    parser.add_argument("--bins", type=int, default=15, help="bins of the calibration errors (15)")
    resamples = "resamples for the intervals (1000; 0: none)"
    parser.add_argument("--bootstrap", type=int, default=1000, help=resamples)
    threads_option(parser, "threads of linear algebra")


def pair_options(parser: argparse.ArgumentParser, required: bool) -> None:
    """Add the file that calibrators are fitted on and the one that they are applied to."""
    fit, apply = "labelled file on which the calibrator is fitted", "file to calibrate"
    path(parser, "--fit", "VAL", fit, required=required)
    path(parser, "--fit-labels", "FILE", "labels of --fit, if in a separate file")
    apply += "" if required else "; optional for a ranking"
    path(parser, "--apply", "TEST", apply, required=required)
    path(parser, "--apply-labels", "FILE", "labels of --apply, if in a separate file")
    path(parser, "--head", "FILE", "weight and bias of the last layer, for fc")


# studies --------------------------------------------------------------------------------------


def study(parser: argparse.ArgumentParser, further: str = "", **options: Any) -> None:
    """Add the study of a command."""
    help = "a study: its configuration (YAML), or the folder of its results, such as results/digits"
    path(parser, "study", "STUDY", help + further, **options)


def data_root_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--data-root``."""
    path(parser, "--data-root", "FOLDER", "replaces data_root of the configuration")
