"""Metrics of calgrid and of plugins (``my_folder/metrics/my_metric.py``, one function each).

Files of plugins are read without importing them; a file is imported when its function is first
called. Plugins can define only metrics of predictions with labels.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.components import plugins, registry
from calgrid.components.registry import ComponentSpec
from calgrid.errors import ConfigError
from calgrid.metrics import METRICS, Metric, Predictions

#: rows and bins of the random predictions for the check of a metric
TRIED_ROWS, TRIED_BINS = 200, 15


@plugins.cached
def known_metrics() -> Mapping[str, Metric]:
    """All metrics by identifier: those of calgrid, then those of plugins."""
    own = {
        id: Metric(
            spec.id, _Function(spec), spec.summary, spec.source, kind="labelled", **spec.info
        )
        for id, spec in registry.specs("metric").items()
    }
    return MappingProxyType({**METRICS, **own})


def find_metric(name: str, where: str = "") -> Metric:
    """Return a metric; ConfigError if it is unknown or its file is broken."""
    if name not in known_metrics():
        raise registry.missing(["metric"], "metric", name, known_metrics(), where)
    return known_metrics()[name]


def ranking_metrics() -> list[str]:
    """Metrics of predictions with labels by which models can be ranked."""
    return [
        id
        for id, each in known_metrics().items()
        if each.kind == "labelled" and each.lower_is_better is not None
    ]


def own_metrics(names: Iterable[str] | None = None) -> list[Metric]:
    """Plugin metrics among ``names``, or all plugin metrics; ConfigError for an unknown name."""
    found = map(find_metric, registry.specs("metric") if names is None else names)
    return [metric for metric in found if metric.id not in METRICS]


def check_metric(name: str, n_classes: Iterable[int]) -> None:
    """Import a plugin metric, and compute it on random predictions of these numbers of classes.

    Raises ConfigError: it cannot be imported or computed, or its value is no number or not within
    the bounds of its unit.
    """
    metric = find_metric(name)
    registry.load("metric", name)
    for k in n_classes:
        rng = np.random.default_rng(0)
        predictions = Predictions(
            rng.dirichlet(np.ones(k), TRIED_ROWS), rng.integers(0, k, TRIED_ROWS)
        )
        value = metric.function(predictions, predictions.labels, TRIED_BINS)
        low, high = metric.bounds
        if not (math.isnan(value) or low <= value <= high or metric.corrected):
            raise ConfigError(
                f"{plugins.shown(registry.spec('metric', name).module)}: {name} is {value:.6g} for "
                f"random predictions, "
                f"but a {metric.unit} lies in [{low:g}, {high:g}]: correct it, or register another "
                f"unit."
            )


@dataclass(frozen=True)
class _Function:
    """Function of a plugin's file with the signature of calgrid's metrics; its arrays are
    read-only.
    """

    spec: ComponentSpec

    def __call__(self, predictions: Predictions, labels: NDArray[np.int64], n_bins: int) -> float:
        function = registry.load("metric", self.spec.id)
        probs, labels = _read_only(predictions.probs), _read_only(labels)
        with registry.said_of(self.spec.module, f"fails on probabilities of shape {probs.shape}"):
            value = function(probs, labels, n_bins)
        if not isinstance(value, Real) or isinstance(value, bool):
            raise ConfigError(
                f"{plugins.shown(self.spec.module)}: {self.spec.id} must return a float, got "
                f"{type(value).__name__}."
            )
        return float(value)


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view
