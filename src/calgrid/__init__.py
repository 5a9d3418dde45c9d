"""calgrid: one protocol for the calibration of image classifiers."""

import importlib
from typing import TYPE_CHECKING, Any

from calgrid.optional import say_extra

if TYPE_CHECKING:
    from calgrid.integrations.network import TrainedNetwork
    from calgrid.integrations.sklearn import CalibratedEstimator
    from calgrid.integrations.torch import CalibratedModule
    from calgrid.logits.writing import write_logits
    from calgrid.report.figures.reliability import plot_reliability
    from calgrid.report.results import load_study

__version__ = "0.1.0"
__all__ = [
    "CalibratedEstimator",
    "CalibratedModule",
    "TrainedNetwork",
    "__version__",
    "load_study",
    "plot_reliability",
    "write_logits",
]

#: public name -> its module, which imports pandas or torch
_MODULES = {
    "CalibratedEstimator": "calgrid.integrations.sklearn",
    "CalibratedModule": "calgrid.integrations.torch",
    "TrainedNetwork": "calgrid.integrations.network",
    "load_study": "calgrid.report.results",
    "plot_reliability": "calgrid.report.figures.reliability",
    "write_logits": "calgrid.logits.writing",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with say_extra():
        return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
