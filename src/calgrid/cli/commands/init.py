"""Create a folder for studies: configuration, Snakemake profiles, plugins."""

import argparse

from calgrid.cli.options import path

RUN = "init:init"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    path(parser, "folder", "FOLDER", "new or empty folder; its name is that of the study")
