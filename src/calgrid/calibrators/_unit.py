"""Unit of logits: their divisor before a fit, which makes the fit independent of their scale."""

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._probabilities import row_blocks

Array = NDArray[np.float64]
#: median standard deviation of a row in units: about that of the published CIFAR-10 ResNet-50 trained with
#: cross-entropy (4.8), so that temperatures, learning rates and bounds of the papers apply
TYPICAL_SPREAD = 5.0
#: larger multiples of the median gap of a row are masks such as -1e9, which are ignored
MOST_GAP = 100.0


def logit_unit(logits: Array) -> float:
    """Return a fifth of the median standard deviation of a row; 1.0 if the finite logits of each row are equal.

    Proportional to the logits, and invariant to constants added to rows, a class of -inf, and masks in fewer than half
    of the classes.

    Parameters
    ----------
    logits : ``(N, K)`` with row maximum 0; -inf allowed.
    """
    spreads = np.concatenate([_spreads(-logits[block]) for block in row_blocks(*logits.shape)])
    spreads = spreads[(spreads > 0.0) & np.isfinite(spreads)]
    return float(np.median(spreads)) / TYPICAL_SPREAD if len(spreads) else 1.0


def _spreads(gaps: Array) -> Array:
    """Return the standard deviation ``(N,)`` of each row's gaps to its largest logit, without masks."""
    middle = np.median(gaps, axis=1, keepdims=True)
    real = gaps < np.where(middle > 0.0, MOST_GAP * middle, np.inf)
    return gaps.std(axis=1) if real.all() else np.nanstd(np.where(real, gaps, np.nan), axis=1)


def in_units(logits: Array, unit: float) -> Array:
    """Return logits divided by their unit; overflow becomes impossible (-inf)."""
    if unit == 1.0:
        return logits
    with np.errstate(over="ignore"):
        return logits / unit
