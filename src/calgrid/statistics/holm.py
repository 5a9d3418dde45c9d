"""Correction of p-values for multiple comparisons."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from calgrid.errors import DataError


def holm(p_values: ArrayLike, groups: ArrayLike | None = None) -> NDArray[np.float64]:
    """Holm-adjusted p-values: the i-th smallest of m times (m - i + 1), made monotone, at most 1.

    Parameters
    ----------
    p_values : (n,) in [0, 1]; NaN is a missing comparison: it stays NaN and does not count in m.
    groups : label (n,) of the family of each comparison; one family by default.

    Raises
    ------
    DataError : if a p-value is outside [0, 1].

    Source: Holm, Scandinavian Journal of Statistics 1979.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = pd.Series(np.asarray(p_values, dtype=np.float64))
    outside = (p < 0) | (p > 1)
    if outside.any():
        raise DataError(
            f"p_values must be in [0, 1], got {p[outside.idxmax()]} at position {outside.idxmax()}."
        )
    family = pd.Series(np.zeros(len(p)) if groups is None else np.asarray(groups))
    made = p.sort_values(kind="stable").dropna()
    by_family = made.groupby(family)
    factor = by_family.transform("size") - by_family.cumcount()
    adjusted = (made * factor).groupby(family).cummax().clip(upper=1)
    return adjusted.reindex(p.index).to_numpy()
