"""Measure a trained network with one probe."""

import argparse

from calgrid.cli.options import device_options, model_options

RUN = "jobs:probe"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model_options(parser)
    device_options(parser)
