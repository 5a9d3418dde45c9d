"""Gain by a recalibration: parts of the NLL by one temperature, and L_p errors out of fold.

Refinement and calibration. Of all proper losses, the part that the best map of the predictions
removes is calibration, the rest refinement (Bröcker, QJRMS 2009). With one temperature as the map,
the refinement part is min_beta NLL(softmax(beta ln p)) (Berta et al., arXiv 2501.19195). The same
samples choose beta and are scored, so the minimum is too low by about v / (2 h N), v the variance
of the derivative of the loss in beta and h its mean second derivative (Takeuchi 1976); it is added.
With the Brier score see :func:`calgrid.metrics.brier_calibration`, whose map is one of bins.

L_p errors. E || E[y | p] - p ||_p is at least E <d, y - p> for directions d that do not depend on y
and whose dual norm is at most 1. The direction is the derivative of the norm at g - p, g a map of p
that is fitted on other samples: the sign of g - p for L1, (g - p) / ||g - p|| for L2. So the mean
over samples is no estimate from above: it is too low if g is not E[y | p], and may be negative by
noise (arXiv 2602.24230). g is the temperature with Laplace smoothing, or the isotonic regression of
each class. Fold k has the samples whose rank by confidence is k modulo 5, which their labels do not
influence.

Temperatures apply to ln p. No temperature changes a probability of 0: such samples keep their loss,
and do not choose beta.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calgrid.metrics._inputs import (
    Floats,
    Mask,
    Output,
    Predictions,
    Probabilities,
    check_probabilities,
    computed_once,
)
from calgrid.metrics.moments import moments, row_sums
from calgrid.metrics.scoring import nll_per_sample

Map = Literal["ts", "iso"]
MAPS: tuple[Map, ...] = ("ts", "iso")

#: of the inverse temperature; so far apart that the unit of the logits does not matter
BETA_BOUNDS = (1e-12, 1e12)
#: Newton's method ends where a step would lower the mean loss by less than half of this; about 7 do
LEAST_FALL, MAX_STEPS = 1e-16, 60
#: samples of a first search, whose result starts the search on all samples
FIRST_ROWS = 1000
N_FOLDS = 5
#: smaller probabilities count as 0 in isotonic regressions, whose slopes between them overflow
LEAST_SCORE = 1e-290


class Tempered(NamedTuple):
    """Samples at an inverse temperature.

    Attributes
    ----------
    beta : inverse temperature.
    loss : NLL of each sample, (N,).
    slope : derivative of the loss of each sample in beta, (N,).
    curvature : mean second derivative; infinite at a bound, where beta is not estimated.
    """

    beta: float
    loss: Floats
    slope: Floats
    curvature: float

    @property
    def optimism(self) -> float:
        """Expected mean loss of all other samples at their own best temperature, minus the mean
        loss of these samples.
        """
        return float(np.mean(self.slope**2) / (2 * self.curvature * len(self.slope)))


def best_temperature(below: Floats, of_label: Floats, start: float = 1.0) -> float:
    """Inverse temperature of lowest NLL, by Newton's method within a bracket.

    Parameters
    ----------
    below : logits minus the largest of each row, (N, K), in any order; -inf allowed.
    of_label : that of the label of each row, finite, (N,). start : first inverse temperature.
    """
    if len(below) > 4 * FIRST_ROWS:
        few = slice(None, None, len(below) // FIRST_ROWS)
        start = best_temperature(below[few], of_label[few], start)
    (low, high), beta = BETA_BOUNDS, start
    for _ in range(MAX_STEPS):
        found = tempered_at(beta, below, of_label)
        rises, curvature = float(found.slope.mean()), found.curvature
        low, high = (low, beta) if rises > 0 else (beta, high)
        if rises**2 <= LEAST_FALL * curvature:
            break
        step = beta - rises / curvature if curvature > 0 else low
        beta = step if low < step < high else math.sqrt(low * high)
    return beta


def tempered_at(beta: float, below: Floats, of_label: Floats) -> Tempered:
    """Loss of samples and its derivatives at an inverse temperature; parameters as in
    :func:`best_temperature`.
    """
    log_total, mean, variance = moments(below, beta)
    curvature = float(np.mean(variance))
    bound = min(beta / BETA_BOUNDS[0], BETA_BOUNDS[1] / beta) < 1 + 1e-3
    unknown = bound or curvature <= 0
    loss = log_total - beta * of_label
    return Tempered(beta, loss, mean - of_label, math.inf if unknown else curvature)


def below_largest(predictions: Predictions) -> Floats:
    """Logarithms of probabilities minus the largest of each row, (N, K); -inf for ln 0."""
    logs = Output(predictions.probs, predictions.logs).log_probs
    return logs - logs.max(axis=1, keepdims=True)


@computed_once
def ascending(predictions: Predictions) -> tuple[Floats, Floats]:
    """:func:`below_largest` in ascending order of each row, (N, K), and of the label, (N,):
    permuting the classes changes no bit of sums over a row.
    """
    below = below_largest(predictions)
    of_label = below[np.arange(len(below)), predictions.labels]
    below.sort(axis=1)
    return below, of_label


def possible(predictions: Predictions) -> Mask:
    """Samples whose label has a probability above 0, (N,)."""
    return predictions.label_logs > -np.inf


@computed_once
def nll_parts(predictions: Predictions) -> Tempered:
    """Refinement of each sample: its loss at the best temperature, without the optimism."""
    used = possible(predictions)
    loss, slope = nll_per_sample(predictions), np.zeros(predictions.n_samples)
    if not used.any():
        return Tempered(1.0, loss, slope, math.inf)
    below, of_label = (each[used] for each in ascending(predictions))
    found = tempered_at(best_temperature(below, of_label), below, of_label)
    loss[used], slope[used] = found.loss, found.slope
    # the mean over all samples
    return Tempered(found.beta, loss, slope, found.curvature * float(used.mean()))


@computed_once
def loss_above(predictions: Predictions) -> Floats:
    """Loss of each sample, (N,), two standard deviations above the best inverse temperature, the
    upper end of its interval; at the best one if all samples are told apart.

    If the best inverse temperature is near 0, losses there hardly differ, but losses at the true
    one do.
    """
    parts, used = nll_parts(predictions), possible(predictions)
    below, of_label = (each[used] for each in ascending(predictions))
    curvature = moments(below, parts.beta)[2].sum() / len(used)
    if not curvature > 0 or (np.isinf(parts.curvature) and parts.beta > 1):
        return parts.loss
    deviation = math.sqrt(np.mean(parts.slope**2) / len(used)) / curvature
    loss = parts.loss.copy()
    loss[used] = tempered_at(parts.beta + 2 * deviation, below, of_label).loss
    return loss


def nll_refinement(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Part of the NLL, in nats, that one temperature leaves: see the module.

    Parameters and errors as in :func:`calgrid.metrics.accuracy`.
    """
    parts = nll_parts(check_probabilities(probs, labels))
    return float(parts.loss.mean()) + parts.optimism


def nll_calibration(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Part of the NLL, in nats, that one temperature removes: the NLL minus
    :func:`nll_refinement`. It may be slightly negative.

    Parameters and errors as in :func:`calgrid.metrics.accuracy`.
    """
    predictions = check_probabilities(probs, labels)
    return float(nll_per_sample(predictions).mean()) - nll_refinement(
        predictions, predictions.labels
    )


def l1_ts(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """L1 calibration error of all classes, as far as a temperature finds it: see the module.

    Parameters and errors as in :func:`calgrid.metrics.accuracy`.
    """
    return float(directed(check_probabilities(probs, labels), "ts")[1].mean())


def l2_ts(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """L2 calibration error of all classes, as far as a temperature finds it: see the module.

    Parameters and errors as in :func:`calgrid.metrics.accuracy`.
    """
    return float(directed(check_probabilities(probs, labels), "ts")[2].mean())


def l1_iso(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """L1 calibration error of all classes, as far as isotonic regressions find it: see the module.

    Parameters and errors as in :func:`calgrid.metrics.accuracy`.
    """
    return float(directed(check_probabilities(probs, labels), "iso")[1].mean())


def l2_iso(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """L2 calibration error of all classes, as far as isotonic regressions find it: see the module.

    Parameters and errors as in :func:`calgrid.metrics.accuracy`.
    """
    return float(directed(check_probabilities(probs, labels), "iso")[2].mean())


@computed_once
def directions(predictions: Predictions, by: Map) -> dict[int, Floats]:
    """Derivatives of the norms, p = 1, 2, towards a map that is fitted on other folds, (N, K)."""
    recalibrated = predictions.probs  # a single sample has no other folds
    if predictions.n_samples > 1:
        recalibrated = (tempered if by == "ts" else isotonic)(predictions)
    return derivatives(recalibrated - predictions.probs)


def derivatives(gap: Floats) -> dict[int, Floats]:
    """Derivative of || . ||_p, p = 1, 2, at each row of ``gap`` (N, K), (N, K); 0 at 0."""
    norm = np.sqrt(row_sums(np.square(gap)))[:, None]
    return {1: np.sign(gap), 2: np.divide(gap, norm, out=np.zeros_like(gap), where=norm > 0)}


def directed(predictions: Predictions, by: Map) -> dict[int, Floats]:
    """L1 and L2 errors of each sample, (N,), with a map fitted on other folds."""
    return {p: along(predictions, each) for p, each in directions(predictions, by).items()}


def along(predictions: Predictions, direction: Floats) -> Floats:
    """Label minus probabilities, along a direction (N, K), of each sample, (N,)."""
    of_label = direction[np.arange(predictions.n_samples), predictions.labels]
    return of_label - row_sums(direction * predictions.probs)


def folds(predictions: Predictions) -> NDArray[np.int64]:
    """Fold of each sample, (N,)."""
    fold_of = np.empty(predictions.n_samples, np.int64)
    fold_of[predictions.order] = np.arange(predictions.n_samples) % N_FOLDS
    return fold_of


def tempered(predictions: Predictions) -> Floats:
    """Probabilities (N, K) scaled by the temperature of the other folds and mixed with the uniform
    distribution, as by the calibrator ``ts_mix``.
    """
    below, fold_of = below_largest(predictions), folds(predictions)
    sorted_below, of_label = ascending(predictions)
    start, used = nll_parts(predictions).beta, possible(predictions)
    recalibrated = np.empty_like(below)
    for fold in range(N_FOLDS):
        out = fold_of == fold
        others = ~out
        fitted = others & used
        beta = 1.0
        if fitted.any():
            beta = best_temperature(sorted_below[fitted], of_label[fitted], start)
        epsilon = 1 / (others.sum() + 1)
        scaled = Output.of_scores(beta * below[out]).probs
        recalibrated[out] = (1 - epsilon) * scaled + epsilon / below.shape[1]
    return recalibrated


def isotonic(predictions: Predictions) -> Floats:
    """Frequency of each class (N, K) by isotonic regression of its probability on other folds,
    linear between the fitted samples.
    """
    # its import takes half as long as that of all metrics, and large sets have no such map
    from scipy.optimize import isotonic_regression  # noqa: PLC0415

    fold_of, probs = folds(predictions), predictions.probs
    recalibrated = np.empty_like(probs)
    for k, column in enumerate(np.where(probs < LEAST_SCORE, 0, probs).T):
        order = np.argsort(column, kind="stable")
        of_class = (predictions.labels == k).astype(np.float64)
        scores, hits, place = column[order], of_class[order], fold_of[order]
        for fold in range(N_FOLDS):
            inside = place == fold
            others = ~inside
            known = scores[others]
            # samples of equal probability have one value
            first = np.flatnonzero(np.diff(known, prepend=-1))
            count = np.diff(first, append=len(known)).astype(np.float64)
            rates = np.add.reduceat(hits[others], first) / count
            fitted = isotonic_regression(rates, weights=count).x
            recalibrated[order[inside], k] = np.interp(scores[inside], known[first], fitted)
    return recalibrated
