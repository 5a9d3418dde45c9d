"""Write a page of a study in which you choose metric and calibrator and open bins."""

import argparse

from calgrid.cli.options import path, study

RUN = "board:board"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    study(parser)
    path(parser, "--out", "FILE", "file to write (board.html in the folder of the study)")
