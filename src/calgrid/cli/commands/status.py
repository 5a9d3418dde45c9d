"""Show which jobs of a study are done, running or failed, and the remaining time."""

import argparse

from calgrid.cli.options import data_root_option, json_option, study

RUN = "status:status"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    study(parser)
    data_root_option(parser)
    why = "say in what a run differs from its newest older result"
    parser.add_argument("--why", metavar="RUN", help=why)
    json_option(parser)
