"""The metrics of the result tables, in their order, and their values on one set of predictions."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from numpy.typing import ArrayLike

from calgrid.errors import DataError
from calgrid.metrics import (
    calibration,
    classes,
    failure,
    human,
    kernel,
    null,
    ood,
    recalibration,
    scoring,
    smooth,
)
from calgrid.metrics._inputs import Floats, Probabilities, check_probabilities, check_rows

#: biased errors of the confidence
TOP_LABEL_ERRORS = (
    *("ece", "ece_debiased", "aece", "aece_eq", "ece_sweep", "mce", "rmsce", "rmsce_debiased"),
    *("ks", "smce", "smece"),
)
#: errors that no metric without bias stands for: tested as they are printed
PRINTED_ERRORS = ("cece", "o_ece", "u_ece")
#: probabilities (samples times classes) up to which slow metrics are computed
MOST_SLOW = 2_000_000


class Counts(NamedTuple):
    """Numbers of samples that an interval needs, or that a set has;
    :mod:`calgrid.metrics.intervals` gives the reasons.

    Attributes
    ----------
    errors : errors or right predictions, whichever are fewer. expected : the same by the
        confidences.
    of_class : samples of the rarest class. right_of_class : samples expected to be right by the
        probabilities, least over classes.
    a_class : samples divided by the number of classes.
    """

    errors: float = 0
    expected: float = 0
    of_class: float = 0
    right_of_class: float = 0
    a_class: float = 0

    def __str__(self) -> str:
        """Return the needed numbers in words; empty for none."""
        said = []
        if self.of_class:
            right = f"{self.right_of_class} right by the probabilities"
            said.append(f"{self.of_class} samples of each class ({right})")
        if self.a_class:
            said.append(f"{self.a_class} samples a class")
        if self.errors:
            by_confidence = f" ({self.expected} by the confidences)" if self.expected else ""
            said.append(f"{self.errors} errors and right predictions each{by_confidence}")
        return ", ".join(said)


NOTHING = Counts()
#: of calibration errors: with fewer errors the upper end is too low
CALIBRATION = Counts(errors=5, expected=5)
#: of the calibration part of the NLL and of the AURC, in which few errors weigh more
LIKELIHOOD = Counts(errors=20)
SEPARATION = Counts(errors=20, expected=30)
CLASSES = Counts(of_class=20, right_of_class=15)
CLASSES_APART = Counts(20, 30, 20, 15)
#: with fewer samples a class the bias is so large that it decides which of two models is better
CLASSWISE = Counts(errors=5, expected=5, a_class=20)


@dataclass(frozen=True)
class Metric:
    """A metric and its facts.

    Attributes
    ----------
    id : value of the column ``metric`` in the results.
    function : ``function(probs, labels, n_bins)`` of a labelled metric; ``function(scores_id,
        scores_ood)`` of an out-of-distribution metric, on the output of ``score``;
        ``function(probs, distribution, n_bins)`` of a soft metric, with the true class
        probabilities of each image.
    summary, source : description, and paper or convention.
    lower_is_better : None for a metric that does not rank models: a reference value, or a bound
        that may be closer for one model than for another.
    kind : ``labelled``, ``soft``, ``ood`` (by a score of probabilities, which calibrators change)
        or ``ood_network`` (by a score of logits or features, once a network).
    unit : ``fraction`` (in [0, 1], shown in percent), ``square`` (of a fraction, shown as its
        root in percent), ``nats`` (at least 0), ``score`` (in [0, 2]) or ``number`` (any).
    interval : ``percentile``, ``skewed`` (above 0), ``binomial`` (of a share), ``centred``,
        ``guarded`` or ``unbiased`` (both need the noise of an estimator in ``_estimators``), or
        ``none``: see :mod:`calgrid.metrics.intervals`.
    interval_of : for a debiased error, the plain error with the same interval.
    part_of : for a term of an error, this error: the interval of the term ends no higher.
    needs : least counts of a set for an interval, and so for a verdict.
    reaches_up : whether the upper end is at least as far from the value as the lower one: of
        maxima of many sums, and of an error whose few bins hide gaps.
    costly : whether studies compute it on the clean test split alone.
    slow : whether it fits a map to the probabilities or sorts the probabilities of each class,
        which takes longer than all others together: left out for more than ``MOST_SLOW``
        probabilities, see :meth:`is_computed`.
    score : for an out-of-distribution metric, ``score(probs) -> (N,)``, high for in-distribution
        samples; of a network, a function of logits or features.
    """

    id: str
    function: Callable[..., float]
    summary: str
    source: str
    lower_is_better: bool | None
    kind: Literal["labelled", "ood", "ood_network", "soft"]
    unit: Literal["fraction", "square", "nats", "score", "number"] = "fraction"
    interval: Literal[
        "percentile", "skewed", "binomial", "centred", "guarded", "unbiased", "none"
    ] = "percentile"
    interval_of: str | None = None
    part_of: str | None = None
    needs: Counts = NOTHING
    reaches_up: bool = False
    costly: bool = False
    slow: bool = False
    score: Callable[..., Floats] | None = None

    def is_computed(self, n_samples: int, n_classes: int) -> bool:
        """Whether a request for all metrics on a set of this size includes this one."""
        return not self.slow or n_samples * n_classes <= MOST_SLOW

    @property
    def sign(self) -> float:
        """1 if lower is better, -1 if higher is better, NaN for a reference value without ranks."""
        return {True: 1.0, False: -1.0, None: math.nan}[self.lower_is_better]

    @property
    def bounds(self) -> tuple[float, float]:
        """Range of the quantity; a bias-corrected estimate may be outside."""
        any_number = (-math.inf, math.inf)
        return {
            "fraction": (0.0, 1.0),
            "square": (0.0, 1.0),
            "score": (0.0, 2.0),
            "nats": (0.0, math.inf),
            "number": any_number,
        }[self.unit]

    @property
    def corrected(self) -> bool:
        """Whether a bias is subtracted from the estimate."""
        return self.interval in ("centred", "unbiased") or self.interval_of is not None

    @property
    def is_bounded(self) -> bool:
        """Whether estimates have a lower bound."""
        return not self.corrected and self.bounds[0] > -math.inf

    @property
    def decided_by(self) -> str:
        """Metric whose verdict applies: this one, ``squared_ce`` for errors of the top label, whose
        bias depends on the model, or empty for a metric without a test. ``cece``, ``o_ece`` and
        ``u_ece`` decide themselves, as printed, including their bias.
        """
        if self.id in TOP_LABEL_ERRORS:
            return "squared_ce"
        ranks = self.lower_is_better is not None
        decides = self.interval in ("percentile", "skewed", "binomial", "unbiased")
        return self.id if ranks and (decides or self.id in PRINTED_ERRORS) else ""

    @property
    def margin(self) -> float:
        """Difference below which two methods are equivalent; NaN for an unknown quantity, and for
        ``cece``, which is at most 2 over the number of classes.
        """
        if self.id == "cece":
            return math.nan
        return {
            "fraction": 0.005,
            "square": 1e-4,
            "score": 0.005,
            "nats": 0.01,
            "number": math.nan,
        }[self.unit]


def _error(
    name: str,
    function: Callable[..., float],
    summary: str,
    source: str,
    needs: Counts = CALIBRATION,
) -> Metric:
    return Metric(
        name, function, summary, source, True, "labelled", interval="guarded", needs=needs
    )


def _nll_part(name: str, function: Callable[..., float], summary: str) -> Metric:
    return Metric(
        name,
        function,
        summary,
        "Berta et al., arXiv 2501.19195",
        True,
        "labelled",
        "nats",
        interval="unbiased",
        slow=True,
    )


def _lp(name: str, function: Callable[..., float], summary: str) -> Metric:
    return Metric(
        name,
        function,
        summary,
        "arXiv 2602.24230",
        None,
        "labelled",
        "score",
        interval="centred",
        costly=True,
        slow=True,
    )


def _ood(
    name: str, function: Callable[..., float], score: Callable[..., Floats], summary: str
) -> Metric:
    source = {
        ood.auroc: "Hendrycks and Gimpel, ICLR 2017",
        ood.fpr95: "ID positive, as in MaC-Cal",
        ood.fpr95_oodpos: "OOD positive, as in OpenOOD",
        ood.aupr: "Hendrycks and Gimpel, ICLR 2017",
        ood.aupr_oodpos: "Hendrycks and Gimpel, ICLR 2017",
    }[function]
    lower = function in (ood.fpr95, ood.fpr95_oodpos)
    return Metric(name, function, summary, source, lower, "ood", score=score)


def _of_network(
    name: str, score: Callable[..., Floats], words: str, source: str
) -> tuple[Metric, ...]:
    """The out-of-distribution metrics of a score of logits or features."""
    functions = {
        "auroc": (ood.auroc, f"ID against OOD by {words}"),
        "fpr95": (ood.fpr95, f"OOD kept at 95 % ID recall by {words}"),
        "aupr": (ood.aupr, f"ID found by {words}, average precision"),
    }
    metrics = []
    for measure, (function, summary) in functions.items():
        metric = _ood(f"{measure}_{name}", function, score, summary)
        metrics.append(replace(metric, kind="ood_network", source=source))
    return tuple(metrics)


_SOFT = "known posterior or label counts as in Peterson et al., ICCV 2019"

_ENTRIES = (
    Metric(
        "accuracy",
        scoring.accuracy,
        "fraction of correct arg max",
        "top-1",
        False,
        "labelled",
        interval="binomial",
    ),
    Metric(
        "top5",
        scoring.top5,
        "fraction of labels among the five largest",
        "top-5",
        False,
        "labelled",
        interval="binomial",
    ),
    Metric(
        "balanced_accuracy",
        classes.balanced_accuracy,
        "mean over classes of the fraction of their samples that are predicted as them",
        "Brodersen et al., ICPR 2010",
        False,
        "labelled",
        needs=CLASSES,
    ),
    Metric(
        "macro_auroc",
        classes.macro_auroc,
        "mean over classes of the AUROC of their probability, one class against the rest",
        "Fawcett, Pattern Recognition Letters 2006",
        False,
        "labelled",
        costly=True,
        slow=True,
        needs=CLASSES_APART,
    ),
    _error(
        "ece",
        calibration.ece,
        "expected calibration error, equal-width bins",
        "Guo et al., ICML 2017",
    ),
    replace(
        _error(
            "ece_debiased",
            calibration.ece_debiased,
            "ECE minus its estimated bias",
            "Kumar et al., NeurIPS 2019",
        ),
        interval_of="ece",
    ),
    Metric(
        "ece_null",
        null.ece_null,
        "expected ECE of a perfectly calibrated model with the same confidences and sample size",
        "Bröcker and Smith 2007, exact",
        None,
        "labelled",
        interval="none",
    ),
    _error(
        "aece",
        calibration.aece,
        "AECE of published tables: rows of lowest confidence in no bin",
        "Mukhoti et al., NeurIPS 2020 (code)",
    ),
    _error(
        "aece_eq",
        calibration.aece_eq,
        "adaptive ECE, equal-mass bins of all rows",
        "Nixon et al. 2019",
    ),
    replace(
        _error(
            "ece_sweep",
            calibration.ece_sweep,
            "ECE, most equal-mass monotone bins",
            "Roelofs et al., AISTATS 2022",
        ),
        reaches_up=True,
    ),
    _error(
        "cece",
        calibration.cece,
        "classwise ECE, mean over all classes",
        "Kull et al., NeurIPS 2019",
        CLASSWISE,
    ),
    Metric(
        "mce",
        calibration.mce,
        "largest calibration error of a bin (no interval with valid coverage is known)",
        "Naeini et al., AAAI 2015",
        True,
        "labelled",
        interval="none",
    ),
    _error(
        "rmsce",
        calibration.rmsce,
        "root mean square calibration error",
        "Hendrycks et al., ICLR 2019",
    ),
    replace(
        _error(
            "rmsce_debiased",
            calibration.rmsce_debiased,
            "RMSCE minus its estimated bias",
            "Kumar et al., NeurIPS 2019",
        ),
        interval_of="rmsce",
    ),
    Metric(
        "squared_ce",
        calibration.squared_ce,
        "squared calibration error of the confidence, unbiased",
        "Lee et al., JMLR 2023",
        True,
        "labelled",
        "square",
        interval="unbiased",
        needs=CALIBRATION,
    ),
    replace(
        _error("o_ece", calibration.o_ece, "overconfident part of the ECE", "FeDLaS, Table 4"),
        part_of="ece",
    ),
    replace(
        _error("u_ece", calibration.u_ece, "underconfident part of the ECE", "FeDLaS, Table 4"),
        part_of="ece",
    ),
    replace(
        _error(
            "ks", calibration.ks, "Kolmogorov-Smirnov calibration error", "Gupta et al., ICLR 2021"
        ),
        reaches_up=True,
    ),
    Metric(
        "nll",
        scoring.nll,
        "negative log-likelihood",
        "log score",
        True,
        "labelled",
        "nats",
    ),
    replace(
        _nll_part(
            "nll_calibration",
            recalibration.nll_calibration,
            "part of the NLL that one temperature removes, bias corrected",
        ),
        needs=LIKELIHOOD,
    ),
    _nll_part(
        "nll_refinement",
        recalibration.nll_refinement,
        "part of the NLL that one temperature leaves, bias corrected",
    ),
    Metric(
        "brier",
        scoring.brier,
        "Brier score, sum over classes",
        "Brier 1950",
        True,
        "labelled",
        "score",
    ),
    Metric(
        "brier_calibration",
        scoring.brier_calibration,
        "part of the Brier score that recalibration removes, bias corrected",
        "Murphy 1973; Ferro and Fricker 2012",
        True,
        "labelled",
        "score",
        interval="centred",
        needs=CALIBRATION,
    ),
    Metric(
        "brier_refinement",
        scoring.brier_refinement,
        "part of the Brier score that recalibration leaves",
        "Murphy 1973; Stephenson et al. 2008",
        True,
        "labelled",
        "score",
        interval="none",  # bins of few samples bias it: intervals missed 10 to 20 % on a side
    ),
    _lp("l1_ts", recalibration.l1_ts, "L1 error of all probabilities, found by a temperature"),
    _lp("l1_iso", recalibration.l1_iso, "L1 error of all probabilities, found by isotonic maps"),
    _lp("l2_ts", recalibration.l2_ts, "L2 error of all probabilities, found by a temperature"),
    _lp("l2_iso", recalibration.l2_iso, "L2 error of all probabilities, found by isotonic maps"),
    replace(
        _error("smce", smooth.smce, "smooth calibration error, exact", "Błasiok et al., STOC 2023"),
        reaches_up=True,
    ),
    _error(
        "smece", kernel.smece, "kernel smooth calibration error", "Błasiok and Nakkiran, ICLR 2024"
    ),
    Metric(
        "aurc",
        failure.aurc,
        "area under the risk-coverage curve",
        "Geifman and El-Yaniv 2017",
        True,
        "labelled",
        interval="skewed",
        needs=LIKELIHOOD,
    ),
    Metric(
        "auroc_failure",
        failure.auroc_failure,
        "correct against wrong predictions by confidence",
        "Hendrycks and Gimpel, ICLR 2017",
        False,
        "labelled",
        needs=SEPARATION,
    ),
    Metric(
        "aupr_failure",
        failure.aupr_failure,
        "errors found by low confidence, area under precision and recall",
        "Corbière et al., NeurIPS 2019",
        False,
        "labelled",
        needs=SEPARATION,
    ),
    Metric(
        "fpr95_failure",
        failure.fpr95_failure,
        "errors kept at 95 % recall of correct predictions, by confidence",
        "Corbière et al., NeurIPS 2019",
        True,
        "labelled",
        needs=SEPARATION,
    ),
    _ood("auroc", ood.auroc, ood.max_softmax, "ID against OOD by maximum softmax"),
    _ood("fpr95", ood.fpr95, ood.max_softmax, "OOD kept at 95 % ID recall by maximum softmax"),
    _ood("auroc_entropy", ood.auroc, ood.negative_entropy, "ID against OOD by entropy"),
    _ood("fpr95_entropy", ood.fpr95, ood.negative_entropy, "OOD kept at 95 % ID recall by entropy"),
    _ood(
        "fpr95_oodpos",
        ood.fpr95_oodpos,
        ood.max_softmax,
        "ID flagged at 95 % OOD recall by maximum softmax",
    ),
    _ood("aupr", ood.aupr, ood.max_softmax, "ID found by maximum softmax, average precision"),
    _ood(
        "aupr_oodpos",
        ood.aupr_oodpos,
        ood.max_softmax,
        "OOD found by maximum softmax, average precision",
    ),
    *_of_network("maxlogit", ood.max_logit, "the largest logit", "Hendrycks et al., ICML 2022"),
    *_of_network("energy", ood.energy, "the energy of the logits", "Liu et al., NeurIPS 2020"),
    *_of_network(
        "knn", ood.knn, "the distance to the k-th nearest training image", "Sun et al., ICML 2022"
    ),
    *_of_network("vim", ood.vim, "the virtual logit (ViM)", "Wang et al., CVPR 2022"),
    Metric(
        "soft_kl",
        human.kl_human,
        "mean KL divergence from the true distribution",
        _SOFT,
        True,
        "soft",
        "nats",
    ),
    Metric(
        "soft_tv",
        human.tv_human,
        "mean total variation distance from the true distribution",
        _SOFT,
        True,
        "soft",
    ),
    Metric(
        "soft_ece",
        human.ece_human,
        "ECE against the true probability of the predicted class, an estimate without the noise "
        "of labels",
        _SOFT,
        True,
        "soft",
        interval="guarded",
    ),
)

#: identifier -> Metric
METRICS: Mapping[str, Metric] = MappingProxyType({metric.id: metric for metric in _ENTRIES})
#: metrics by kind: of predictions with labels; of an in-distribution and an out-of-distribution set
#: by probabilities, and by logits or features; of predictions with a distribution
LABELLED: Mapping[str, Metric] = {m.id: m for m in _ENTRIES if m.kind == "labelled"}
OOD: Mapping[str, Metric] = {m.id: m for m in _ENTRIES if m.kind == "ood"}
OOD_NETWORK: Mapping[str, Metric] = {m.id: m for m in _ENTRIES if m.kind == "ood_network"}
SOFT: Mapping[str, Metric] = {m.id: m for m in _ENTRIES if m.kind == "soft"}


def evaluate(
    probs: Probabilities,
    labels: ArrayLike,
    *,
    n_bins: int = 15,
    further: Iterable[Metric] = (),
    costly: bool = True,
) -> dict[str, float]:
    """Value of every labelled metric by identifier, in the order of ``METRICS``; with more than two
    million probabilities without slow ones (``Metric.slow``).

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : number of confidence bins.
    further : additional labelled metrics, at the end. costly : whether to include costly metrics.

    Raises
    ------
    DataError, ConfigError : as in :func:`calgrid.metrics.ece`.

    Examples
    --------
    >>> evaluate([[0.9, 0.1], [0.4, 0.6]], [0, 0])["accuracy"]
    0.5
    """
    predictions = check_probabilities(probs, labels)
    metrics = [
        metric
        for metric in (*LABELLED.values(), *further)
        if metric.is_computed(*predictions.probs.shape) and (costly or not metric.costly)
    ]
    return {
        metric.id: metric.function(predictions, predictions.labels, n_bins) for metric in metrics
    }


def evaluate_ood(probs_id: ArrayLike, probs_ood: ArrayLike) -> dict[str, float]:
    """Value of every out-of-distribution metric by identifier.

    Parameters
    ----------
    probs_id, probs_ood : probabilities (N, K) and (M, K) of the same model on the two sets.

    Raises
    ------
    DataError : invalid probabilities, or different numbers of classes.
    """
    scores = ood_scores(probs_id, probs_ood)
    return {name: metric.function(*scores[metric.score]) for name, metric in OOD.items()}


def evaluate_soft(
    probs: ArrayLike, distribution: ArrayLike, *, n_bins: int = 15
) -> dict[str, float]:
    """Value of every soft metric by identifier.

    Parameters
    ----------
    probs : probabilities (N, K). distribution : probabilities or counts of the classes of each
        image (N, K).
    n_bins : number of confidence bins.

    Raises
    ------
    DataError, ConfigError : as in :func:`calgrid.metrics.ece_human`.
    """
    return {name: metric.function(probs, distribution, n_bins) for name, metric in SOFT.items()}


def ood_scores(probs_id: ArrayLike, probs_ood: ArrayLike) -> dict[object, tuple[Floats, ...]]:
    """ID scores (N,) and OOD scores (M,) by scoring function, for all scores that a metric in
    ``OOD`` needs.
    """
    rows_id, rows_ood = check_rows(probs_id, "probs_id"), check_rows(probs_ood, "probs_ood")
    if rows_id.shape[1] != rows_ood.shape[1]:
        raise DataError(
            f"probs_ood must have the {rows_id.shape[1]} classes of probs_id, got "
            f"{rows_ood.shape[1]}; both sets are scored by one model."
        )
    scores = {metric.score for metric in OOD.values() if metric.score is not None}
    return {score: (score(rows_id), score(rows_ood)) for score in scores}
