"""Remove results that no study uses, or those of some runs, to compute them again."""

import argparse

from calgrid.cli.options import OR_ALL, RESULTS, RUN_HELP, data_root_option, flag, study

RUN = "maintenance:clean"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    study(parser, OR_ALL, nargs="?", default=RESULTS)
    data_root_option(parser)
    run = f"{RUN_HELP}, with all that depends on it"
    parser.add_argument("--run", dest="runs", nargs="+", default=[], metavar="RUN", help=run)
    flag(parser, "--yes", "remove without a question")
