"""The library timm, imported without wandb.

timm imports wandb, if it is installed, for a script of its own: that takes five times as long as
all the rest of timm.
"""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Make imports of a library fail, unless it has been imported before."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # Python's way to say: not there
    try:
        yield
    finally:
        del sys.modules[name]


with _hidden("wandb"):
    import timm

__all__ = ["timm"]
