"""Matrix scaling with off-diagonal and intercept regularisation (ODIR), its strength chosen by
cross-validation.
"""

import numpy as np

from calgrid.calibrators._linear import (
    GRADIENT_TOLERANCE,
    FullDesign,
    LinearMap,
    PenalisedLikelihood,
    check_classes,
    fit_linear,
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
#: cross-validation ends after this number of successive strengths worse than the best
PATIENCE = 2
#: gradient at convergence of the fits of the folds, which are only used to rank strengths
FOLD_TOLERANCE = 1e-5


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
            design, values = FullDesign(inputs[out]), maps[number].flat()
            zero = np.zeros_like(values)
            nll = PenalisedLikelihood(design, labels[out], zero, values, hidden)(values).loss
            total += nll * out.sum()
        scores.append(float(total) / len(labels))
        if len(scores) - 1 - int(np.argmin(scores)) >= PATIENCE:
            break
    return STRENGTHS[int(np.argmin(scores))], scores


@register(
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
        used, targets, n_infinite = logits, labels, 0
        if not self.maps_impossible:
            used, targets, n_infinite = usable_rows(logits, labels)
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
