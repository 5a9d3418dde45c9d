"""calgrid: one protocol for the calibration of image classifiers."""

from typing import TYPE_CHECKING

from calgrid.lazy import lazy_names

if TYPE_CHECKING:
    from calgrid.reporting.results import load_study

__version__ = "0.1.0"
__all__ = ["__version__", "load_study"]

__getattr__ = lazy_names(__name__, {"load_study": "calgrid.reporting.results"})
