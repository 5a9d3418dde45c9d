"""Pack logits, metrics and records of a finished study into one zip file."""

import argparse

from calgrid.cli.options import flag, path, spdx, study

RUN = "sharing:pack"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    study(parser)
    path(parser, "archive", "ZIP", "file to write")
    creator = "person or group who created the results; may be repeated"
    parser.add_argument("--creator", action="append", required=True, metavar="NAME", help=creator)
    licence = "licence of the results, such as CC-BY-4.0"
    parser.add_argument("--licence", type=spdx, required=True, metavar="SPDX", help=licence)
    cite = "DOI or URL of the results"
    parser.add_argument("--cite", default="", metavar="DOI", help=cite)
    flag(parser, "--models", "also pack the trained networks")
