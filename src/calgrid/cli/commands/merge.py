"""Add results that another laboratory packed, so that its runs need no training here."""

import argparse

from calgrid.cli.options import path, results_option

RUN = "sharing:merge"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    path(parser, "archive", "ZIP", "file that 'calgrid pack' wrote")
    results_option(parser)
