"""The table of commands: their help, the function that runs each, and their options.

It imports nothing that takes time: the module of a command is imported when the command runs.
"""

import argparse
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

#: adds an option to the parser of a command
Option: TypeAlias = Callable[[Any], object]

DEVICES = ("auto", "cpu", "cuda")
#: folder of all results of the working directory
RESULTS = Path("results")
#: kinds of ``calgrid list`` and of ``calgrid new``
LISTED_KINDS = (
    "methods",
    "calibrators",
    "datasets",
    "backbones",
    "metrics",
    "procedures",
    "losses",
    "probes",
    "protocols",
    "conformal",
    "external",
    "ensembles",
    "checkpoints",
)
NEW_KINDS = ("loss", "procedure", "calibrator", "backbone", "dataset", "probe", "metric")


class Command(NamedTuple):
    """A command: its help, module and function of :mod:`calgrid.cli`, and its options."""

    help: str
    run: str
    options: tuple[Option, ...] = ()


# kinds of options -----------------------------------------------------------------------------


def option(name: str, help: str | None = None, **properties: Any) -> Option:
    """An option, with properties of :meth:`argparse.ArgumentParser.add_argument`."""
    return lambda parser: parser.add_argument(name, help=help, **properties)


def path(name: str, metavar: str | None, help: str, **properties: Any) -> Option:
    """An option that is a path."""
    return option(name, help, type=Path, metavar=metavar, **properties)


def flag(name: str, help: str) -> Option:
    """An option without a value."""
    return option(name, help, action="store_true")


def from_environment(name: str, variable: str, default: str, **properties: Any) -> Option:
    """Option whose default is the value of an environment variable, checked by argparse."""
    return lambda parser: parser.add_argument(
        name, default=os.environ.get(variable, default), **properties
    )


def one_of(*options: Option) -> Option:
    """Options of which exactly one must be given."""

    def add(parser: argparse.ArgumentParser) -> None:
        group = parser.add_mutually_exclusive_group(required=True)
        for each in options:
            each(group)

    return add


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

# options of several commands ------------------------------------------------------------------

FILE_HELP = "logits and labels: .npz, .pt, .parquet or .csv"
RUN_HELP = "method, or path of a run or its end (ce/seed1)"
STUDY_HELP = (
    "a study: its configuration (YAML), or the folder of its results, such as results/digits"
)
JSON = flag("--json", "machine-readable output")
LABELS_OF_ALL = path("--labels", "FILE", "labels of all files, if in a separate file")
STUDY = path("study", "STUDY", STUDY_HELP)
STUDY_OR_ALL = path(
    "study",
    "STUDY",
    f"{STUDY_HELP}; or the folder of all studies (results)",
    nargs="?",
    default=RESULTS,
)
DATA_ROOT = path("--data-root", "FOLDER", "replaces data_root of the configuration")
#: how files of logits are read and scored
OF_FILES = (
    option(
        "--kind",
        "kind of values in the files (logits, or that of a saved calibrator)",
        choices=("logits", "probabilities"),
    ),
    option(
        "--values-key",
        "name of the array or column of logits or probabilities, or the common prefix of one "
        "column per class",
        metavar="NAME",
    ),
    option("--label-key", "name of the array or column of labels", metavar="NAME"),
    option(
        "--classes",
        "class names in the order of the columns, if labels or columns have class names",
        type=classes,
        metavar="A,B,...",
    ),
    flag("--binary", "the files have one column, for class 1 of two classes"),
    option("--bins", "bins of the calibration errors (15)", type=int, default=15),
    option(
        "--bootstrap",
        "resamples for the intervals (1000; 0: none)",
        type=must("a whole number of at least 0", str.isdecimal, int),
        default=1000,
    ),
    option("--threads", "threads of linear algebra (1)", type=count, default=1),
)


def fit_and_apply(required: bool) -> tuple[Option, ...]:
    """Options for the file to fit calibrators on and the file to calibrate."""
    apply = "file to calibrate" + ("" if required else "; optional for a ranking")
    return (
        path("--fit", "VAL", "labelled file on which the calibrator is fitted", required=required),
        path("--fit-labels", "FILE", "labels of --fit, if in a separate file"),
        path("--apply", "TEST", apply, required=required),
        path("--apply-labels", "FILE", "labels of --apply, if in a separate file"),
        path("--head", "FILE", "weight and bias of the last layer, for fc"),
    )


# commands -------------------------------------------------------------------------------------

OF_LOGITS = {
    "calibrate": Command(
        "Fit a calibrator on one logits file and apply it to another.",
        "calibrate:calibrate",
        (
            option(
                "--calibrator",
                "calibrator to fit; several, or all, are ranked by cross-validation on the fit "
                "file",
                metavar="ID[,ID...]",
            ),
            *fit_and_apply(required=False),
            path("--load", "FITTED", "use a saved calibrator instead of --fit"),
            option("--rank-by", "metric of a ranking (nll)", metavar="METRIC"),
            option("--folds", "folds of a ranking (5)", type=int, default=5),
            flag("--keeps-classes", "rank only calibrators that change no predicted class"),
            path(
                "--out",
                "FILE",
                "calibrated file: .csv with one column per class, or .parquet, which keeps all "
                "that other commands use",
            ),
            path("--save", "FITTED", "save the fitted calibrator (.safetensors)"),
            path(
                "--plot",
                "FILE",
                "draw the reliability before and after calibration (.pdf, .png, .svg)",
            ),
            option("--seed", "seed of stochastic calibrators (0)", type=int, default=0),
            option("--set", "hyper-parameter", action="append", default=[], metavar="NAME=VALUE"),
            JSON,
            *OF_FILES,
        ),
    ),
    "metrics": Command(
        "Print all metrics of a logits file, with intervals.",
        "files:metrics",
        (
            path("file", "FILE", FILE_HELP),
            path("--labels", "FILE", "labels, if in a separate file"),
            JSON,
            *OF_FILES,
        ),
    ),
    "reliability": Command(
        "Print or draw the reliability diagrams of logits files.",
        "reliability:reliability",
        (
            path("files", "FILE", FILE_HELP, nargs="+"),
            LABELS_OF_ALL,
            path("--plot", "FILE", "draw the diagrams side by side (.pdf, .png, .svg)"),
            flag(
                "--per-class",
                "a diagram of the predictions of each class, at most the 12 most predicted",
            ),
            *OF_FILES,
        ),
    ),
    "compare": Command(
        "Compare methods on the same test samples by a paired bootstrap.",
        "compare:compare",
        (
            option(
                "method",
                "a method and its logits files, one per seed",
                nargs="+",
                metavar="NAME=FILE[,FILE...]",
            ),
            LABELS_OF_ALL,
            flag(
                "--networks",
                "the question is about these networks, not about methods: a verdict with one file "
                "each",
            ),
            option(
                "--metrics",
                "labelled metrics",
                nargs="+",
                metavar="ID",
                default=("accuracy", "nll", "brier", "squared_ce", "ece_debiased"),
            ),
            JSON,
            *OF_FILES,
        ),
    ),
    "report-logits": Command(
        "Write the HTML report of a network's logits, with tables and figures, before and after "
        "calibration.",
        "report_logits:report_logits",
        (
            option(
                "name",
                "name of the network; the report is RESULTS/NAME/report.html",
                metavar="NAME",
            ),
            *fit_and_apply(required=True),
            option(
                "--calibrator",
                "calibrators to compare (none,ts,iso,smart); all: all whose inputs are given",
                metavar="ID[,ID...]",
                default="none,ts,iso,smart",
            ),
            path("--results", None, "folder of the results (results)", default=RESULTS),
            *OF_FILES,
        ),
    ),
}
OF_STUDIES = {
    "run": Command(
        "Run a study with Snakemake, and show one line for each stage.",
        "run:run",
        (
            STUDY,
            option(
                "snakemake",
                "options of Snakemake, such as --cores 4 or --profile slurm (--cores all)",
                nargs=argparse.REMAINDER,
                metavar="...",
            ),
        ),
    ),
    "init": Command(
        "Create a folder for studies: configuration, Snakemake profiles, plugins.",
        "init:init",
        (path("folder", "FOLDER", "new or empty folder; its name is that of the study"),),
    ),
    "check": Command(
        "Check a configuration and list its runs.", "listing:check", (STUDY, DATA_ROOT)
    ),
    "cost": Command(
        "Count jobs, images and downloads of a configuration; hours at measured speeds.",
        "cost:cost",
        (
            STUDY,
            DATA_ROOT,
            option(
                "--throughput",
                "training images per second on your GPU",
                action="append",
                default=[],
                metavar="BACKBONE=IMAGES",
            ),
            flag(
                "--measure",
                "time twenty training steps of each network here, at most about a minute each",
            ),
        ),
    ),
    "schema": Command(
        "Print the JSON Schema of configurations, by which editors complete and check them.",
        "listing:schema",
    ),
    "status": Command(
        "Show which jobs of a study are done, running or failed, and the remaining time.",
        "status:status",
        (
            STUDY,
            DATA_ROOT,
            option(
                "--why", "say in what a run differs from its newest older result", metavar="RUN"
            ),
            JSON,
        ),
    ),
    "verify": Command(
        "Read all results of a study, or of all studies, and name what is damaged or missing.",
        "maintenance:verify",
        (
            STUDY_OR_ALL,
            flag("--delete", "remove what is damaged, so that the next call computes it again"),
        ),
    ),
    "clean": Command(
        "Remove results that no study uses, or those of some runs, to compute them again.",
        "maintenance:clean",
        (
            STUDY_OR_ALL,
            DATA_ROOT,
            option(
                "--run",
                f"{RUN_HELP}, with all that depends on it",
                dest="runs",
                nargs="+",
                default=[],
                metavar="RUN",
            ),
            flag("--yes", "remove without a question"),
        ),
    ),
    "show": Command(
        "Show configuration, training history and reliability of a run.",
        "show:show",
        (
            path(
                "place",
                "FOLDER|STUDY",
                "folder of a run, or a study: its configuration (YAML) or the folder of its "
                "results",
            ),
            option("pattern", f"run of the study: {RUN_HELP}", metavar="RUN", nargs="?"),
            option("--checkpoint", "such as best, if several are tested"),
            path("--plot", "FILE", "also draw a figure: .png, .pdf or .svg"),
            option("--bins", "bins of the reliability diagram (15)", type=int, default=15),
        ),
    ),
}
OF_SHARING = {
    "export": Command(
        "Write a saved calibrator as ONNX, or the numbers of a study as CSV.",
        "export:export",
        (
            path(
                "source",
                "FITTED|STUDY",
                "calibrator that calgrid calibrate --save wrote, or a study: its configuration "
                "(YAML), the folder of its results, or an archive of calgrid pack",
            ),
            one_of(
                path("--onnx", "FILE", "model of a calibrator (.onnx)"),
                path("--csv", "FOLDER", "all tables of a study as CSV"),
            ),
        ),
    ),
    "pack": Command(
        "Pack logits, metrics and records of a finished study into one zip file.",
        "sharing:pack",
        (
            STUDY,
            path("archive", "ZIP", "file to write"),
            option(
                "--creator",
                "person or group who created the results; may be repeated",
                action="append",
                required=True,
                metavar="NAME",
            ),
            option(
                "--licence",
                "licence of the results, such as CC-BY-4.0",
                type=spdx,
                required=True,
                metavar="SPDX",
            ),
            option("--cite", "DOI or URL of the results", default="", metavar="DOI"),
            flag("--models", "also pack the trained networks"),
        ),
    ),
}
OF_COMPONENTS = {
    "list": Command(
        "List components, or show all details of one.",
        "listing:list_kind",
        (
            option(
                "kind",
                f"{', '.join(LISTED_KINDS)}; or the identifier of a component; without it, the "
                "kinds",
                metavar="KIND|ID",
                nargs="?",
            ),
            option("id", "identifier of a component of this kind", metavar="ID", nargs="?"),
            JSON,
        ),
    ),
    "new": Command(
        "Write a template of a component and its test.",
        "new:new",
        (
            option("kind", choices=NEW_KINDS),
            option("id", "its identifier in configurations, such as my_loss", metavar="ID"),
            path(
                "--into",
                "FOLDER",
                "folder of your components (plugins)",
                default=Path("plugins"),
            ),
        ),
    ),
}
#: called by the rules of the workflow; the help leaves it out
OF_RULES = {
    "job": Command(
        "Make the result of a job of a plan.",
        "job:job",
        (
            option("job", "kind of the job", metavar="KIND"),
            path("--plan", None, "plan of the study", required=True),
            path(
                "--out",
                None,
                "folder of the result; of a stage of the study, the record to write",
                required=True,
            ),
            path("--log", None, "log file of the job; earlier attempts in it are kept"),
            option(
                "--threads",
                "CPU threads of this process, or processes (1)",
                dest="cores",
                type=count,
                default=1,
            ),
            # the device is in no fingerprint, so the workflow passes it through the environment
            from_environment(
                "--device", "CALGRID_DEVICE", "auto", type=device, metavar="|".join(DEVICES)
            ),
            from_environment(
                "--resume-every",
                "CALGRID_RESUME_SECONDS",
                "60",
                type=seconds,
                help="seconds between resume states of a training (60)",
            ),
        ),
    ),
}
#: commands by purpose, in the order of the help
GROUPS = {
    "files of logits": OF_LOGITS,
    "studies": OF_STUDIES,
    "sharing results": OF_SHARING,
    "components": OF_COMPONENTS,
}
COMMANDS = {**OF_LOGITS, **OF_STUDIES, **OF_SHARING, **OF_COMPONENTS, **OF_RULES}
