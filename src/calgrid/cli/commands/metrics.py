"""Print all metrics of a logits file, with intervals."""

import argparse

from calgrid.cli.options import FILE_HELP, file_options, json_option, path

RUN = "files:metrics"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    path(parser, "file", "FILE", FILE_HELP)
    path(parser, "--labels", "FILE", "labels, if in a separate file")
    json_option(parser)
    file_options(parser)
