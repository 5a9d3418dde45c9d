"""Print the JSON Schema of configurations, by which editors complete and check them."""

import argparse

RUN = "listing:schema"


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    pass
