"""The metrics that enter the result tables: one entry an identifier, in the order in which they are listed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from numpy.typing import ArrayLike

from calgrid.metrics import calibration, null, ood, scoring, smooth


@dataclass(frozen=True)
class Metric:
    """What is known about a metric.

    Attributes
    ----------
    id : value of the column ``metric`` in the results.
    function : ``function(probs, labels, n_bins)`` of a labelled metric; ``function(scores_id, scores_ood)`` of an
        out-of-distribution metric, on what ``score`` makes of the probabilities.
    summary, source : what it is, and the paper or convention it follows.
    lower_is_better : None where the number is a reference value that ranks nobody.
    kind : ``labelled`` or ``ood``.
    unit : ``fraction``, ``nats`` or ``score``.
    interval : of the bootstrap: ``percentile``; ``basic``, reflected at the value and cut to [0, 1], for errors that
        resampling inflates; ``none``.
    score : of an out-of-distribution metric, ``score(probs) -> (N,)``, high on in-distribution samples.
    """

    id: str
    function: Callable[..., float]
    summary: str
    source: str
    lower_is_better: bool | None
    kind: Literal["labelled", "ood"]
    unit: Literal["fraction", "nats", "score"] = "fraction"
    interval: Literal["percentile", "basic", "none"] = "percentile"
    score: Callable[[ArrayLike], ood.Floats] | None = None


def _binned(name: str, function: Callable[..., float], summary: str, source: str) -> Metric:
    return Metric(name, function, summary, source, True, "labelled", interval="basic")


def _ood(name: str, function: Callable[..., float], score: Callable[..., ood.Floats], summary: str) -> Metric:
    source = {
        ood.auroc: "Hendrycks and Gimpel, ICLR 2017",
        ood.fpr95: "ID positive, as in MaC-Cal",
        ood.fpr95_oodpos: "OOD positive, as in OpenOOD",
    }[function]
    return Metric(name, function, summary, source, function is not ood.auroc, "ood", score=score)


_ENTRIES = (
    Metric("accuracy", scoring.accuracy, "share of correct arg max", "top-1", False, "labelled"),
    _binned("ece", calibration.ece, "expected calibration error, equal-width bins", "Guo et al., ICML 2017"),
    _binned("ece_debiased", calibration.ece_debiased, "ECE minus its estimated bias", "Kumar et al., NeurIPS 2019"),
    Metric(
        "ece_null",
        null.ece_null,
        "expected ECE of a perfectly calibrated model with the same confidences and sample size",
        "Bröcker and Smith 2007, exact",
        None,
        "labelled",
        interval="none",
    ),
    _binned("aece", calibration.aece, "adaptive ECE, equal-mass bins", "Mukhoti et al., NeurIPS 2020 (code)"),
    _binned("cece", calibration.cece, "classwise ECE, mean over all classes", "Kull et al., NeurIPS 2019"),
    _binned("mce", calibration.mce, "largest calibration error of a bin", "Naeini et al., AAAI 2015"),
    _binned("o_ece", calibration.o_ece, "over-confident part of the ECE", "FeDLaS, Table 4"),
    _binned("u_ece", calibration.u_ece, "under-confident part of the ECE", "FeDLaS, Table 4"),
    Metric("nll", scoring.nll, "negative log-likelihood", "log score", True, "labelled", "nats"),
    Metric("brier", scoring.brier, "Brier score, sum over classes", "Brier 1950", True, "labelled", "score"),
    Metric(
        "smce",
        smooth.smce,
        "smooth calibration error, exact",
        "Błasiok et al., STOC 2023",
        True,
        "labelled",
        interval="none",
    ),
    _ood("auroc", ood.auroc, ood.max_softmax, "ID against OOD by maximum softmax"),
    _ood("fpr95", ood.fpr95, ood.max_softmax, "OOD kept at 95 % ID recall by maximum softmax"),
    _ood("auroc_entropy", ood.auroc, ood.negative_entropy, "ID against OOD by entropy"),
    _ood("fpr95_entropy", ood.fpr95, ood.negative_entropy, "OOD kept at 95 % ID recall by entropy"),
    _ood("fpr95_oodpos", ood.fpr95_oodpos, ood.max_softmax, "ID flagged at 95 % OOD recall by maximum softmax"),
)

#: identifier -> Metric
METRICS: Mapping[str, Metric] = MappingProxyType({metric.id: metric for metric in _ENTRIES})
#: the metrics of predictions with labels, and those of an in-distribution and an out-of-distribution set
LABELLED: Mapping[str, Metric] = MappingProxyType({m.id: m for m in _ENTRIES if m.kind == "labelled"})
OOD: Mapping[str, Metric] = MappingProxyType({m.id: m for m in _ENTRIES if m.kind == "ood"})
