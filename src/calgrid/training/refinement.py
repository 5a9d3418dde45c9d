"""Refinement and calibration parts of the negative log-likelihood."""

import numpy as np

from calgrid.calibrators._probabilities import Array
from calgrid.calibrators._temperature import fit_temperature, moments
from calgrid.calibrators.base import Labels


def refinement(logits: Array, labels: Labels) -> float:
    """Return the lowest mean NLL, in nats, of ``softmax(beta z)`` over beta in [0.01, 20].

    The rest of the NLL is its calibration part, as far as one temperature removes it (Berta et al.,
    arXiv 2501.19195, section 4; fitted and scored on the same rows, as in their code).

    Parameters
    ----------
    logits : ``(N, K)``, finite. labels : ``(N,)``.
    """
    below_top = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    beta = fit_temperature(below_top, labels).beta
    log_total, _, _ = moments(below_top, beta)
    return float(np.mean(log_total - beta * below_top[np.arange(len(labels)), labels]))
