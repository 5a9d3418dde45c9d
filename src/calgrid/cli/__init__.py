"""The ``calgrid`` command line: what the rules of the workflow call, and what people call with two files."""

from calgrid.cli.main import main

__all__ = ["main"]
