"""Pack logits, metrics and records of a finished study into one zip file."""

import argparse

from calgrid.cli.options import origin_options

RUN = "sharing:pack"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    origin_options(parser, "archive", "ZIP", "file to write")
