"""Export the logits of a trained run."""

import argparse

from calgrid.cli.options import device_options, model_options, path

RUN = "jobs:predict"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model_options(parser)
    shifts = "manifests of the shift families, in the order of the specification"
    path(parser, "--shifts", "FILE", shifts, nargs="*", default=[])
    device_options(parser)
