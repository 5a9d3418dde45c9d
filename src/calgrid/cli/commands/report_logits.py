"""Write the HTML report of a network's logits, with tables and figures, before and after
calibration.
"""

import argparse

from calgrid.cli.options import file_options, pair_options, results_option

RUN = "report_logits:report_logits"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    name = "name of the network; the report is RESULTS/NAME/report.html"
    parser.add_argument("name", metavar="NAME", help=name)
    pair_options(parser, required=True)
    ids = "none,ts,iso,smart"
    compared = f"calibrators to compare ({ids}); all: all whose inputs are given"
    parser.add_argument("--calibrator", metavar="ID[,ID...]", default=ids, help=compared)
    results_option(parser)
    file_options(parser)
    parser.set_defaults(in_processes=True)
