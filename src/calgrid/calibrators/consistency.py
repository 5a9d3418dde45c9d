"""Consistency calibration: how often each class is the largest if noise is added to the logits."""

import numpy as np
from scipy.special import log_ndtr

from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    by_blocks,
    namespace,
    softmax,
    take,
    totals,
)
from calgrid.calibrators.base import SoftmaxCalibrator, end_of_grid
from calgrid.components.registry import register
from calgrid.metrics import ece

#: strengths of the first search, and number of those of the second, between the best one's
#: neighbours
STRENGTHS, FINE = np.geomspace(0.25, 16.0, 13), 15
#: distances of the largest noisy logit from the largest logit, in standard deviations; sums over
#: them, divided by their total, give probabilities with errors below 1e-6 for 100 classes and 3e-5
#: for 1,000
POINTS = np.linspace(-7.5, 7.5, 41).tolist()
N_BINS = 15


def noisy_scores(logits: Array, strength: float) -> Array:
    """Return ``ln P(k is largest in z + strength e)`` ``(N, K)``, e standard normal, up to a
    constant of each row, row maximum 0.

    With density f and distribution F of the normal, and m over the places of the maximum, this is
    ``ln sum_m f(m - z_k) / F(m - z_k) prod_j F(m - z_j)`` in units of ``strength``.

    Parameters
    ----------
    logits : ``(N, K)`` with row maximum 0; -inf allowed.
    """
    xp = namespace(logits)
    log_cdf = log_ndtr if xp is np else xp.special.log_ndtr

    def convert(rows: Array) -> Array:
        gaps = -rows / strength
        total = xp.full_like(gaps, -np.inf)
        for point in POINTS:
            below = log_cdf(point + gaps)
            of_all = totals(below)
            total = xp.logaddexp(total, of_all - below - 0.5 * xp.square(point + gaps))
        # equal for equal logits, but rounding may lift a smaller one
        total -= take(total, rows.argmax(axis=1))[:, None]
        return xp.clip(total, None, 0.0)

    return by_blocks(convert, logits)


@register(
    source="Tao, Guo, Dong, Xu, Consistency Calibration: Improving Uncertainty Calibration via "
    "Consistency among Perturbed Neighbors, 2024, arXiv 2410.12295; code Linwei94/calibrator, "
    "Component/model/consistency_calibrator.py",
    keeps_argmax=True,
    parameters="1",
    slow_from=100,
)
class ConsistencyCalibration(SoftmaxCalibrator):
    """CC of logits: the probability that a class has the largest logit after independent normal
    noise, with the strength (standard deviation) of lowest validation ECE (15 bins).

    The code counts the largest classes in 1,000 draws for each sample, which differ from call to
    call; here are the probabilities themselves, which the counts approach. The code also tries
    uniform noise and keeps the better one; that is left out, because it makes the NLL infinite.
    Strengths are 0.25 to 16 times a fifth of the logits' spread in steps of a factor of 1.4, and
    then 15 between the neighbours of the best one, of equal ones the smallest; the code tries 0 to
    10 and three finer grids.

    ``fit_history``: ``strength`` (of the given logits), ``ece`` (the lowest).
    """

    scale_free = True

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        def trial(strength: float) -> tuple[float, float]:
            return ece(softmax(noisy_scores(logits, strength)), labels, N_BINS), strength

        trials = [trial(strength) for strength in STRENGTHS.tolist()]
        _, best = min(trials)
        step = STRENGTHS[1] / STRENGTHS[0]
        around = np.geomspace(best / step, best * step, FINE + 2)[1:-1]
        trials += [trial(strength) for strength in around.tolist()]
        lowest, self.strength = min(trials)
        return {
            "strength": self.strength * self._scale,
            "ece": lowest,
            "warnings": end_of_grid("strength", best, STRENGTHS.tolist()),
        }

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return noisy_scores(logits, self.strength)
