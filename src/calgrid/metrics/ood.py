"""Detection of out-of-distribution (OOD) samples by scores that are high for in-distribution (ID)
samples.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calgrid.errors import DataError
from calgrid.metrics import _weighted
from calgrid.metrics._inputs import check_rows

Floats = NDArray[np.float64]


def max_softmax(probs: ArrayLike) -> Floats:
    """Largest probability of each row, (N,) (Hendrycks and Gimpel, ICLR 2017).

    Raises
    ------
    DataError : the values are logits.
    """
    return check_rows(probs, "probs").max(axis=1)


def negative_entropy(probs: ArrayLike) -> Floats:
    """Minus the entropy of each row in nats, ``sum_k p_k ln p_k`` with ``0 ln 0 = 0``, (N,).

    Raises
    ------
    DataError : the values are logits.
    """
    rows = check_rows(probs, "probs")
    logarithm = np.log(rows, out=np.zeros_like(rows), where=rows > 0)
    return np.einsum("nk,nk->n", rows, logarithm)


def auroc(scores_id: ArrayLike, scores_ood: ArrayLike) -> float:
    """Area under the ROC curve, ``P(s_ID > s_OOD) + P(s_ID = s_OOD) / 2``.

    Parameters
    ----------
    scores_id, scores_ood : finite scores (N,) and (M,), high for in-distribution samples.

    Raises
    ------
    DataError : scores are empty, not one-dimensional or not finite.

    Examples
    --------
    >>> auroc([0.9, 0.7], [0.7, 0.2])
    0.875
    """
    positive = sorted_scores(scores_id, "scores_id")
    negative = sorted_scores(scores_ood, "scores_ood")
    weights = np.ones((1, len(positive)))
    negatives_before = _weighted.cumulative(np.ones((1, len(negative))))
    return float(_weighted.auroc(positive, negative, weights, negatives_before)[0])


def fpr95(scores_id: ArrayLike, scores_ood: ArrayLike) -> float:
    """Fraction of OOD samples at or above the largest threshold that keeps at least 95 % of the ID
    samples.

    Parameters and errors as in :func:`auroc`. Source: the convention of TST, BalCAL and MaC-Cal (ID
    positive).
    """
    return _share(_weighted.share_kept, scores_id, scores_ood)


def fpr95_oodpos(scores_id: ArrayLike, scores_ood: ArrayLike) -> float:
    """Fraction of ID samples flagged at the smallest threshold that finds at least 95 % of the OOD
    samples.

    Parameters and errors as in :func:`auroc`. Source: the convention of OpenOOD (OOD positive).
    """
    return _share(_weighted.share_flagged, scores_id, scores_ood)


def aupr(scores_id: ArrayLike, scores_ood: ArrayLike) -> float:
    """Area under the precision-recall curve with ID samples positive, as average precision: the
    mean over ID samples of the share of ID samples among all scores at or above theirs.

    It depends on the sizes of the sets: without separation it is ``N / (N + M)``. Parameters and
    errors as in :func:`auroc`. Source: Hendrycks and Gimpel, ICLR 2017, "AUPR In".

    Examples
    --------
    >>> aupr([0.9, 0.7], [0.7, 0.2])
    0.8333333333333333
    """
    return _share(_weighted.precision_kept, scores_id, scores_ood)


def aupr_oodpos(scores_id: ArrayLike, scores_ood: ArrayLike) -> float:
    """As :func:`aupr`, with OOD samples positive and low scores theirs ("AUPR Out")."""
    return _share(_weighted.precision_flagged, scores_id, scores_ood)


def sorted_scores(scores: ArrayLike, name: str) -> Floats:
    """Return validated scores as float64 (N,) in ascending order; ``name`` is the argument in
    messages.
    """
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be a list of numbers: {error}.") from error
    if values.ndim != 1 or len(values) == 0:
        raise DataError(f"{name} must have shape (N,) with N >= 1, got {values.shape}.")
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        raise DataError(f"{name} must be finite, got {values[row]} at position {row}.")
    return np.sort(values)


def _share(function: Callable[..., Floats], scores_id: ArrayLike, scores_ood: ArrayLike) -> float:
    positive = sorted_scores(scores_id, "scores_id")
    negative = sorted_scores(scores_ood, "scores_ood")
    positives_before = _weighted.cumulative(np.ones((1, len(positive))))
    negatives_before = _weighted.cumulative(np.ones((1, len(negative))))
    return float(function(positive, negative, positives_before, negatives_before)[0])
