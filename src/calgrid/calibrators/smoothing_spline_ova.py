"""Smoothing spline of each class's log odds, one class against the others."""

from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from calgrid.calibrators._logistic import RIDGE, fit_logistic, notes
from calgrid.calibrators._maps import bin_of, look_up, padded
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    log_probabilities,
    map_classes,
    namespace,
    sigmoid,
    softmax,
)
from calgrid.calibrators.base import Calibrator
from calgrid.components.registry import register

#: probabilities used as knots besides the ones at equal ranks
DECILES = np.linspace(0.1, 0.9, 9)
#: closer knots are merged, as a share of the range
CLOSE = 1e-3
#: strengths of the penalty on curvature, strongest first, for log odds in units of their range
STRENGTHS = np.geomspace(1e-4, 1e-9, 11)
#: no weaker strengths are tried after this number of successive ones worse than the best
PATIENCE = 2


def place_knots(log_odds: Array, n_knots: int) -> Array:
    """Return at least two ascending knots: at equal ranks of the distinct log odds ``(N,)`` with
    both ends, and at the deciles of the probability between them.
    """
    values = np.unique(log_odds)
    ranks = np.linspace(0, len(values) - 1, n_knots).round().astype(int)
    inner = np.log(DECILES) - np.log1p(-DECILES)
    inner = inner[(inner > values[0]) & (inner < values[-1])]
    knots = np.unique(np.concatenate([values[ranks], inner]))
    knots = knots[np.diff(knots, prepend=-np.inf) > CLOSE * (knots[-1] - knots[0])]
    return knots if len(knots) > 1 else np.array([values[0], values[0] + 1.0])


def evaluate(knots: Array, values: Array, log_odds: Array) -> Array:
    """Return natural cubic splines at log odds ``(N,)``: values ``(D,)`` or ``(D, F)`` at knots
    ``(D,)``, straight beyond the ends.
    """
    spline = CubicSpline(knots, values, bc_type="natural")
    inside = np.clip(log_odds, knots[0], knots[-1])
    excess = log_odds - inside
    result = spline(inside)
    beyond = np.flatnonzero(excess)
    slopes = spline(inside[beyond], 1)
    result[beyond] += slopes * excess[beyond].reshape(-1, *(1,) * (slopes.ndim - 1))
    return result


def calibrated(log_odds: Array, knots: Array, starts: Array, powers: Array, outer: Array) -> Array:
    """Return the probabilities of log odds ``(N,)`` after :func:`evaluate`.

    Parameters
    ----------
    knots, starts : inner knots ``(D - 2,)``; where each piece starts, ``(D - 1,)``.
    powers : coefficients of each piece ``(4, D - 1)``, the cubic ones first.
    outer : first and last knot, and the slopes there, ``(4,)``. Tensors have a row of each for each
        class ``(C, ...)``, and log odds ``(N, C)``.
    """
    least, most, falling, rising = (outer[..., place] for place in range(4))
    xp = namespace(log_odds)
    inside = xp.clip(log_odds, least, most)
    piece = bin_of(knots, inside, right=True)
    x = inside - look_up(starts, piece)
    cubic, square, slope, value = (look_up(powers[..., place, :], piece) for place in range(4))
    result = value + slope * x + square * (x * x) + cubic * (x * x * x)
    excess = log_odds - inside
    return sigmoid(result + xp.where(excess < 0.0, falling, rising) * excess)


def spline_basis(knots: Array) -> Array:
    """Return the values at the knots ``(D, D)`` of D natural cubic splines: two straight lines, and
    others whose squared second derivatives have integral 1 and are orthogonal, in units of the
    range.
    """
    unit = (knots - knots[0]) / (knots[-1] - knots[0])
    second = CubicSpline(unit, np.eye(len(unit)), bc_type="natural")(unit, 2)
    left, right, width = second[:-1], second[1:], np.diff(unit)[:, None] / 6.0
    # the second derivative is linear between knots
    roughness = sum((part * width).T @ part for part in (left, right, left + right))
    squares, vectors = np.linalg.eigh(roughness)
    squares[:2] = 1.0  # straight lines
    return vectors / np.sqrt(squares)


class SplineFit(NamedTuple):
    """Knots ``(D,)`` and the values there of the log odds after calibration ``(D,)``, whether only
    the penalty of straight lines holds them, and whether the fits converged.
    """

    knots: Array
    values: Array
    separable: bool
    converged: bool


def fit_smoothing_spline(log_odds: Array, target: Array, n_knots: int) -> SplineFit:
    """Fit a spline of log odds to labels.

    If the likelihood has no maximum, because the log odds separate the labels, the mean squared
    distance of the straight part from the identity at the knots has the penalty ``0.1 / N``.

    Parameters
    ----------
    log_odds : ``(N,)``. target : 1.0 or 0.0, ``(N,)``.
    n_knots : knots at equal ranks.
    """
    knots = place_knots(log_odds, n_knots)
    basis = spline_basis(knots)
    design = evaluate(knots, basis, log_odds)
    for ridge in (0.0, RIDGE / len(target) / len(knots)):
        coefficients, separable, converged = _best_strength(design, target, basis, knots, ridge)
        if not separable:
            break
    return SplineFit(knots, basis @ coefficients, ridge > 0.0, converged or separable)


def _best_strength(
    design: Array, target: Array, basis: Array, knots: Array, ridge: float
) -> tuple[Array, bool, bool]:
    """Return the coefficients ``(D,)`` of the strength of lowest criterion, whether labels are
    separable, and whether all fits converged.
    """
    curved = np.append([0.0, 0.0], np.ones(len(knots) - 2))
    identity = np.asarray(np.linalg.solve(basis, knots), dtype=np.float64)
    coefficients = best = np.zeros(len(knots))
    criterion, worse, converged = np.inf, 0, True
    for strength in STRENGTHS.tolist():
        penalty = np.where(curved > 0.0, strength, ridge)
        fit = fit_logistic(design, target, np.diag(penalty), coefficients, identity)
        if fit.separable:
            return fit.coefficients, True, False
        coefficients, converged = fit.coefficients, converged and fit.converged
        nll = fit.loss - float(penalty @ (coefficients - identity) ** 2)
        found, worse = nll + fit.effective / len(target), worse + 1
        if found < criterion:
            best, criterion, worse = coefficients, found, 0
        elif worse == PATIENCE:
            break
    return best, False, converged


@register(
    source="Lucena, Spline-Based Probability Calibration, 2018, arXiv 1809.07751; code splinecalib",
    keeps_argmax=False,
    parameters="<= K (n_knots + 9)",
    limits={"n_knots": "[2, 1000]"},
)
class SmoothingSplineOneVsAll(Calibrator):
    """One-vs-all smoothing splines of the log odds, "Spline" in CalArena.

    For each class, ``q = sigmoid(f(ln p - ln (1 - p)))`` with a natural cubic spline f, straight
    beyond the validation samples, that minimises ``mean NLL + s integral f''^2`` (for log odds in
    units of their range); rows are divided by their sums. The loss is convex and minimised by
    Newton's method. A class without validation samples keeps its probability; if the probability of
    one separates its samples from the others, the straight part of f is held near the identity by
    the penalty ``0.1 / N`` on its mean squared distance at the knots, with a warning (ours).
    Differences from the code:

    - Knots are at equal ranks of the distinct probabilities, not drawn at random, and at the
      deciles 0.1 to 0.9 as there. More knots change little, because s limits the curvature.
    - The penalty is that of smoothing splines and leaves straight lines (Platt scaling) free. The
      code's is the sum of squared coefficients of truncated powers, with the intercept.
    - s is the one of 11 between 1e-4 and 1e-9 with the lowest Akaike criterion, NLL plus effective
      parameters / N, from the strongest on until two in a row are worse. The code takes the lowest
      NLL on one of five random folds.

    ``fit_history``: ``n_knots`` (of all maps), ``n_absent`` (classes without validation samples).

    Parameters
    ----------
    n_knots : knots at equal ranks, for each class.
    """

    n_knots: int = 10

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        scores, rests = log_probabilities(logits)
        self.classes = np.unique(labels)
        splines = [
            fit_smoothing_spline(scores[:, k] - rests[:, k], (labels == k) * 1.0, self.n_knots)
            for k in self.classes
        ]
        knots = [fit.knots for fit in splines]
        width = max(map(len, knots))
        self.knots = padded([each[1:-1] for each in knots], width - 2, np.inf)
        self.starts = padded([each[:-1] for each in knots], width - 1)
        pieces = [CubicSpline(*fit[:2], bc_type="natural") for fit in splines]
        powers = []
        for power in range(4):
            powers.append(padded([each.c[power] for each in pieces], width - 1))
        self.powers = np.stack(powers, axis=1)
        # beyond the ends
        outer = [each[[0, -1]] for each in knots]
        slopes = [spline(ends, 1) for spline, ends in zip(pieces, outer, strict=True)]
        self.outer = np.hstack([outer, slopes])
        n_classes = logits.shape[1]
        return {
            "n_knots": sum(map(len, knots)),
            "n_absent": n_classes - len(self.classes),
            **notes(splines, n_classes),
        }

    def _transform(self, logits: Array, features: Array | None) -> Array:
        scores, rests = log_probabilities(logits)
        tables = self.knots, self.starts, self.powers, self.outer
        return map_classes(softmax(logits), scores - rests, self.classes, calibrated, *tables)
