"""Write the self-contained HTML report of a study."""

import argparse

from calgrid.cli.options import threads_option, total_options

RUN = "jobs:report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    total_options(parser)
    threads_option(parser, "threads of linear algebra")
