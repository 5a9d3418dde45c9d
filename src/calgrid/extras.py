"""Libraries that pip installs only with an extra of calgrid, and the sentence where one is missing."""

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec

from calgrid.errors import CalgridError

#: extra of pyproject.toml -> modules that calgrid imports of what it installs
EXTRAS = {
    "train": ("torch", "torchvision", "timm", "sklearn", "typing_extensions"),
    "workflow": ("snakemake", "jsonschema"),
}


class MissingLibraryError(CalgridError, ImportError):
    """A library is not installed that an extra of calgrid brings."""


@contextlib.contextmanager
def say_extra() -> Iterator[None]:
    """Name the extra that brings a library, where an import within this context does not find it."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
        if extra is None or find_spec(module) is not None:  # it is there, and lacks a module of its own
            raise
        raise _missing(module, extra) from None


def require(extra: str) -> None:
    """Raise MissingLibraryError unless all libraries of an extra are installed; imports none of them."""
    for module in EXTRAS[extra]:
        if find_spec(module) is None:
            raise _missing(module, extra)


def _missing(module: str, extra: str) -> MissingLibraryError:
    return MissingLibraryError(f"The library {module} is not installed: pip install 'calgrid[{extra}]' brings it.")
