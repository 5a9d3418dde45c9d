"""Train one run; continues an interrupted one."""

import argparse
import os

from calgrid.cli.options import data_option, device_options, path, result_options, seconds

RUN = "jobs:train"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    result_options(parser)
    data_option(parser)
    first = "model.safetensors that a second stage starts from"
    path(parser, "--first-stage", None, first, nargs="?")
    path(parser, "--data-root", None, "folder for published checkpoints")
    default = os.environ.get("CALGRID_RESUME_SECONDS", "60")
    every = "seconds between resume states (60)"
    parser.add_argument("--resume-every", type=seconds, default=default, help=every)
    device_options(parser)
