"""Write the tables of a study (CSV, Markdown and LaTeX; tables of papers also HTML)."""

import argparse

from calgrid.cli.options import threads_option, total_options

RUN = "jobs:tables"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    total_options(parser)
    threads_option(parser, "threads of linear algebra")
