"""Check a configuration and list its runs."""

import argparse

from calgrid.cli.options import data_root_option, study

RUN = "listing:check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    study(parser)
    data_root_option(parser)
