"""Prepare a data set or shift family (memory-mapped arrays)."""

import argparse

from calgrid.cli.options import path, result_options, threads_option

RUN = "jobs:data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    result_options(parser)
    path(parser, "--data-root", None, "folder with downloaded data")
    threads_option(parser, "threads that decode images")
