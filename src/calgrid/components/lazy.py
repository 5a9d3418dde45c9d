"""Public names of a package that are imported at their first use, because their modules import
torch.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from calgrid.optional import say_extra


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package (PEP 562) whose public names these
    modules define.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with say_extra():
            return getattr(importlib.import_module(modules[name]), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names
