"""Parser and entry point; the module of a command is imported only when the command runs."""

import argparse
import importlib
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from calgrid import __version__
from calgrid.cli import joblogs
from calgrid.cli.colours import coloured
from calgrid.errors import CalgridError, StateError, visible_lines
from calgrid.forkserver import THREADS
from calgrid.optional import say_extra
from calgrid.parallel import keep_freed_memory
from calgrid.progress import log
from calgrid.storage.atomic import disk_error
from calgrid.training.interrupt import StoppedError

#: exit code of an error that the user can fix
EXIT_USER = 2
#: exit code of a run that was stopped and can be continued (EX_TEMPFAIL)
EXIT_STOPPED = 75
#: exit code after Ctrl-C (128 + SIGINT)
EXIT_INTERRUPTED = 130
#: commands whose --threads are processes
IN_PROCESSES = ("calibrate-run", "aggregate", "report-logits")
#: in the environment of each process that ``torchrun`` has started
OF_TORCHRUN = "TORCHELASTIC_RUN_ID"
DEVICES = ("auto", "cpu", "cuda")
OUT_HELP = (
    "calibrated file: .csv with one column per class, or .parquet, which keeps all that other "
    "commands use"
)
#: folder of all results of the working directory
RESULTS = Path("results")
OR_ALL = "; or the folder of all studies (results)"
FILE_HELP = "logits and labels: .npz, .pt, .parquet or .csv"
NEW_KINDS = ("loss", "procedure", "calibrator", "backbone", "dataset", "probe", "metric")
KINDS = (
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors that the user can fix are printed as one
    sentence.
    """
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell completes a command line
        importlib.import_module("argcomplete").autocomplete(parser)
    options = _parsed(parser, arguments)
    if options.command is None:
        parser.print_help()
        return 0
    if getattr(options, "threads", None):
        # processes have one thread each, because the number of threads changes the last bits of
        # results
        count = 1 if options.command in IN_PROCESSES else options.threads
        # numpy and torch read these variables once, when they are imported
        for variable in THREADS:
            os.environ[variable] = str(count)
    keep_freed_memory()
    module, _, function = options.run.partition(":")
    # processes that torchrun has started write into the log of the one that called it
    in_log = module == "jobs" and not sys.stderr.isatty() and OF_TORCHRUN not in os.environ
    if in_log:
        attempt = joblogs.continue_log(options.log) if options.log else 1
        log(joblogs.first_line(options.command, attempt))
    try:
        with say_extra():
            getattr(importlib.import_module(f"calgrid.cli.{module}"), function)(options)
    except CalgridError as error:
        _say(options.command, error)
        return EXIT_STOPPED if isinstance(error, StoppedError) else EXIT_USER
    except BrokenPipeError:  # the reader of the output (head, less) has closed it
        sys.stderr.close()
    except OSError as error:
        shown: Exception = disk_error(error, Path(error.filename or "a file"))
        if shown is error and error.filename:  # probably a path that the user gave
            reason = f"{error.strerror or error}".lower()
            shown = StateError(
                f"The path {error.filename} cannot be used ({reason}); correct it or its "
                "permissions."
            )
        if not isinstance(shown, CalgridError):
            raise
        _say(options.command, shown)
        return EXIT_USER
    except KeyboardInterrupt:
        _say(options.command, "Interrupted.")
        return EXIT_INTERRUPTED
    if in_log:
        log(joblogs.last_line())
    return 0


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    options, unknown = parser.parse_known_args(arguments)
    if unknown:  # parse_args would show the usage of the parser of all commands
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _say(command: str, error: object) -> None:
    sys.stderr.write(
        f"{coloured(f'calgrid {command}:', 'red', sys.stderr)} {visible_lines(error)}\n"
    )


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="calgrid",
        description="One protocol for the calibration of image classifiers.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"calgrid {__version__}")
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", help="one of the commands below"
    )
    groups = []
    for title, adders in GROUPS.items():
        before = set(commands.choices)
        for add in adders:
            add(commands)
        lines = [f"{title}:"]
        for name, command in commands.choices.items():
            if name not in before:
                lines.append(f"  {name:14s}{command.description}")
        groups.append("\n".join(lines))
    parser.epilog = "\n\n".join(groups)
    _result_commands(commands)
    _total_commands(commands)
    return parser


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _must(
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
_count = _must(
    "a whole number of at least 1", lambda text: text.isdecimal() and int(text) >= 1, int
)
_seconds = _must("a number of seconds", _is_duration, float, _OR_VARIABLE.format("RESUME_SECONDS"))
_device = _must(
    f"one of {', '.join(DEVICES)}", DEVICES.__contains__, where=_OR_VARIABLE.format("DEVICE")
)
_classes = _must("at least two different names separated by commas", _are_names, _names)
_licence = _must(
    "an SPDX identifier such as CC-BY-4.0 or CC0-1.0",
    re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*").fullmatch,
)


def _command(commands: Commands, name: str, run: str, help: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, description=help)
    parser.set_defaults(run=run, parser=parser)
    if run.startswith("jobs:"):
        _path(parser, "--log", None, "log file of the job; earlier attempts in it are kept")
    return parser


def _path(
    parser: argparse.ArgumentParser, name: str, metavar: str | None, help: str, **options: Any
) -> None:
    parser.add_argument(name, type=Path, metavar=metavar, help=help, **options)


def _flag(parser: argparse.ArgumentParser, name: str, help: str) -> None:
    parser.add_argument(name, action="store_true", help=help)


def _json_option(parser: argparse.ArgumentParser) -> None:
    _flag(parser, "--json", "machine-readable output")


def _file_options(parser: argparse.ArgumentParser) -> None:
    kind = "kind of values in the files (logits, or that of a saved calibrator)"
    parser.add_argument("--kind", choices=("logits", "probabilities"), help=kind)
    named = (
        "name of the array or column of logits or probabilities, or the common prefix of one "
        "column per class"
    )
    parser.add_argument("--values-key", metavar="NAME", help=named)
    parser.add_argument("--label-key", metavar="NAME", help="name of the array or column of labels")
    order = "class names in the order of the columns, if labels or columns have class names"
    parser.add_argument("--classes", type=_classes, metavar="A,B,...", help=order)
    _flag(parser, "--binary", "the files have one column, for class 1 of two classes")
    parser.add_argument("--bins", type=int, default=15, help="bins of the calibration errors (15)")
    resamples = "resamples for the intervals (1000; 0: none)"
    parser.add_argument("--bootstrap", type=int, default=1000, help=resamples)
    _threads_option(parser, "threads of linear algebra")


def _threads_option(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--threads", type=_count, default=1, help=f"{what} (1)")


def _device_options(parser: argparse.ArgumentParser) -> None:
    # The device is not part of a fingerprint, so the workflow passes it through the environment.
    # argparse checks a default that is text like an option, and only if the command has the option.
    default = os.environ.get("CALGRID_DEVICE", "auto")
    parser.add_argument("--device", type=_device, metavar="|".join(DEVICES), default=default)
    _threads_option(parser, "CPU threads of this process")


def _pair_options(parser: argparse.ArgumentParser, required: bool) -> None:
    fit, apply = "labelled file on which the calibrator is fitted", "file to calibrate"
    _path(parser, "--fit", "VAL", fit, required=required)
    _path(parser, "--fit-labels", "FILE", "labels of --fit, if in a separate file")
    apply += "" if required else "; optional for a ranking"
    _path(parser, "--apply", "TEST", apply, required=required)
    _path(parser, "--apply-labels", "FILE", "labels of --apply, if in a separate file")
    _path(parser, "--head", "FILE", "weight and bias of the last layer, for fc")


def _results_option(parser: argparse.ArgumentParser) -> None:
    _path(parser, "--results", None, "folder of the results (results)", default=RESULTS)


def _calibrate_command(commands: Commands) -> None:
    help = "Fit a calibrator on one logits file and apply it to another."
    parser = _command(commands, "calibrate", "calibrate:calibrate", help)
    fitted = "calibrator to fit; several, or all, are ranked by cross-validation on the fit file"
    parser.add_argument("--calibrator", metavar="ID[,ID...]", help=fitted)
    _pair_options(parser, required=False)
    _path(parser, "--load", "FITTED", "use a saved calibrator instead of --fit")
    parser.add_argument("--rank-by", metavar="METRIC", help="metric of a ranking (nll)")
    parser.add_argument("--folds", type=int, default=5, help="folds of a ranking (5)")
    _flag(parser, "--keeps-classes", "rank only calibrators that change no predicted class")
    _path(parser, "--out", "FILE", OUT_HELP)
    _path(parser, "--save", "FITTED", "save the fitted calibrator (.safetensors)")
    plot = "draw the reliability before and after calibration (.pdf, .png, .svg)"
    _path(parser, "--plot", "FILE", plot)
    parser.add_argument("--seed", type=int, default=0, help="seed of stochastic calibrators (0)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="hyper-parameter"
    )
    _json_option(parser)
    _file_options(parser)


def _file_commands(commands: Commands) -> None:
    labels_of_all = "labels of all files, if in a separate file"

    help = "Print all metrics of a logits file, with intervals."
    parser = _command(commands, "metrics", "files:metrics", help)
    _path(parser, "file", "FILE", FILE_HELP)
    _path(parser, "--labels", "FILE", "labels, if in a separate file")
    _json_option(parser)
    _file_options(parser)

    help = "Print or draw the reliability diagrams of logits files."
    parser = _command(commands, "reliability", "reliability:reliability", help)
    _path(parser, "files", "FILE", FILE_HELP, nargs="+")
    _path(parser, "--labels", "FILE", labels_of_all)
    _path(parser, "--plot", "FILE", "draw the diagrams side by side (.pdf, .png, .svg)")
    per_class = "a diagram of the predictions of each class, at most the 12 most predicted"
    _flag(parser, "--per-class", per_class)
    _file_options(parser)

    help = "Compare methods on the same test samples by a paired bootstrap."
    parser = _command(commands, "compare", "compare:compare", help)
    method = "a method and its logits files, one per seed"
    parser.add_argument("method", nargs="+", metavar="NAME=FILE[,FILE...]", help=method)
    _path(parser, "--labels", "FILE", labels_of_all)
    networks = (
        "the question is about these networks, not about methods: a verdict with one file each"
    )
    _flag(parser, "--networks", networks)
    shown = ("accuracy", "nll", "brier", "squared_ce", "ece_debiased")
    parser.add_argument(
        "--metrics", nargs="+", metavar="ID", default=shown, help="labelled metrics"
    )
    _json_option(parser)
    _file_options(parser)

    help = (
        "Write the HTML report of a network's logits, with tables and figures, before and after "
        "calibration."
    )
    parser = _command(commands, "report-logits", "report_logits:report_logits", help)
    name = "name of the network; the report is RESULTS/NAME/report.html"
    parser.add_argument("name", metavar="NAME", help=name)
    _pair_options(parser, required=True)
    ids = "none,ts,iso,smart"
    compared = f"calibrators to compare ({ids}); all: all whose inputs are given"
    parser.add_argument("--calibrator", metavar="ID[,ID...]", default=ids, help=compared)
    _results_option(parser)
    _file_options(parser)


def _study(parser: argparse.ArgumentParser, further: str = "", **options: Any) -> None:
    help = "a study: its configuration (YAML), or the folder of its results, such as results/digits"
    _path(parser, "study", "STUDY", help + further, **options)


def _study_options(parser: argparse.ArgumentParser) -> None:
    _study(parser)
    _data_root_option(parser)


def _data_root_option(parser: argparse.ArgumentParser) -> None:
    _path(parser, "--data-root", "FOLDER", "replaces data_root of the configuration")


def _run_command(commands: Commands) -> None:
    help = "Run a study with Snakemake, and show one line for each stage."
    parser = _command(commands, "run", "run:run", help)
    _study(parser)
    further = "options of Snakemake, such as --cores 4 or --profile slurm (--cores all)"
    parser.add_argument("snakemake", nargs=argparse.REMAINDER, metavar="...", help=further)


def _study_commands(commands: Commands) -> None:
    help = "Create a folder for studies: configuration, Snakemake profiles, plugins."
    parser = _command(commands, "init", "init:init", help)
    _path(parser, "folder", "FOLDER", "new or empty folder; its name is that of the study")

    help = "Check a configuration and list its runs."
    _study_options(_command(commands, "check", "listing:check", help))

    help = "Estimate jobs, hours and disk of a configuration."
    parser = _command(commands, "cost", "cost:cost", help)
    _study_options(parser)
    parser.add_argument(
        "--throughput",
        action="append",
        default=[],
        metavar="BACKBONE=IMAGES",
        help="training images per second on your GPU; replaces the estimate",
    )
    measure = "time twenty training steps of each network here, at most about a minute each"
    _flag(parser, "--measure", measure)

    help = "Print the JSON Schema of configurations, by which editors complete and check them."
    _command(commands, "schema", "listing:schema", help)

    help = "Show which jobs of a study are done, running or failed, and the remaining time."
    parser = _command(commands, "status", "status:status", help)
    _study_options(parser)
    why = "say in what a run differs from its newest older result"
    parser.add_argument("--why", metavar="RUN", help=why)
    _json_option(parser)

    help = "Read all results of a study, or of all studies, and name what is damaged or missing."
    parser = _command(commands, "verify", "maintenance:verify", help)
    _study(parser, OR_ALL, nargs="?", default=RESULTS)
    _flag(parser, "--delete", "remove what is damaged, so that the next call computes it again")

    help = "Remove results that no study uses, or those of some runs, to compute them again."
    parser = _command(commands, "clean", "maintenance:clean", help)
    _study(parser, OR_ALL, nargs="?", default=RESULTS)
    _data_root_option(parser)
    run = "method, or path of a run or its end (ce/seed1), with all that depends on it"
    parser.add_argument("--run", dest="runs", nargs="+", default=[], metavar="RUN", help=run)
    _flag(parser, "--yes", "remove without a question")

    help = "Show configuration, training history and reliability of a run."
    parser = _command(commands, "show", "show:show", help)
    place = "folder of a run, or a study: its configuration (YAML) or the folder of its results"
    _path(parser, "place", "FOLDER|STUDY", place)
    run = "run of the study: method, or path of a run or its end (ce/seed1)"
    parser.add_argument("pattern", metavar="RUN", nargs="?", help=run)
    parser.add_argument("--checkpoint", help="best, refined or last, if several are tested")
    _path(parser, "--plot", "FILE", "also draw a figure: .png, .pdf or .svg")
    parser.add_argument("--bins", type=int, default=15, help="bins of the reliability diagram (15)")

    help = "Write a page of a study in which you choose metric and calibrator and open bins."
    parser = _command(commands, "board", "board:board", help)
    _study(parser)
    _path(parser, "--out", "FILE", "file to write (board.html in the folder of the study)")


def _sharing_commands(commands: Commands) -> None:
    help = (
        "Write a saved calibrator as ONNX, or the numbers of a study as CSV, MLflow or W&B files."
    )
    parser = _command(commands, "export", "export:export", help)
    source = (
        "calibrator that calgrid calibrate --save wrote, or a study: its configuration (YAML), the "
        "folder of its results, or an archive of calgrid pack"
    )
    _path(parser, "source", "FITTED|STUDY", source)
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--onnx", type=Path, metavar="FILE", help="model of a calibrator (.onnx)")
    form.add_argument("--csv", type=Path, metavar="FOLDER", help="all tables of a study as CSV")
    form.add_argument("--mlflow", type=Path, metavar="FILE", help="SQLite file of MLflow")
    form.add_argument("--wandb", type=Path, metavar="FOLDER", help="offline runs of W&B")

    help = "Pack logits, metrics and records of a finished study into one zip file."
    parser = _command(commands, "pack", "sharing:pack", help)
    _origin_options(parser, "archive", "ZIP", "file to write")

    help = "Write the zip file of a finished study and a page with its rankings into a folder."
    parser = _command(commands, "publish", "sharing:publish", help)
    _origin_options(parser, "folder", "FOLDER", "new folder")

    help = "Add results that another laboratory packed, so that its runs need no training here."
    parser = _command(commands, "merge", "sharing:merge", help)
    _path(parser, "archive", "ZIP", "file that 'calgrid pack' wrote")
    _results_option(parser)


def _origin_options(
    parser: argparse.ArgumentParser, target: str, metavar: str, written: str
) -> None:
    _study(parser)
    _path(parser, target, metavar, written)
    creator = "person or group who created the results; may be repeated"
    parser.add_argument("--creator", action="append", required=True, metavar="NAME", help=creator)
    licence = "licence of the results, such as CC-BY-4.0"
    parser.add_argument("--licence", type=_licence, required=True, metavar="SPDX", help=licence)
    cite = "DOI or URL of the results"
    parser.add_argument("--cite", default="", metavar="DOI", help=cite)
    _flag(parser, "--models", "also pack the trained networks")


def _component_commands(commands: Commands) -> None:
    help = "List components, or show all details of one."
    parser = _command(commands, "list", "listing:list_kind", help)
    kinds = f"{', '.join(KINDS)}; or the identifier of a component; without it, the kinds"
    parser.add_argument("kind", metavar="KIND|ID", nargs="?", help=kinds)
    id = "identifier of a component of this kind"
    parser.add_argument("id", metavar="ID", nargs="?", help=id)
    _json_option(parser)

    parser = _command(commands, "new", "new:new", "Write a template of a component and its test.")
    parser.add_argument("kind", choices=NEW_KINDS)
    id = "its identifier in configurations, such as my_loss"
    parser.add_argument("id", metavar="ID", help=id)
    into = "folder of your components (plugins)"
    _path(parser, "--into", "FOLDER", into, default=Path("plugins"))


def _job_command(commands: Commands, name: str, run: str, help: str) -> argparse.ArgumentParser:
    parser = _command(commands, name, f"jobs:{run}", help)
    _path(parser, "--plan", None, "plan of the study", required=True)
    _path(parser, "--out", None, "folder of the result", required=True)
    return parser


def _result_commands(commands: Commands) -> None:
    help = "Prepare a data set or shift family (memory-mapped arrays)."
    parser = _job_command(commands, "data", "data", help)
    _path(parser, "--data-root", None, "folder with downloaded data")
    _threads_option(parser, "threads that decode images")

    help = "Train one run; continues an interrupted one."
    parser = _job_command(commands, "train", "train", help)
    _data_option(parser)
    first = "model.safetensors that a second stage starts from"
    _path(parser, "--first-stage", None, first, nargs="?")
    _path(parser, "--data-root", None, "folder for published checkpoints")
    seconds = os.environ.get("CALGRID_RESUME_SECONDS", "60")
    every = "seconds between resume states (60)"
    parser.add_argument("--resume-every", type=_seconds, default=seconds, help=every)
    _device_options(parser)

    parser = _job_command(commands, "predict", "predict", "Export the logits of a trained run.")
    _model_option(parser)
    _data_option(parser)
    shifts = "manifests of the shift families, in the order of the specification"
    _path(parser, "--shifts", "FILE", shifts, nargs="*", default=[])
    _device_options(parser)

    parser = _job_command(commands, "probe", "probe", "Measure a trained network with one probe.")
    _model_option(parser)
    _data_option(parser)
    _device_options(parser)

    parser = _job_command(commands, "import", "import_run", "Import external logits as a run.")
    _path(parser, "--files", "FILE", "files that the specification names", nargs="+", required=True)

    help = "Pool the predictions of trained runs that differ in their seed."
    parser = _job_command(commands, "ensemble", "ensemble", help)
    members = "records of the members' logits, in the order of the specification"
    _path(parser, "--members", "FILE", members, nargs="+", required=True)

    help = "Fit and score all calibrators of a run."
    parser = _job_command(commands, "calibrate-run", "calibrate_run", help)
    _path(parser, "--logits", None, "record of the logits", required=True)
    _threads_option(parser, "processes that fit and score")


def _model_option(parser: argparse.ArgumentParser) -> None:
    _path(parser, "--model", None, "model.safetensors of the run", required=True)


def _data_option(parser: argparse.ArgumentParser) -> None:
    _path(parser, "--data", None, "manifest of the prepared data set", required=True)


#: commands of a whole study and what they do
TOTALS = {
    "aggregate": "Collect the metrics of all runs of a study.",
    "tables": "Write the tables of a study (CSV, Markdown and LaTeX; tables of papers also HTML).",
    "figures": "Draw the figures of a study.",
    "report": "Write the self-contained HTML report of a study.",
}


def _total_commands(commands: Commands) -> None:
    for name, help in TOTALS.items():
        parser = _command(commands, name, f"jobs:{name}", help)
        _path(parser, "--plan", None, "plan of the study", required=True)
        record = "record to write; the files appear in the folder of the study"
        _path(parser, "--record", None, record, required=True)
        in_processes = name == "aggregate"
        threads = (
            "processes that read and summarise" if in_processes else "threads of linear algebra"
        )
        _threads_option(parser, threads)


#: commands by purpose, in the order of the help, which leaves out those of the workflow rules
GROUPS = {
    "files of logits": (_calibrate_command, _file_commands),
    "studies": (_run_command, _study_commands),
    "sharing results": (_sharing_commands,),
    "components": (_component_commands,),
}
