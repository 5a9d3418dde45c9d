"""Smoothing spline of each class's log odds, one class against the others."""

from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from calgrid.calibrators._logistic import RIDGE, fit_logistic, notes
from calgrid.calibrators._network import sigmoid
from calgrid.calibrators._probabilities import LOG_TINY, log_probabilities, renormalised, softmax
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.components.registry import register

#: probabilities that are knots besides those at equal ranks
DECILES = np.linspace(0.1, 0.9, 9)
#: closer knots are merged, as a share of the range
CLOSE = 1e-3
#: strengths of the penalty on curvature, strongest first, for log odds in units of their range
STRENGTHS = np.geomspace(1e-4, 1e-9, 11)
#: weaker strengths are not tried after this number of successive ones that are worse than the best
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

    def __init__(self, *, n_knots: int = 10) -> None:
        super().__init__()
        self.n_knots = n_knots

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        scores, rests = log_probabilities(logits)
        self.classes = np.unique(labels)
        splines = [
            fit_smoothing_spline(scores[:, k] - rests[:, k], (labels == k) * 1.0, self.n_knots)
            for k in self.classes
        ]
        self.knots = np.concatenate([fit.knots for fit in splines])
        self.values = np.concatenate([fit.values for fit in splines])
        self.ends = np.cumsum([len(fit.knots) for fit in splines])
        n_classes = logits.shape[1]
        return {
            "n_knots": len(self.knots),
            "n_absent": n_classes - len(self.classes),
            **notes(splines, n_classes),
        }

    def _transform(self, logits: Array, features: Array | None) -> Array:
        scores, rests = log_probabilities(logits)
        probabilities = softmax(logits)
        mapped = probabilities.copy()
        for begin, end, k in zip([0, *self.ends[:-1]], self.ends, self.classes, strict=True):
            log_odds = scores[:, k] - rests[:, k]
            mapped[:, k] = sigmoid(
                evaluate(self.knots[begin:end], self.values[begin:end], log_odds)
            )
        return renormalised(mapped, probabilities)

    def _module(self, maps: Any) -> Any:
        mapped = np.isin(np.arange(self.n_classes or 0), self.classes)
        knots, points, pieces = [], [], []
        for begin, end in zip([0, *self.ends[:-1]], self.ends, strict=True):
            knots.append(self.knots[begin:end])
            points.append(np.append(knots[-1][:1], knots[-1]))
            spline = CubicSpline(knots[-1], self.values[begin:end], bc_type="natural")
            # straight beyond the ends
            left, right = (
                [0.0, 0.0, float(spline(end, 1)), float(spline(end))] for end in knots[-1][[0, -1]]
            )
            pieces.append(np.column_stack([left, spline.c, right]))
        places = np.searchsorted(self.classes, np.arange(len(mapped))).clip(max=len(knots) - 1)
        coefficients: list[list[Array]] = [[], [], [], []]
        for place in places:
            for power, row in enumerate(pieces[place][::-1]):
                coefficients[power].append(row)
        chosen = [knots[place] for place in places]
        cubic = maps.Cubic(chosen, [points[place] for place in places], coefficients)
        return maps.PerClassOdds(maps.OfLogOdds(cubic), mapped, LOG_TINY)
