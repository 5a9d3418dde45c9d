"""Pool the predictions of trained runs that differ in their seed."""

import argparse

from calgrid.cli.options import path, result_options

RUN = "jobs:ensemble"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    result_options(parser)
    members = "records of the members' logits, in the order of the specification"
    path(parser, "--members", "FILE", members, nargs="+", required=True)
