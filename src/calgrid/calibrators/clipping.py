"""Features or logits are clipped at the threshold of lowest validation error."""

from collections.abc import Callable
from typing import ClassVar, Literal, cast

import numpy as np

from calgrid.calibrators._probabilities import Array, Head, History, Labels, centred, namespace
from calgrid.calibrators.base import SoftmaxCalibrator, end_of_grid
from calgrid.components.registry import register
from calgrid.errors import DataError
from calgrid.metrics import Output, Predictions, accuracy, ece, nll
from calgrid.metrics.moments import PRODUCT_BLOCK, row_blocks

#: thresholds of the second search, between the neighbours of the best one of the first
FINE = 32
#: thresholds of the first search: quantiles of |feature|, or of the logits from this one on
COARSE, LOWEST_QUANTILE = 64, 0.8
N_BINS = 15
#: tolerance between the logits of the head and the given ones, as a share of their largest gap:
#: float32 sums need 1e-5, and a network in bfloat16 rounds by 4e-3
TOLERANCE = 1e-2


class Clipping(SoftmaxCalibrator):
    """Base of calibrators that clip at the threshold of lowest validation error.

    Parameters
    ----------
    criterion : criterion that the threshold minimises.
    """

    #: minimum accuracy, as a share of that without clipping
    kept_accuracy: ClassVar[float]

    criterion: Literal["ece", "nll"] = "ece"

    def _search(self, clipped: Callable[[float], Array], labels: Labels, coarse: Array) -> History:
        """Set ``threshold`` to the best of ascending ``coarse`` ones and of finer ones, infinite if
        none keeps the accuracy, and return the ``fit_history``.

        Parameters
        ----------
        clipped : maps a threshold to scores ``(N, K)`` with row maximum 0.
        """

        def trial(threshold: float) -> tuple[float, float, float]:
            """Objective, minus the threshold (of equal objectives the largest is taken), and
            accuracy.
            """
            output = Output.of_scores(clipped(threshold))
            predictions = Predictions(output.probs, labels, output.logs)
            criteria = {"ece": ece, "nll": nll}
            objective = criteria[self.criterion](predictions, labels, N_BINS)
            return objective, -float(threshold), accuracy(predictions, labels)

        unclipped = trial(np.inf)[2]
        least = self.kept_accuracy * unclipped
        trials = [trial(c) for c in coarse]
        accurate = [each for each in trials if each[2] > least]
        if not accurate:
            self.threshold = np.inf
            return {
                "n_tried": len(coarse),
                "accuracy_unclipped": unclipped,
                "accuracy": unclipped,
                "clipped": False,
            }
        edges = np.concatenate([[0.0], coarse, coarse[-1:]])
        below = int(np.searchsorted(coarse, -min(accurate)[1]))
        fine = np.linspace(edges[below], edges[below + 2], FINE + 2)[1:-1]
        trials += [trial(c) for c in fine]
        objective, minus_threshold, kept = min(each for each in trials if each[2] > least)
        self.threshold = -minus_threshold
        grid = (fine[0], np.inf)
        return {
            "n_tried": len(trials),
            "accuracy_unclipped": unclipped,
            "accuracy": kept,
            "clipped": True,
            "threshold": self.threshold,
            "objective": objective,
            "warnings": end_of_grid("threshold", self.threshold, grid) if below == 0 else [],
        }


def clipped_logits(features: Array, head: Head, threshold: float) -> Array:
    """Return the head's logits ``(N, K)`` of features clipped to ``[-threshold, threshold]``, row
    maximum 0.
    """
    weight, bias = head
    logits = np.empty((len(features), len(bias)))
    for block in row_blocks(len(features), features.shape[1], PRODUCT_BLOCK):
        np.matmul(np.clip(features[block], -threshold, threshold), weight.T, out=logits[block])
    logits += bias
    logits -= logits.max(axis=1, keepdims=True)
    return logits


def check_reproduces(logits: Array, features: Array, head: Head) -> None:
    """Raise DataError unless features and head give the logits ``(N, K)`` (row maximum 0) up to a
    constant per row.
    """
    gap = float(np.abs(clipped_logits(features, head, np.inf) - logits).max())
    # an impossible class (-inf) does not match any head
    if not (np.isfinite(gap) and gap <= 1e-6 - TOLERANCE * logits.min()):
        raise DataError(
            "features and head do not give these logits (features @ weight.T + bias is off by up "
            f"to {gap:.3g}); export features, head and logits from the same checkpoint, without "
            "masking classes."
        )


@register(
    id="fc",
    source="Tao et al., Feature Clipping for Uncertainty Calibration, AAAI 2025; code "
    "Linwei94/AAAI2025-FC, calibration/feature_clipping.py",
    needs=("logits", "features", "head"),
    keeps_argmax=False,
    parameters="1",
)
class FeatureClipping(Clipping):
    """FC: ``softmax(W clip(f, -c, c) + b)`` with the c of lowest validation error.

    Among thresholds that keep more than 99 % of the accuracy, the c of lowest ECE (15 bins; or NLL)
    is taken; if there is none, features are not clipped. The code tries 0.01, 0.02, ..., 20, which
    may miss the range of the features; here 64 quantiles of |f| and then 32 values between the
    neighbours of the best one are tried; of equal ones the largest is taken. Clipping is two-sided,
    which matters if features can be negative.

    Predictions use the features and the head of the fit, and only the shape of the logits. The fit
    checks that features and head reproduce the logits.

    ``fit_history``: ``n_tried``, ``accuracy`` and ``accuracy_unclipped`` on the validation samples,
    ``clipped``, and if so ``threshold`` and ``objective`` (the lowest ECE or NLL).

    Parameters
    ----------
    criterion : criterion that the threshold minimises.
    """

    kept_accuracy = 0.99

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        features, layer = cast(Array, features), cast(Head, head)
        self.weight, self.bias = layer
        check_reproduces(logits, features, layer)
        coarse = np.unique(np.quantile(np.abs(features), np.arange(1, COARSE + 1) / COARSE))
        coarse = coarse[coarse > 0.0]
        return self._search(lambda c: clipped_logits(features, layer, c), labels, coarse)

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return clipped_logits(cast(Array, features), (self.weight, self.bias), self.threshold)


def clipped(logits: Array, threshold: float) -> Array:
    """Return logits ``(N, K)`` minus the mean of each row, clipped to ``[-threshold, threshold]``,
    row maximum 0; -inf stays.
    """
    xp = namespace(logits)
    values = xp.where(logits > -np.inf, xp.clip(centred(logits), -threshold, threshold), -np.inf)
    values -= xp.amax(values, axis=1, keepdims=True)
    return values


@register(
    id="logit_clipping",
    source="code Linwei94/calibrator, Component/model/logit_clipping.py; for features: Tao et al., "
    "Feature Clipping for Uncertainty Calibration, AAAI 2025",
    keeps_argmax=False,
    parameters="1",
)
class LogitClipping(Clipping):
    """``softmax(clip(z, -c, c))`` with the c of lowest validation error, z the logits minus the
    mean of each row.

    Among thresholds that keep more than 95 % of the accuracy, the c of lowest ECE (15 bins; or NLL)
    is taken, the largest among equals (the code: the smallest). Classes above c become equal, and
    the first of them is predicted. The code clips the logits as the network gives them, which
    depends on constants that change no probability; here the mean of a row is 0, as it nearly is in
    most networks. The code tries 2,000 thresholds in steps of 0.01 from the 80 % quantile of the
    logits on; here 64 quantiles from that one on, no clipping, and 32 values between the neighbours
    of the best one are tried.

    ``fit_history``: as of ``fc``.

    Parameters
    ----------
    criterion : criterion that the threshold minimises.
    """

    kept_accuracy = 0.95

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        values = centred(logits)[logits > -np.inf]
        coarse = np.quantile(values, np.linspace(LOWEST_QUANTILE, 1.0, COARSE))
        coarse = np.unique(np.append(coarse, np.abs(values).max()))
        return self._search(lambda c: clipped(logits, c), labels, coarse[coarse > 0.0])

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return clipped(logits, self.threshold)
