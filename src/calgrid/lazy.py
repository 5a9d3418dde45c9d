"""Public names of a package that are imported at their first use, because what defines them imports torch."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from calgrid.extras import say_extra


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package (PEP 562).

    Parameters
    ----------
    package : its ``__name__``. modules : public name -> module that defines it.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with say_extra():
            return getattr(importlib.import_module(modules[name]), name)

    return get
