"""Import external logits as a run."""

import argparse

from calgrid.cli.options import path, result_options

RUN = "jobs:import_run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    result_options(parser)
    path(parser, "--files", "FILE", "files that the specification names", nargs="+", required=True)
