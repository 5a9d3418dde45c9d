"""Show configuration, training history and reliability of a run."""

import argparse

from calgrid.cli.options import RUN_HELP, path

RUN = "show:show"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place = "folder of a run, or a study: its configuration (YAML) or the folder of its results"
    path(parser, "place", "FOLDER|STUDY", place)
    parser.add_argument("pattern", metavar="RUN", nargs="?", help=f"run of the study: {RUN_HELP}")
    parser.add_argument("--checkpoint", help="such as best, if several are tested")
    path(parser, "--plot", "FILE", "also draw a figure: .png, .pdf or .svg")
    parser.add_argument("--bins", type=int, default=15, help="bins of the reliability diagram (15)")
