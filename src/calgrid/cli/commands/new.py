"""Write a template of a component and its test."""

import argparse
from pathlib import Path

from calgrid.cli.options import path

RUN = "new:new"
KINDS = ("loss", "procedure", "calibrator", "backbone", "dataset", "probe", "metric")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS)
    id = "its identifier in configurations, such as my_loss"
    parser.add_argument("id", metavar="ID", help=id)
    into = "folder of your components (plugins)"
    path(parser, "--into", "FOLDER", into, default=Path("plugins"))
