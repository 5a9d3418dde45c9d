"""Count jobs, images and downloads of a configuration; hours at measured speeds."""

import argparse

from calgrid.cli.options import data_root_option, flag, study

RUN = "cost:cost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    study(parser)
    data_root_option(parser)
    parser.add_argument(
        "--throughput",
        action="append",
        default=[],
        metavar="BACKBONE=IMAGES",
        help="training images per second on your GPU",
    )
    measure = "time twenty training steps of each network here, at most about a minute each"
    flag(parser, "--measure", measure)
