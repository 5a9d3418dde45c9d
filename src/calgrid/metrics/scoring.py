"""Proper scores and accuracy, on probabilities and labels."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calgrid.metrics._inputs import Predictions, Probabilities, check_probabilities

#: probabilities below this count as this in the NLL, so that one certain mistake does not make it infinite
PROBABILITY_FLOOR = 1e-12


def accuracy(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Share of samples whose first arg max is the label.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : unused, for one signature over all metrics.

    Raises
    ------
    DataError : for anything but probabilities and labels, see :func:`calgrid.metrics.check_probabilities`.
    """
    return float(check_probabilities(probs, labels).correct.mean())


def top5(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Share of samples whose label is among the min(5, K) largest probabilities; ties go to the lower class index.

    Parameters and errors as in :func:`accuracy`.
    """
    predictions = check_probabilities(probs, labels)
    own = predictions.label_probs[:, None]
    earlier = np.arange(predictions.probs.shape[1]) < predictions.labels[:, None]
    ahead = (predictions.probs > own) | ((predictions.probs == own) & earlier)
    return float((ahead.sum(axis=1) < 5).mean())


def nll(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Mean negative log-likelihood in nats, mean_i -ln max(p_i[y_i], 1e-12).

    Parameters and errors as in :func:`accuracy`.
    """
    return float(nll_per_sample(check_probabilities(probs, labels)).mean())


def brier(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Brier score (Brier 1950), mean_i sum_k (p_ik - 1[y_i = k])^2, in [0, 2]: the sum over classes, not their mean.

    Parameters and errors as in :func:`accuracy`.
    """
    return float(brier_per_sample(check_probabilities(probs, labels)).mean())


def nll_per_sample(predictions: Predictions) -> NDArray[np.float64]:
    """Negative log-likelihood of each sample in nats, (N,)."""
    return -np.log(np.maximum(predictions.label_probs, PROBABILITY_FLOOR))


def brier_per_sample(predictions: Predictions) -> NDArray[np.float64]:
    """Brier score of each sample, (N,), without an (N, K) one-hot array."""
    own = predictions.label_probs
    others = np.einsum("nk,nk->n", predictions.probs, predictions.probs) - own**2
    return others.clip(min=0) + (1 - own) ** 2
