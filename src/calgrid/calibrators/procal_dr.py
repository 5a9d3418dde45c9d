"""ProCal by density ratio: Bayes' rule with the densities of confidence and proximity of correct
and wrong samples.
"""

from typing import cast

import numpy as np

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
from calgrid.calibrators._proximity import proximity, unit_rows
from calgrid.calibrators._temperature import fit_rescaled
from calgrid.calibrators.base import Calibrator
from calgrid.components.registry import register
from calgrid.metrics.moments import PRODUCT_BLOCK, row_blocks

#: minimum number of correct, and of wrong, samples for a density estimate
FEWEST = 5
#: standard deviation below which an axis is constant
SMALLEST_SPREAD = 1e-4


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
