"""Estimate jobs, hours and disk of a configuration."""

import argparse

from calgrid.cli.options import data_root_option, study
from calgrid.configuration.cards import CARDS

RUN = "cost:cost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    study(parser)
    data_root_option(parser)
    parser.add_argument(
        "--throughput",
        action="append",
        default=[],
        metavar="BACKBONE=IMAGES",
        help="training images per second on your GPU; replaces the estimate",
    )
    speeds = parser.add_mutually_exclusive_group()
    speeds.add_argument(
        "--card",
        choices=CARDS,
        help="hours of this GPU: speeds measured on it where there are some, else those of an A40",
    )
    measure = "time twenty training steps of each network here, at most about a minute each"
    speeds.add_argument("--measure", action="store_true", help=measure)
