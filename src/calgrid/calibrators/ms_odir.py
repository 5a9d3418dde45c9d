"""Matrix scaling of the logits with off-diagonal and intercept regularisation (ODIR)."""

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._odir import MatrixScaling
from calgrid.calibrators._probabilities import centred, possible_labels
from calgrid.calibrators.base import Array, Labels
from calgrid.registry import register

#: distance below the row maximum that replaces a logit of -inf, so that it can be multiplied
GAP = 100.0


@register(
    source="Kull et al., Beyond Temperature Scaling, NeurIPS 2019; official code dirichletcal/experiments_dnn",
    keeps_argmax=False,
    parameters="K^2 + K",
    limits={"strength": "(0, inf)"},
)
class MatrixScalingOdir(MatrixScaling):
    """Matrix scaling, ``softmax(W z + b)``, by ``mean NLL + s (sum_{i != j} W_ij^2 + sum b^2)``.

    As in the authors' code, the penalties are plain sums, added to the mean NLL. That code chooses separate strengths
    by 5-fold cross-validation over a wide grid, with Adam. Here the convex loss is minimised by Newton's
    method; one strength for both sums is chosen among 1e2, 1e1, ..., 1e-6 by the NLL of 3 folds, from the strongest
    on, until two in a row are worse; then the map is fitted to all samples. The diagonal is not penalised but
    kept in [0.01, 20], and at ``1 / T`` of ``ts`` for classes without samples. At most 200 classes.

    z is the logits minus the mean of their row, in units of their spread, because the penalised map is not invariant
    to a constant added to a row or to the logits' scale; the authors use the logits without changes. A logit of -inf
    becomes the row's largest minus 100, and samples with such a label are left out.

    ``fit_history``: ``loss`` (with penalty), ``nll``, ``iterations``, ``gradient_norm``, ``strength``, ``fold_nll``
    (mean over the folds, for each strength tried), ``n_infinite_loss`` (samples left out).

    Parameters
    ----------
    strength : s; None for cross-validation.
    """

    scale_free = True

    def _inputs(self, logits: Array) -> Array:
        values = centred(logits)
        return np.where(np.isneginf(values), values.max(axis=1, keepdims=True) - GAP, values)

    def _usable(self, logits: Array, labels: Labels) -> NDArray[np.bool_]:
        return possible_labels(logits, labels)
