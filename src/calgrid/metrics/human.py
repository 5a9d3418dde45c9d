"""Agreement of a model with human labels: votes instead of one label per image.

All take probabilities (N, K) and votes (N, K): how many people chose each class for each image (as
in CIFAR-10H, Peterson et al., ICCV 2019), or known class probabilities. h_i are the fractions of
votes of image i.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from calgrid.errors import DataError, row_at
from calgrid.metrics._inputs import TINY, Floats, Output, as_array, check_rows
from calgrid.metrics.binning import BinSums, bin_index, mean_gap
from calgrid.metrics.moments import row_sums


def kl_human(probs: ArrayLike, votes: ArrayLike, n_bins: int = 15) -> float:
    """Mean Kullback-Leibler divergence from people to model in nats, ``mean_i sum_k h_ik ln(h_ik /
    p_ik)``; a p of exactly 0 counts as the smallest positive float64.

    Parameters
    ----------
    probs : probabilities (N, K). votes : numbers of votes (N, K), finite, not negative, not all
        zero in a row.
    n_bins : unused, for one signature over all metrics.

    Raises
    ------
    DataError : invalid probabilities, or votes with another shape or a row without votes.
    """
    return float(kl_per_sample(probs, votes).mean())


def tv_human(probs: ArrayLike, votes: ArrayLike, n_bins: int = 15) -> float:
    """Mean total variation distance between people and model, ``mean_i sum_k |h_ik - p_ik| / 2``,
    in [0, 1].

    Parameters and errors as in :func:`kl_human`.
    """
    return float(tv_per_sample(*check_votes(probs, votes)).mean())


def ece_human(probs: ArrayLike, votes: ArrayLike, n_bins: int = 15) -> float:
    """ECE against people: ``sum_b |sum_{i in b} (p_i - h_i)| / N`` with h_i the fraction of votes
    for the predicted class.

    Less noisy than :func:`calgrid.metrics.ece` because h_i is an average. With the known
    probability q of the predicted class as h_i, it estimates the binned form of the true
    calibration error E|E[q | confidence] - confidence| without label noise. The sampling noise of
    images, whose q differ within a bin, remains; it dominates if q is mostly near 0 or 1.

    Parameters
    ----------
    n_bins : number of equal-width bins. Others and errors as in :func:`kl_human`; ConfigError
        unless ``n_bins`` is an integer of at least 1.
    """
    columns = bin_columns(*check_votes(probs, votes), n_bins)
    return float(mean_gap(BinSums(*np.split(columns.sum(axis=0), 3))))


def kl_per_sample(probs: ArrayLike, votes: ArrayLike) -> Floats:
    """Kullback-Leibler divergence of each image (N,); parameters as in :func:`kl_human`."""
    rows, shares = check_votes(probs, votes)
    logs = Output(rows, probs.logs if isinstance(probs, Output) else None).log_probs
    possible = np.where(np.isneginf(logs), np.log(TINY), logs)
    return row_sums(special.xlogy(shares, shares) - shares * possible)


def tv_per_sample(rows: Floats, shares: Floats) -> Floats:
    """Total variation distance of each image (N,), from the output of :func:`check_votes`."""
    return row_sums(np.abs(rows - shares)) / 2


def bin_columns(rows: Floats, shares: Floats, n_bins: int) -> Floats:
    """Contribution of each image to the sums of bins, (N, 3 M): count, confidence, fraction of the
    predicted class.
    """
    confidence, agreed = rows.max(axis=1), shares[np.arange(len(rows)), rows.argmax(axis=1)]
    member = (bin_index(confidence, n_bins)[:, None] == np.arange(n_bins)).astype(np.float64)
    return np.hstack([member, member * confidence[:, None], member * agreed[:, None]])


def check_votes(probs: ArrayLike, votes: ArrayLike) -> tuple[Floats, Floats]:
    """Probabilities and fractions of votes, each float64 (N, K)."""
    rows = check_rows(probs, "probs")
    counts = as_array(votes, "votes", np.float64)
    if counts.shape != rows.shape:
        raise DataError(f"votes must have the shape {rows.shape} of probs, got {counts.shape}.")
    total = row_sums(counts)
    bad = ~np.isfinite(total) | (counts.min(axis=1) < 0) | (total == 0)
    if bad.any():
        raise DataError(
            "votes must be finite, not negative and not all zero in a row, "
            f"{row_at(int(bad.argmax()))} is not."
        )
    return rows, counts / total[:, None]
