"""List components, or show all details of one."""

import argparse

from calgrid.cli.options import json_option

RUN = "listing:list_kind"
KINDS = (
    "methods",
    "calibrators",
    "datasets",
    "backbones",
    "metrics",
    "procedures",
    "losses",
    "probes",
    "protocols",
    "conformal",
    "external",
    "ensembles",
    "checkpoints",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = f"{', '.join(KINDS)}; or the identifier of a component; without it, the kinds"
    parser.add_argument("kind", metavar="KIND|ID", nargs="?", help=kinds)
    id = "identifier of a component of this kind"
    parser.add_argument("id", metavar="ID", nargs="?", help=id)
    json_option(parser)
