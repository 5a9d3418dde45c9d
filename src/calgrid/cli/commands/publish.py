"""Write the zip file of a finished study and a page with its rankings into a folder."""

import argparse

from calgrid.cli.options import origin_options

RUN = "sharing:publish"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    origin_options(parser, "folder", "FOLDER", "new folder")
