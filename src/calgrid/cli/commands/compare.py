"""Compare methods on the same test samples by a paired bootstrap."""

import argparse

from calgrid.cli.options import LABELS_OF_ALL, file_options, flag, json_option, path

RUN = "compare:compare"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    method = "a method and its logits files, one per seed"
    parser.add_argument("method", nargs="+", metavar="NAME=FILE[,FILE...]", help=method)
    path(parser, "--labels", "FILE", LABELS_OF_ALL)
    networks = (
        "the question is about these networks, not about methods: a verdict with one file each"
    )
    flag(parser, "--networks", networks)
    shown = ("accuracy", "nll", "brier", "squared_ce", "ece_debiased")
    parser.add_argument(
        "--metrics", nargs="+", metavar="ID", default=shown, help="labelled metrics"
    )
    json_option(parser)
    file_options(parser)
