"""Matrix scaling: a linear map of the logits, or of ln p, with a penalty whose strength is chosen
by cross-validation, or without.
"""

import numpy as np

from calgrid.calibrators._linear import (
    FEW_ROWS,
    GRADIENT_TOLERANCE,
    LEAST_RIDGE,
    LinearMap,
    check_classes,
    fit_linear,
    mean_nll,
    without_infinite,
)
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    Mask,
    Places,
    centred,
    namespace,
    usable_rows,
)
from calgrid.calibrators._temperature import BETA_BOUNDS, beta_bounds, fit_rescaled
from calgrid.calibrators.base import SoftmaxCalibrator, end_of_grid
from calgrid.components.registry import register
from calgrid.errors import DataError

#: strengths for cross-validation, strongest first
STRENGTHS = (1e2, 1e1, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
N_FOLDS = 3
#: maximum number of classes for cross-validation
MAX_VALIDATED = 200
#: cross-validation ends after this number of successive strengths that are worse than the best
PATIENCE = 2
#: gradient at convergence of the fits of the folds, which are only used to rank strengths
FOLD_TOLERANCE = 1e-5
#: probabilities are clipped to [EPSILON, 1 - EPSILON] before their logarithm
EPSILON = float(np.finfo(np.float64).eps)
#: number of rows times squared number of classes up to which double precision is faster, as fits
#: take fewer steps
DOUBLE = 5_000_000


def folds(labels: Labels) -> Places:
    """Return the fold ``(N,)`` of each sample, stratified by class."""
    fold = np.empty(len(labels), dtype=np.intp)
    fold[np.argsort(labels, kind="stable")] = np.arange(len(labels)) % N_FOLDS
    return fold


def fit_odir(
    inputs: Array,
    labels: Labels,
    temperature: LinearMap,
    start: LinearMap,
    strength: float,
    bounds: tuple[float, float] = BETA_BOUNDS,
    tolerance: float = GRADIENT_TOLERANCE,
    impossible: Mask | None = None,
    diagonal: float = 0.0,
    exact: bool = False,
) -> tuple[LinearMap, History]:
    """Minimise ``mean NLL + strength (sum_{i != j} W_ij^2 + sum b^2)`` from ``start``.

    The diagonal is kept within ``bounds``, and penalised with ``diagonal`` times its squared
    distance from that of ``temperature``, which classes without samples keep.
    """
    n_classes = inputs.shape[1]
    off_diagonal = 1.0 - np.eye(n_classes)
    present = np.bincount(labels, minlength=n_classes) > 0
    fixed, free = temperature.weight.diagonal(), np.where(off_diagonal > 0.0, np.inf, 0.0)
    lower = np.diag(np.where(present, bounds[0], fixed)) - free
    upper = np.diag(np.where(present, bounds[1], fixed)) + free
    return fit_linear(
        inputs,
        labels,
        start,
        weight_ridge=strength * off_diagonal + diagonal * np.eye(n_classes),
        bias_ridge=strength,
        target=temperature.weight,
        bounds=(lower, upper),
        tolerance=tolerance,
        impossible=impossible,
        exact=exact,
    )


def cross_validate(
    inputs: Array,
    labels: Labels,
    temperature: LinearMap,
    bounds: tuple[float, float] = BETA_BOUNDS,
    impossible: Mask | None = None,
) -> tuple[float, list[float]]:
    """Return the strength with the lowest mean NLL over folds, and the NLL of all tried ones,
    strongest first.

    Each fit starts from that of the previous strength; the search ends when two successive
    strengths are worse. With fewer samples than folds the strongest is returned.
    """
    if len(labels) < N_FOLDS:
        return STRENGTHS[0], []
    fold = folds(labels)
    maps = [temperature] * N_FOLDS
    scores: list[float] = []
    for strength in STRENGTHS:
        total = 0.0
        for number in range(N_FOLDS):
            out = fold == number
            hidden = impossible if impossible is None else impossible[~out]
            maps[number], _ = fit_odir(
                inputs[~out],
                labels[~out],
                temperature,
                maps[number],
                strength,
                bounds,
                tolerance=FOLD_TOLERANCE,
                impossible=hidden,
            )
            hidden = impossible if impossible is None else impossible[out]
            total += mean_nll(maps[number], inputs[out], labels[out], hidden) * out.sum()
        scores.append(float(total) / len(labels))
        if len(scores) - 1 - int(np.argmin(scores)) >= PATIENCE:
            break
    return STRENGTHS[int(np.argmin(scores))], scores


@register(
    id="ms_odir",
    source="Kull et al., Beyond Temperature Scaling, NeurIPS 2019; official code "
    "dirichletcal/experiments_dnn",
    keeps_argmax=False,
    parameters="K^2 + K",
    limits={"strength": "(0, inf)"},
)
class MatrixScalingOdir(SoftmaxCalibrator):
    """Matrix scaling, ``softmax(W z + b)``, by ``mean NLL + s (sum_{i != j} W_ij^2 + sum b^2)``.

    As in the authors' code, the penalties are plain sums, added to the mean NLL. That code chooses
    separate strengths by 5-fold cross-validation over a wide grid, with Adam. Here the convex loss
    is minimised by Newton's method; one strength for both sums is chosen among 1e2, 1e1, ..., 1e-6
    by the NLL of 3 folds, from the strongest on, until two in a row are worse; then the map is
    fitted to all samples. The diagonal is not penalised but kept in [0.01, 20], and at ``1 / T`` of
    ``ts`` for classes without samples. At most 1000 classes, 200 with cross-validation.

    z is the logits minus the mean of their row, in units of their spread, because the penalised map
    is not invariant to a constant added to a row or to the logits' scale; the authors use the
    logits without changes. A class whose logit is -inf is left out of the softmax of its row, and
    its z is 0, the mean of the others; a sample with such a label is left out.

    Folds are stratified in the order of the classes and rows, so another order may choose another
    strength (of 400 samples of CIFAR-10 ResNet-50, 100 instead of 1: probabilities changed by up to
    0.060; of 5,000 none changed); with a given ``strength`` it does not matter.

    ``fit_history``: ``loss`` (with penalty), ``nll``, ``iterations``, ``gradient_norm``,
    ``strength``, ``fold_nll`` (mean over the folds, for each strength tried), ``n_infinite_loss``
    (samples left out).

    Parameters
    ----------
    strength : s; None for cross-validation.
    """

    scale_free = True
    #: largest gradient component at convergence
    tolerance = GRADIENT_TOLERANCE
    #: penalty of the diagonal
    diagonal = 0.0

    strength: float | None = None

    def _inputs(self, logits: Array) -> tuple[Array, Mask | None]:
        """Return the finite inputs z ``(N, K)`` of the matrix, and which classes are impossible."""
        return without_infinite(centred(logits))

    def _usable(self, logits: Array, labels: Labels) -> tuple[Array, Labels, int]:
        """Return the samples used by the fit, and the number of others."""
        return usable_rows(logits, labels)

    def _is_exact(self, n_samples: int, n_classes: int) -> bool:
        """Whether products of the last fit are in double precision."""
        return False

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        n_classes = logits.shape[1]
        check_classes(self.id, n_classes)
        if self.strength is None and n_classes > MAX_VALIDATED:
            raise DataError(
                f"calibrator '{self.id}' chooses its strength by cross-validation for at most "
                f"{MAX_VALIDATED} classes, got {n_classes}: up to 27 fits, of 20 s and more each "
                "at 1,000 classes; give it a strength, or use 'sms', which needs none."
            )
        used, targets, n_infinite = self._usable(logits, labels)
        inputs, impossible = self._inputs(used)
        fit, scale = fit_rescaled(used, targets, self._scale)
        least, most = beta_bounds(scale * self._scale)
        bounds = least / scale, most / scale
        start = LinearMap(fit.beta * np.eye(n_classes), np.zeros(n_classes))
        strength = self.strength
        scores: list[float] = []
        if strength is None:
            strength, scores = cross_validate(inputs, targets, start, bounds, impossible)
        (self.weight, self.bias), history = fit_odir(
            inputs,
            targets,
            start,
            start,
            strength,
            bounds,
            self.tolerance,
            impossible,
            self.diagonal,
            self._is_exact(len(targets), n_classes),
        )
        if scores:
            history["warnings"] += end_of_grid("penalty", strength, STRENGTHS)
        found = {"strength": strength, "fold_nll": scores, "n_infinite_loss": n_infinite}
        return {**history, **found}

    def _scores(self, logits: Array, features: Array | None) -> Array:
        inputs, impossible = self._inputs(logits)
        return LinearMap(self.weight, self.bias).scores(inputs, impossible)


@register(
    id="dirichlet",
    source="Kull et al., Beyond Temperature Scaling, NeurIPS 2019; official code "
    "dirichletcal/experiments_dnn",
    keeps_argmax=False,
    parameters="K^2 + K",
    limits={"strength": "(0, inf)"},
)
class DirichletCalibration(MatrixScalingOdir):
    """Dirichlet calibration, ``softmax(W ln p + b)``, by ``mean NLL + s (sum_{i != j} W_ij^2 + sum
    b^2)``.

    p, the softmax of the unscaled logits, is clipped to [eps, 1 - eps] of float64, also for a class
    with a logit of -inf. The map depends on the scale of the logits, because p is calibrated.

    The fit, its bounds (in units of the logits' spread), ``fit_history`` and ``strength`` are those
    of ``ms_odir``; ``n_infinite_loss`` is always 0, because clipping makes losses finite. Another
    order of the rows may choose another strength here, too (of 400 samples of CIFAR-10 ResNet-50,
    100 instead of 10: probabilities changed by up to 0.068; of 5,000 none changed).
    """

    scale_free = False
    maps_impossible = True

    def _inputs(self, logits: Array) -> tuple[Array, None]:
        xp = namespace(logits)
        log_p = logits - xp.log(xp.exp(logits).sum(axis=1, keepdims=True))
        return xp.clip(log_p, np.log(EPSILON), np.log1p(-EPSILON)), None

    def _usable(self, logits: Array, labels: Labels) -> tuple[Array, Labels, int]:
        return logits, labels, 0


@register(
    id="ms",
    source="Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017, "
    "Sec. 4.2; CalArena, arXiv 2605.30188",
    keeps_argmax=False,
    parameters="K^2 + K",
    slow_from=50,
)
class MatrixScaling(MatrixScalingOdir):
    """Matrix scaling, ``softmax(W z + b)`` by validation NLL, "MS" in CalArena.

    ``ms_odir`` with the strength 1e-8, also for the distance of the diagonal from that of ``ts``,
    which makes the minimum unique where classes are separable and has no effect elsewhere: the
    diagonal stays in [0.01, 20], and z is in units of the logits' spread. Over-fits with ``K^2``
    weights unless there are many validation samples; takes at most 200 classes.

    ``fit_history`` is that of ``ms_odir``.
    """

    #: the loss is nearly flat in some directions
    tolerance = 1e-11
    diagonal = LEAST_RIDGE

    def __init__(self) -> None:
        super().__init__()
        self.strength = LEAST_RIDGE

    def _is_exact(self, n_samples: int, n_classes: int) -> bool:
        is_small = n_samples * n_classes**2 <= DOUBLE
        return is_small or n_samples < FEW_ROWS * n_classes

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        n_classes = logits.shape[1]
        if n_classes > MAX_VALIDATED:
            raise DataError(
                "calibrator 'ms' has K^2 weights without a penalty and takes at most "
                f"{MAX_VALIDATED} classes, got {n_classes}; use 'sms'."
            )
        return super()._fit(logits, labels, features, head)
