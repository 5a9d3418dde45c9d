"""calgrid: one protocol for the calibration of image classifiers."""

from typing import TYPE_CHECKING

from calgrid.components.lazy import lazy_names

if TYPE_CHECKING:
    from calgrid.integrations.sklearn import CalibratedEstimator
    from calgrid.integrations.torch import CalibratedModule
    from calgrid.reporting.results import load_study

__version__ = "0.1.0"
__all__ = ["CalibratedEstimator", "CalibratedModule", "__version__", "load_study"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CalibratedEstimator": "calgrid.integrations.sklearn",
        "CalibratedModule": "calgrid.integrations.torch",
        "load_study": "calgrid.reporting.results",
    },
)
