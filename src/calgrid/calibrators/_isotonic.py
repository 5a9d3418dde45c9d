"""Isotonic regression of hits on scores in [0, 1], as two arrays of points with straight lines between them."""

import importlib

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._probabilities import never_certain

Array = NDArray[np.float64]


def import_isotonic() -> None:
    """Import scikit-learn's solver: a second that should not count as time of a fit."""
    importlib.import_module("sklearn.isotonic")


def fit_isotonic(scores: Array, hits: Array, n_samples: int) -> tuple[Array, Array]:
    """Fit a non-decreasing map from scores to the share of hits by pooling adjacent violators.

    Equal scores count as one. Read the map with ``np.interp``: linear between the points, constant outside.

    Parameters
    ----------
    scores, hits : ``(M,)``, hits 1.0 or 0.0.
    n_samples : N; the values are kept in ``[1 / (N + 1), N / (N + 1)]``.

    Returns
    -------
    Ascending scores ``(P,)`` and values ``(P,)``.
    """
    # a second of import, which neither a prediction nor any other calibrator needs
    from sklearn.isotonic import IsotonicRegression  # noqa: PLC0415

    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(scores, hits)
    values = model.y_thresholds_.astype(np.float64)
    return model.X_thresholds_.astype(np.float64), never_certain(values, n_samples)
