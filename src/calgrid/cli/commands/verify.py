"""Read all results of a study, or of all studies, and name what is damaged or missing."""

import argparse

from calgrid.cli.options import OR_ALL, RESULTS, flag, study

RUN = "maintenance:verify"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    study(parser, OR_ALL, nargs="?", default=RESULTS)
    flag(parser, "--delete", "remove what is damaged, so that the next call computes it again")
