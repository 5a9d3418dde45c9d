"""Metrics of calgrid and of plugins (``my_folder/metrics/my_metric.py``, one function each).

The file of a plugin is imported when its metric is first needed. Plugins can define only metrics of
predictions with labels.
"""

import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.components import plugins, registry
from calgrid.errors import ConfigError, refuse
from calgrid.metrics import METRICS, Metric, Predictions
from calgrid.metrics.table import MOST_SLOW

#: allowed facts of a plugin metric, explained in calgrid/metrics/table.py
FACTS: Mapping[str, tuple[Any, ...]] = {
    "lower_is_better": (True, False, None),
    "unit": ("fraction", "square", "nats", "score", "number"),
    "interval": ("percentile", "centred", "none"),
}
#: rows and bins of the random predictions for the check of a metric
CHECKED_ROWS, CHECKED_BINS = 200, 15


def metric_names() -> list[str]:
    """Identifiers of all metrics: first calgrid's, then those of plugins."""
    return [*METRICS, *(name for name in registry.descriptions("metric") if name not in METRICS)]


def find_metric(name: str, where: str = "") -> Metric:
    """Return a metric.

    Raises
    ------
    ConfigError : it is unknown or its file is broken.
    """
    if name in METRICS:
        return METRICS[name]
    if name in registry.descriptions("metric"):
        return _plugin_metric(name)
    raise registry.missing(["metric"], "metric", name, metric_names(), where)


def find_ranking_metric(name: str, where: str) -> Metric:
    """Return a metric of labelled predictions that can rank models.

    Raises
    ------
    ConfigError : there is no such metric, or it is of another kind or has no ranks.
    """
    if name not in (known := metric_names()):
        known = [id for id in known if id not in METRICS or _refusal(METRICS[id]) == ""]
        raise registry.missing(["metric"], "metric", name, known, where)
    metric = find_metric(name, where)
    if refusal := _refusal(metric):
        raise ConfigError(f"The metric '{name}' in {where} {refusal}; name another.")
    return metric


def _refusal(metric: Metric) -> str:
    """Why a metric cannot rank models by labelled predictions, or ''."""
    if metric.kind != "labelled":
        return "is not one of predictions with labels alone"
    return "does not rank networks" if metric.lower_is_better is None else ""


def check_computed(name: str, shape: tuple[int, ...]) -> None:
    """Raise ConfigError if a metric is left out for probabilities of this shape (N, K)."""
    n, k = shape
    if not find_metric(name).is_computed(n, k):
        raise ConfigError(
            f"{name} is computed for up to {MOST_SLOW:,} probabilities, and these are {n} x {k}; "
            "choose another metric, or fewer rows."
        )


def plugin_metrics(names: Iterable[str]) -> list[Metric]:
    """Plugin metrics among ``names``.

    Raises
    ------
    ConfigError : a name is unknown.
    """
    return [find_metric(name) for name in names if name not in METRICS]


@plugins.cached
def _plugin_metric(name: str) -> Metric:
    component, function = registry.describe("metric", name), registry.load("metric", name)
    where = plugins.shown(component.module)
    signature = inspect.signature(function)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    refuse(
        (
            kinds != [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 3,
            f"{where}: {name} must take (probs, labels, n_bins), got {signature}.",
        ),
        (
            not component.summary,
            f"{where}: {name} needs a docstring, whose first line says what it measures.",
        ),
    )
    facts = component.info
    for fact, values in FACTS.items():
        if fact in facts and facts[fact] not in values:
            raise ConfigError(
                f"{where}: the fact {fact} must be one of {list(values)}, got {facts[fact]!r}."
            )
    checked = _CheckedFunction(name, component.module, function)
    return Metric(name, checked, component.summary, component.source, kind="labelled", **facts)


@dataclass(frozen=True)
class _CheckedFunction:
    """Function of a plugin's file with the signature of calgrid's metrics; its arrays are
    read-only.
    """

    name: str
    module: str
    function: Any

    def __call__(self, predictions: Predictions, labels: NDArray[np.int64], n_bins: int) -> float:
        probs, labels = _read_only(predictions.probs), _read_only(labels)
        with registry.plugin_errors(self.module, f"fails on probabilities of shape {probs.shape}"):
            value = self.function(probs, labels, n_bins)
        if not isinstance(value, Real) or isinstance(value, bool):
            raise ConfigError(
                f"{plugins.shown(self.module)}: {self.name} must return a float, got "
                f"{type(value).__name__}."
            )
        return float(value)


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view


def check_metric(name: str, n_classes: Iterable[int]) -> None:
    """Import a plugin metric, and compute it on random predictions with each number of classes.

    Raises
    ------
    ConfigError : it has the name of a metric of calgrid, cannot be imported or computed, or its
        value is no number or not within the bounds of its unit.
    """
    where = plugins.shown(registry.describe("metric", name).module)
    if name in METRICS:
        raise ConfigError(f"{where}: '{name}' is a metric of calgrid; choose another name.")
    metric = find_metric(name)
    low, high = metric.bounds
    for k in n_classes:
        rng = np.random.default_rng(0)
        probs = rng.dirichlet(np.ones(k), CHECKED_ROWS)
        predictions = Predictions(probs, rng.integers(0, k, CHECKED_ROWS))
        value = metric.function(predictions, predictions.labels, CHECKED_BINS)
        if not (math.isnan(value) or low <= value <= high or metric.corrected):
            raise ConfigError(
                f"{where}: {name} is {value:.6g} for random predictions, but a {metric.unit} lies "
                f"in [{low:g}, {high:g}]; correct it, or register another unit."
            )
