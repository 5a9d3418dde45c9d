"""Write a saved calibrator as ONNX, or the numbers of a study as CSV."""

import argparse
from pathlib import Path

from calgrid.cli.options import path

RUN = "export:export"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = (
        "calibrator that calgrid calibrate --save wrote, or a study: its configuration (YAML), the "
        "folder of its results, or an archive of calgrid pack"
    )
    path(parser, "source", "FITTED|STUDY", source)
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--onnx", type=Path, metavar="FILE", help="model of a calibrator (.onnx)")
    form.add_argument("--csv", type=Path, metavar="FOLDER", help="all tables of a study as CSV")
