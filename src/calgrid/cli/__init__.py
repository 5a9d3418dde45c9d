"""The ``calgrid`` command line, for users and for the rules of the workflow."""

from calgrid.cli.main import main

__all__ = ["main"]
