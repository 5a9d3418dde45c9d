"""Indicators of logit vectors, and the temperature that gives a vector a fixed confidence."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calgrid.calibrators.indicators import INDICATORS

Floats = NDArray[np.float64]
#: the fixed confidence
CONFIDENCE = 0.8
#: search interval of temperatures, as powers of ten, and number of bisections
POWERS, HALVINGS = (-6.0, 6.0), 60


def margins(logits: Floats) -> Floats:
    """Largest minus second largest logit (N,) of logits (N, K); inf with one possible class."""
    return INDICATORS["margin"](logits - logits.max(axis=1, keepdims=True))[0]


def indicators(logits: Floats) -> pd.DataFrame:
    """Margin, largest logit, largest minus mean logit, and solved temperature of logits (N, K), one
    row per sample.
    """
    largest = logits.max(axis=1)
    return pd.DataFrame(
        {
            "margin": margins(logits),
            "largest_logit": largest,
            "logit_excess": INDICATORS["max_minus_mean"](logits - largest[:, None])[0],
            "solved_temperature": solved_temperature(logits, CONFIDENCE),
        }
    )


def solved_temperature(logits: Floats, confidence: float) -> Floats:
    """Temperature (N,) at which ``softmax(z / T)`` of logits (N, K) has its largest entry at
    ``confidence``.

    The largest entry decreases from 1 to 1/K in T, so the solution is unique; bisection of log T
    finds it to a relative error of 1e-15. NaN without a solution: tied largest logits, or a
    confidence of at most 1/K.
    """
    below = logits - logits.max(axis=1, keepdims=True)
    low, high = np.full((len(logits), 2), POWERS).T
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        too_sure = np.exp(below / 10.0 ** middle[:, None]).sum(axis=1) < 1 / confidence
        low, high = np.where(too_sure, middle, low), np.where(too_sure, high, middle)
    found = (low > POWERS[0]) & (high < POWERS[1])
    return np.where(found, 10.0 ** ((low + high) / 2), np.nan)
