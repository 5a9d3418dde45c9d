"""Print or draw the reliability diagrams of logits files."""

import argparse

from calgrid.cli.options import FILE_HELP, LABELS_OF_ALL, file_options, flag, path

RUN = "reliability:reliability"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    path(parser, "files", "FILE", FILE_HELP, nargs="+")
    path(parser, "--labels", "FILE", LABELS_OF_ALL)
    path(parser, "--plot", "FILE", "draw the diagrams side by side (.pdf, .png, .svg)")
    per_class = "a diagram of the predictions of each class, at most the 12 most predicted"
    flag(parser, "--per-class", per_class)
    file_options(parser)
