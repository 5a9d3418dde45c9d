"""Fit and score all calibrators of a run."""

import argparse

from calgrid.cli.options import path, result_options, threads_option

RUN = "jobs:calibrate_run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    result_options(parser)
    path(parser, "--logits", None, "record of the logits", required=True)
    threads_option(parser, "processes that fit and score")
    parser.set_defaults(in_processes=True)
