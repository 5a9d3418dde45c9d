"""Run a study with Snakemake, and show one line for each stage."""

import argparse

from calgrid.cli.options import study

RUN = "run:run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    study(parser)
    further = "options of Snakemake, such as --cores 4 or --profile slurm (--cores all)"
    parser.add_argument("snakemake", nargs=argparse.REMAINDER, metavar="...", help=further)
