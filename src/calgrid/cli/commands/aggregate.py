"""Collect the metrics of all runs of a study."""

import argparse

from calgrid.cli.options import threads_option, total_options

RUN = "jobs:aggregate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    total_options(parser)
    threads_option(parser, "processes that read and summarise")
    parser.set_defaults(in_processes=True)
