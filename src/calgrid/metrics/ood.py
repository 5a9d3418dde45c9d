"""Detection of out-of-distribution (OOD) samples by scores that are high for in-distribution (ID)
samples.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from calgrid.errors import DataError
from calgrid.metrics import _weighted
from calgrid.metrics._inputs import Floats, as_array, check_rows
from calgrid.metrics.moments import PRODUCT_BLOCK, row_blocks, row_sums

#: nearest training image whose distance is the score: k of OpenOOD for all data sets
NEIGHBOUR = 50
#: most dimensions of the principal space of ViM, the default of OpenOOD
PRINCIPAL = 256
#: mean residual of ViM, relative to the mean norm, below which the residual is rounding
LEAST_RESIDUAL = 1e-5


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
    return row_sums(np.multiply(rows, logarithm, out=logarithm))


def max_logit(logits: ArrayLike) -> Floats:
    """Largest logit of each row ``(N, K)``, (N,) (Hendrycks et al., ICML 2022)."""
    return np.asarray(logits, dtype=np.float64).max(axis=1)


def energy(logits: ArrayLike) -> Floats:
    """Negative free energy at temperature 1, ``ln sum_k exp z_k`` of each row ``(N, K)``, (N,) (Liu
    et al., NeurIPS 2020).
    """
    ascending = np.array(logits, dtype=np.float64, order="C")
    ascending.sort(axis=1)  # as in row_sums
    return np.asarray(logsumexp(ascending, axis=1))


def knn(features: ArrayLike, bank: ArrayLike, k: int = NEIGHBOUR) -> Floats:
    """Minus the squared distance of each row of ``features`` (N, d) to its k-th nearest row of
    ``bank`` (M, d), features of training images, (N,); all rows are divided by their norm.

    With fewer than k rows in the bank, the farthest counts. A row of zeros has the squared distance
    2, as orthogonal rows. Source: Sun et al., ICML 2022.
    """
    queries, points = _unit_rows(features), _unit_rows(bank)
    k = min(k, len(points))
    scores = np.empty(len(queries))
    for block in row_blocks(len(queries), len(points), PRODUCT_BLOCK):
        cosines = queries[block] @ points.T
        scores[block] = 2 * np.partition(cosines, -k, axis=1)[:, -k] - 2
    return scores


def _unit_rows(features: ArrayLike) -> NDArray[np.float32]:
    rows = np.asarray(features, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)


class VirtualLogit(NamedTuple):
    """Fitted ViM: ``origin`` (d,), orthonormal basis ``residual`` (d, d - D) of the complement of
    the principal space, and the factor ``alpha`` of the norm in it.
    """

    origin: Floats
    residual: Floats
    alpha: float

    def norms(self, features: ArrayLike) -> Floats:
        """Norm in the residual space of each row of ``features`` (N, d), (N,)."""
        rows = np.asarray(features)
        found = np.empty(len(rows))
        for block in row_blocks(len(rows), len(self.origin), PRODUCT_BLOCK):
            found[block] = np.linalg.norm((rows[block] - self.origin) @ self.residual, axis=1)
        return found


def fit_vim(
    features: ArrayLike,
    logits: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike,
    n_principal: int | None = None,
) -> VirtualLogit:
    """Fit ViM to training images (Wang et al., CVPR 2022, Eq. 4 to 6).

    The origin is ``-W^+ b``; the principal space has the leading eigenvectors of the uncentred
    covariance of the features about it; alpha is the mean largest logit over the mean norm in the
    residual space. The official code calls ``eig``, this one ``eigh``.

    Parameters
    ----------
    features, logits : (N, d) and (N, K) of training images.
    weight, bias : last layer, (K, d) and (K,).
    n_principal : dimensions of the principal space, by default 256, but at most d / 2.

    Raises
    ------
    DataError : the residual space has no variance.
    """
    rows, weights = np.asarray(features), np.asarray(weight, dtype=np.float64)
    width = rows.shape[1]
    if n_principal is None:
        n_principal = min(PRINCIPAL, width // 2)
    origin = np.asarray(-np.linalg.pinv(weights) @ np.asarray(bias), dtype=np.float64)
    covariance = np.zeros((width, width))
    norms = 0.0
    for block in row_blocks(len(rows), width, PRODUCT_BLOCK):
        centred = rows[block] - origin
        covariance += centred.T @ centred
        norms += np.linalg.norm(centred, axis=1).sum()
    _, vectors = np.linalg.eigh(covariance)  # of ascending eigenvalues
    fitted = VirtualLogit(origin, vectors[:, : max(0, width - n_principal)], 0.0)
    residual = fitted.norms(rows).mean()
    if residual <= LEAST_RESIDUAL * norms / len(rows):
        raise DataError(
            f"Training features have no variance beyond {n_principal} dimensions, so ViM is not "
            "defined; use a network with more features."
        )
    return fitted._replace(alpha=float(max_logit(logits).mean() / residual))


def vim(features: ArrayLike, logits: ArrayLike, fitted: VirtualLogit) -> Floats:
    """Energy minus alpha times the norm in the residual space, of each row of ``features`` (N, d)
    and ``logits`` (N, K), (N,); see :func:`fit_vim`.
    """
    return energy(logits) - fitted.alpha * fitted.norms(features)


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
    return _of_scores(_weighted.auroc, scores_id, scores_ood)


def fpr95(scores_id: ArrayLike, scores_ood: ArrayLike) -> float:
    """Fraction of OOD samples at or above the largest threshold that keeps at least 95 % of the ID
    samples.

    Parameters and errors as in :func:`auroc`. Source: the convention of TST, BalCAL and MaC-Cal (ID
    positive).
    """
    return _of_scores(_weighted.share_kept, scores_id, scores_ood)


def fpr95_oodpos(scores_id: ArrayLike, scores_ood: ArrayLike) -> float:
    """Fraction of ID samples flagged at the smallest threshold that finds at least 95 % of the OOD
    samples.

    Parameters and errors as in :func:`auroc`. Source: the convention of OpenOOD (OOD positive).
    """
    return _of_scores(_weighted.share_flagged, scores_id, scores_ood)


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
    return _of_scores(_weighted.precision_kept, scores_id, scores_ood)


def aupr_oodpos(scores_id: ArrayLike, scores_ood: ArrayLike) -> float:
    """As :func:`aupr`, with OOD samples positive and low scores theirs ("AUPR Out")."""
    return _of_scores(_weighted.precision_flagged, scores_id, scores_ood)


def sorted_scores(scores: ArrayLike, name: str) -> Floats:
    """Return validated scores as float64 (N,) in ascending order; ``name`` is the argument in
    messages.
    """
    values = as_array(scores, name, np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise DataError(f"{name} must have shape (N,) with N >= 1, got {values.shape}.")
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        raise DataError(f"{name} must be finite, got {values[row]} at position {row}.")
    return np.sort(values)


def _of_scores(
    function: Callable[..., Floats], scores_id: ArrayLike, scores_ood: ArrayLike
) -> float:
    positive = sorted_scores(scores_id, "scores_id")
    negative = sorted_scores(scores_ood, "scores_ood")
    positives_before = _weighted.cumulative(np.ones((1, len(positive))))
    negatives_before = _weighted.cumulative(np.ones((1, len(negative))))
    return float(function(positive, negative, positives_before, negatives_before)[0])
