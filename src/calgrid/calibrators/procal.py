"""ProCal: calibration by the confidence and the proximity to the validation samples in feature
space, as density ratio or by bins of proximity.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._binning import bin_of, equal_count_cuts
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    never_certain,
    sigmoid,
    softmax,
    top_label,
    top_label_map,
)
from calgrid.calibrators._temperature import fit_rescaled
from calgrid.calibrators.base import Calibrator
from calgrid.calibrators.hb import HistogramBinning, TopLabelHistogramBinning
from calgrid.calibrators.iso import (
    IsotonicRegressionOneVsAll,
    MultiClassIsotonicRegression,
    TopLabelIsotonic,
)
from calgrid.components.registry import register
from calgrid.metrics.moments import PRODUCT_BLOCK, row_blocks

#: minimum number of correct, and of wrong, samples for a density estimate
FEWEST = 5
#: standard deviation below which an axis is constant
SMALLEST_SPREAD = 1e-4
#: calibrators of the parts; histogram binning has ten bins, as in the authors' code
BASES: Mapping[str, Callable[[], Calibrator]] = {
    "irm": MultiClassIsotonicRegression,
    "iso": TopLabelIsotonic,
    "iso_ova": IsotonicRegressionOneVsAll,
    "hb": lambda: TopLabelHistogramBinning(n_bins=10),
    "hb_ova": lambda: HistogramBinning(n_bins=10),
}


def unit_rows(features: Array) -> Array:
    """Divide each row ``(N, d)`` by its L2 norm; rows of zeros are not changed."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(norms > 0.0, norms, 1.0)


def proximity(known: NDArray[np.float32], k: int, features: Array | None = None) -> Array:
    """Return the mean of ``exp(-|x - x_j|^2)`` over the k nearest x_j, ``(M,)``; all x and x_j have
    unit norm.

    The search is exact, by one matrix product per block of rows.

    Parameters
    ----------
    known : x_j, unit rows ``(N, d)``; float32 halves the size of saved fits.
    k : number of neighbours, all if there are fewer than k + 1 rows.
    features : x ``(M, d)``; by default each row of ``known``, compared with the others (1 if there
        are none).
    """
    points, k = known.astype(np.float64), min(k, len(known) - 1)
    # a copy, as BLAS rounds the product of a matrix with its own transpose differently
    queries = points.copy() if features is None else unit_rows(features)
    if k == 0:
        return np.ones(len(queries))
    squares = np.einsum("nd,nd->n", points, points)
    result = np.empty(len(queries))
    for block in row_blocks(len(queries), len(points), PRODUCT_BLOCK):
        rows = queries[block]
        distance = squares - 2.0 * (rows @ points.T)
        distance += np.einsum("nd,nd->n", rows, rows)[:, None]
        if features is None:
            np.fill_diagonal(distance[:, block], np.inf)
        nearest = np.partition(distance, k - 1, axis=1)[:, :k]
        result[block] = np.exp(-np.maximum(nearest, 0.0)).mean(axis=1)
    return result


def log_density(queries: Array, points: Array) -> Array:
    """Return the log of a Gaussian product-kernel density estimate ``(M,)`` at ``(M, 2)`` from
    points ``(n, 2)``.

    Bandwidths follow the normal reference rule, ``1.06 sd n^(-1/6)`` per axis.
    """
    widths = 1.06 * np.maximum(points.std(axis=0), SMALLEST_SPREAD) * len(points) ** (-1.0 / 6.0)
    queries, points = queries / widths, points / widths
    result = np.empty(len(queries))
    for block in row_blocks(len(queries), len(points), PRODUCT_BLOCK):
        exponent = np.square(queries[block, :1] - points[:, 0])
        exponent += np.square(queries[block, 1:] - points[:, 1])
        exponent *= -0.5
        largest = exponent.max(axis=1)
        exponent -= largest[:, None]
        result[block] = largest + np.log(np.exp(exponent, out=exponent).sum(axis=1))
    return result - np.log(2.0 * np.pi * len(points) * widths.prod())


@register(
    id="procal_dr",
    source="Xiong, Deng, Koh, Wu, Li, Xu, Hooi, Proximity-Informed Calibration for Deep Neural "
    "Networks, NeurIPS 2023; code MiaoXiong2320/ProximityBias-Calibration, "
    "utils/density_ratio_calibration.py",
    needs=("logits", "features"),
    keeps_argmax=False,
    parameters="N (d + 2)",
    limits={"n_neighbours": "[1, inf)"},
)
class ProximityDensityRatio(Calibrator):
    """ProCal-DR: the confidence p is replaced by the probability of a correct prediction, given p
    and the proximity D.

    D is the mean of ``exp(-distance^2)`` to the 10 nearest validation features, rows of unit norm
    (the paper's text has ``exp(-mean distance)``; this is its code, whose search returns squared
    distances). Gaussian product-kernel densities f_1 and f_0 of (p, D) over the n_1 correct and the
    n_0 wrong validation samples, with bandwidths ``1.06 sd n^(-1/6)`` per axis, give::

        q = f_1 / (f_1 + f_0 n_0 / n_1) = sigmoid(ln f_1 - ln f_0 + ln(n_1 / n_0))

    and the other classes share 1 - q in proportion to their softmax, so the predicted class may
    change. The code divides densities, which underflow to q = 0 far from the data; we use
    logarithms. The code divides test features by the norms of validation features, which we
    consider an error.

    Ours: q is kept in ``[1 / (N + 1), N / (N + 1)]``, so that the NLL is finite; a constant axis
    has sd 1e-4; with fewer than 5 correct or wrong samples the output is that of temperature
    scaling.

    ``fit_history``: ``n_right``, ``n_wrong``, ``mean_proximity``, and ``temperature`` if used.

    Parameters
    ----------
    n_neighbours : number of nearest validation samples that define the proximity.
    """

    n_neighbours: int = 10

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        predicted, confidence = top_label(logits)
        correct = predicted == labels
        self.points = unit_rows(cast(Array, features)).astype(np.float32)
        points = np.column_stack([confidence, proximity(self.points, self.n_neighbours)])
        self.right = points[correct]
        self.wrong = points[~correct]
        self.beta = np.nan
        history = {
            "n_right": len(self.right),
            "n_wrong": len(self.wrong),
            "mean_proximity": float(points[:, 1].mean()),
        }
        if min(len(self.right), len(self.wrong)) < FEWEST:
            self.beta = fit_rescaled(logits, labels)[0].beta
            history["temperature"] = 1.0 / self.beta
        return history

    def _transform(self, logits: Array, features: Array | None) -> Array:
        if np.isfinite(self.beta):
            return softmax(logits * self.beta)
        _, confidence = top_label(logits)
        points = np.column_stack([confidence, proximity(self.points, self.n_neighbours, features)])
        n_right, n_wrong = len(self.right), len(self.wrong)
        ratio = log_density(points, self.right) - log_density(points, self.wrong)
        ratio += np.log(n_right / n_wrong)
        return top_label_map(logits, never_certain(sigmoid(ratio), n_right + n_wrong))


@register(
    id="procal_bms",
    source="Xiong, Deng, Koh, Wu, Li, Xu, Hooi, Proximity-Informed Calibration for Deep Neural "
    "Networks, NeurIPS 2023; code MiaoXiong2320/ProximityBias-Calibration, "
    "utils/multi_proximity_isotonic.py",
    needs=("logits", "features"),
    keeps_argmax=False,
    parameters="n_bins times those of the base",
    limits={"n_bins": "[1, 1000000]", "n_neighbours": "[1, inf)"},
)
class ProximityBinMeanShift(Calibrator):
    """ProCal-BMS as in its code: samples are split by proximity, and each part has its own
    calibrator.

    The proximity is that of ``procal_dr``; the parts have equal numbers of validation samples. The
    bases of the code are one-vs-all histogram binning with 10 bins (``hb_ova``), one-vs-all
    isotonic regression (``iso_ova``) and multi-class isotonic regression (``irm``); the top-label
    forms ``hb`` and ``iso`` are possible too. The paper describes another map, a shift of the
    confidence in cells of proximity and confidence.

    ``fit_history``: ``n_bins`` (ties can reduce the number of bins), ``mean_proximity``.

    Parameters
    ----------
    base : identifier of the calibrator of each part.
    n_bins : number of parts.
    n_neighbours : number of nearest validation samples that define the proximity.
    """

    base: Literal["irm", "iso", "iso_ova", "hb", "hb_ova"] = "irm"
    n_bins: int = 5
    n_neighbours: int = 10

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        self.points = unit_rows(cast(Array, features)).astype(np.float32)
        proximities = proximity(self.points, self.n_neighbours)
        self.proximity_cuts = equal_count_cuts(np.sort(proximities), self.n_bins)
        part = bin_of(self.proximity_cuts, proximities)
        self._bases = [BASES[self.base]() for _ in range(len(self.proximity_cuts) + 1)]
        for number, base in enumerate(self._bases):
            base._fit_noted(logits[part == number], labels[part == number])
        return {"n_bins": len(self._bases), "mean_proximity": float(proximities.mean())}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        part = bin_of(self.proximity_cuts, proximity(self.points, self.n_neighbours, features))
        result = np.empty_like(logits)
        for number, base in enumerate(self._bases):
            result[part == number] = base._transform(logits[part == number], None)
        return result

    def _state(self) -> dict[str, NDArray[Any]]:
        state: dict[str, NDArray[Any]] = {}
        for number, base in enumerate(self._bases):
            for name, value in base._state().items():
                state[f"{number}.{name}"] = value
        return {**state, "points": self.points, "proximity_cuts": self.proximity_cuts}

    def _load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.points = state["points"]
        self.proximity_cuts = state["proximity_cuts"]
        self._bases = [BASES[self.base]() for _ in range(len(self.proximity_cuts) + 1)]
        for number, base in enumerate(self._bases):
            prefix = f"{number}."
            base._load_state(
                {name[len(prefix) :]: state[name] for name in state if name.startswith(prefix)}
            )
