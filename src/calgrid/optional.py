"""Optional libraries, installed by extras of calgrid, and the error if one is missing."""

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec

from calgrid.errors import CalgridError, StateError

#: nothing here changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True

#: extra of pyproject.toml -> modules that calgrid imports from its libraries
EXTRAS = {
    "train": ("torch", "torchvision", "timm", "sklearn", "pooch", "requests"),
    "workflow": ("snakemake",),
    "hdf5": ("h5py",),
    "onnx": ("torch", "onnx", "onnxscript", "onnxruntime"),
}


class MissingLibraryError(CalgridError, ImportError):
    """A library of an extra is not installed."""


@contextlib.contextmanager
def say_extra() -> Iterator[None]:
    """Convert a failed import into one sentence: the library is missing, or has no memory."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
        if (
            extra is None or find_spec(module) is not None
        ):  # installed, but one of its own imports fails
            raise
        raise _missing(module, extra) from None
    except ImportError as error:
        if "failed to map segment" not in str(error):
            raise
        raise StateError(
            f"There is too little memory to load a library ({error}); give this process more (see "
            "'ulimit -v')."
        ) from None


def require(extra: str) -> None:
    """Raise MissingLibraryError unless all libraries of an extra are installed, without importing
    them.
    """
    for module in EXTRAS[extra]:
        if find_spec(module) is None:
            raise _missing(module, extra)


def _missing(module: str, extra: str) -> MissingLibraryError:
    return MissingLibraryError(
        f"The library {module} is not installed: pip install 'calgrid[{extra}]' brings it."
    )
