"""The ``calgrid`` command line, for users and for the rules of the workflow."""

from calgrid.cli.main import main

#: nothing in this package changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True

__all__ = ["main"]
