"""Dirichlet calibration: a matrix and a bias on ln p, with off-diagonal and intercept regularisation (ODIR)."""

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._odir import MatrixScaling
from calgrid.calibrators._probabilities import log_softmax
from calgrid.calibrators.base import Array, Labels
from calgrid.registry import register

#: probabilities are clipped to [EPSILON, 1 - EPSILON] before their logarithm
EPSILON = float(np.finfo(np.float64).eps)


@register(
    source="Kull et al., Beyond Temperature Scaling, NeurIPS 2019; official code dirichletcal/experiments_dnn",
    keeps_argmax=False,
    parameters="K^2 + K",
    limits={"strength": "(0, inf)"},
)
class DirichletCalibration(MatrixScaling):
    """Dirichlet calibration, ``softmax(W ln p + b)``, by ``mean NLL + s (sum_{i != j} W_ij^2 + sum b^2)``.

    p, the softmax of the unscaled logits, is clipped to [eps, 1 - eps] of float64, also for a class with a logit of
    -inf. The map depends on the scale of the logits, because p is calibrated.

    As in the authors' code, the penalties are plain sums, added to the mean NLL. That code chooses separate strengths
    by 5-fold cross-validation over a wide grid, with Adam. Here the convex loss is minimised by Newton's
    method; one strength for both sums is chosen among 1e2, 1e1, ..., 1e-6 by the NLL of 3 folds, from the strongest
    on, until two in a row are worse; then the map is fitted to all samples. The diagonal is not penalised but
    kept in [0.01, 20] in units of the logits' spread, and at ``1 / T`` of ``ts`` for classes without samples. At most
    200 classes.

    ``fit_history``: ``loss`` (with penalty), ``nll``, ``iterations``, ``gradient_norm``, ``strength``, ``fold_nll``
    (mean over the folds, for each strength tried), ``n_infinite_loss`` (always 0: clipping makes losses finite).

    Parameters
    ----------
    strength : s; None for cross-validation.
    """

    def _inputs(self, logits: Array) -> Array:
        return np.minimum(log_softmax(logits, np.log(EPSILON)), np.log1p(-EPSILON))

    def _usable(self, logits: Array, labels: Labels) -> NDArray[np.bool_]:
        return np.ones(len(labels), dtype=bool)
