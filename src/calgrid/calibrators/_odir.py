"""Matrix scaling with off-diagonal and intercept regularisation (ODIR), its strength chosen by cross-validation."""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._linear import GRADIENT_TOLERANCE, LinearMap, check_classes, fit_linear, mean_nll
from calgrid.calibrators._temperature import BETA_BOUNDS, fit_temperature
from calgrid.calibrators._unit import in_units, logit_unit
from calgrid.calibrators._warnings import end_of_grid
from calgrid.calibrators.base import Array, Calibrator, Head, Labels

#: strengths for cross-validation, strongest first
STRENGTHS = (1e2, 1e1, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
N_FOLDS = 3
#: cross-validation ends after this number of successive strengths that are worse than the best
PATIENCE = 2
#: gradient at convergence of the fits of the folds, which are only used to rank strengths
FOLD_TOLERANCE = 1e-5


def folds(labels: Labels) -> NDArray[np.intp]:
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
    unit: float = 1.0,
    tolerance: float = GRADIENT_TOLERANCE,
) -> tuple[LinearMap, dict[str, Any]]:
    """Minimise ``mean NLL + strength (sum_{i != j} W_ij^2 + sum b^2)`` from ``start``.

    The diagonal is not penalised but kept in [0.01, 20] / ``unit``; classes without samples keep that of
    ``temperature``.
    """
    n_classes = inputs.shape[1]
    off_diagonal = 1.0 - np.eye(n_classes)
    present = np.bincount(labels, minlength=n_classes) > 0
    fixed, free = temperature.weight.diagonal(), np.where(off_diagonal > 0.0, np.inf, 0.0)
    lower = np.diag(np.where(present, BETA_BOUNDS[0] / unit, fixed)) - free
    upper = np.diag(np.where(present, BETA_BOUNDS[1] / unit, fixed)) + free
    return fit_linear(
        inputs,
        labels,
        start,
        weight_ridge=strength * off_diagonal,
        bias_ridge=strength,
        target=np.zeros_like(off_diagonal),
        bounds=(lower, upper),
        tolerance=tolerance,
    )


def cross_validate(
    inputs: Array, labels: Labels, temperature: LinearMap, unit: float = 1.0
) -> tuple[float, list[float]]:
    """Return the strength with the lowest mean NLL over folds, and the NLL of all tried ones, strongest first.

    Each fit starts from that of the previous strength; the search ends when two successive strengths are worse. With
    fewer samples than folds the strongest is returned.
    """
    if len(labels) < N_FOLDS:
        return STRENGTHS[0], []
    fold, maps, scores = folds(labels), [temperature] * N_FOLDS, []
    for strength in STRENGTHS:
        total = 0.0
        for number in range(N_FOLDS):
            out = fold == number
            given = (inputs[~out], labels[~out], temperature, maps[number], strength, unit)
            maps[number], _ = fit_odir(*given, tolerance=FOLD_TOLERANCE)
            total += mean_nll(maps[number], inputs[out], labels[out]) * out.sum()
        scores.append(float(total) / len(labels))
        if len(scores) - 1 - int(np.argmin(scores)) >= PATIENCE:
            break
    return STRENGTHS[int(np.argmin(scores))], scores


class MatrixScaling(Calibrator):
    """Base class of ``ms_odir`` and ``dirichlet``, which differ in :meth:`_inputs`."""

    def __init__(self, *, strength: float | None = None) -> None:
        super().__init__()
        self.strength = strength

    @abstractmethod
    def _inputs(self, logits: Array) -> Array:
        """Return the finite inputs x ``(N, K)`` of the matrix."""

    @abstractmethod
    def _usable(self, logits: Array, labels: Labels) -> NDArray[np.bool_]:
        """Return the mask ``(N,)`` of the samples used by the fit."""

    def _fit(self, logits: Array, labels: Labels, features: Array | None, head: Head | None) -> dict[str, Any]:
        check_classes(self.id, logits.shape[1])
        kept = self._usable(logits, labels)
        used, targets = (logits, labels) if kept.all() else (logits[kept], labels[kept])
        inputs, n_classes = self._inputs(used), logits.shape[1]
        unit = logit_unit(used)
        beta = fit_temperature(in_units(used, unit), targets).beta / unit
        start = LinearMap(beta * np.eye(n_classes), np.zeros(n_classes))
        strength = self.strength
        scores: list[float] = []
        if strength is None:
            strength, scores = cross_validate(inputs, targets, start, unit)
        (self.weight, self.bias), history = fit_odir(inputs, targets, start, start, strength, unit)
        history["warnings"] += end_of_grid("penalty", strength, STRENGTHS) if scores else []
        return {**history, "strength": strength, "fold_nll": scores, "n_infinite_loss": int((~kept).sum())}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return LinearMap(self.weight, self.bias).probabilities(self._inputs(logits))
