"""Failure prediction: separation of correct predictions from errors by the confidence.

All take probabilities (N, K) and labels (N,). Ties in confidence count with the mean over their
orders, so that the order of samples does not matter; with the output of
:func:`calgrid.metrics.from_logits`, confidences that only round to 1 are no ties.
"""

import numpy as np
from numpy.typing import ArrayLike

from calgrid.metrics._inputs import Floats, Places, Probabilities, check_probabilities
from calgrid.metrics._weighted import cumulative


class Confidences:
    """Numbers of correct predictions and errors at each distinct confidence, in one or many
    resamples.

    Parameters
    ----------
    ends : position after the last sample of each distinct confidence, (G,), in ascending order.
    correct : 1 or 0 for each sample in that order, (N,).
    before, correct_before : cumulative weights of all and of correct predictions in that order, (R,
        N + 1).

    Attributes
    ----------
    wrong : number of errors, (R,).
    """

    def __init__(
        self, ends: Places, correct: Floats, before: Floats, correct_before: Floats
    ) -> None:
        self._n = len(correct)
        self._starts = np.append(0, ends[:-1])
        self._before, self._correct_before = before, correct_before
        self.wrong = before[:, -1] - correct_before[:, -1]
        # only confidences with an error contribute to the areas
        with_error = np.flatnonzero(np.add.reduceat(correct, self._starts) < ends - self._starts)
        begin, end = self._starts[with_error], ends[with_error]
        self._below, self._upto = np.take(before, begin, axis=1), np.take(before, end, axis=1)
        self._wrong_below = self._below - np.take(correct_before, begin, axis=1)
        self._wrong_upto = self._upto - np.take(correct_before, end, axis=1)
        #: number of errors at each of these confidences, (R, E)
        self._wrong_here = self._wrong_upto - self._wrong_below

    def aurc(self) -> Floats:
        """Area under the risk-coverage curve, (R,)."""
        return self._area(harmonic_tails(self._n)) / self._n

    def augrc(self) -> Floats:
        """Area under the generalised risk-coverage curve, (R,)."""
        return self._area(np.arange(self._n, 0.0, -1)) / self._n**2

    def oracle_aurc(self) -> Floats:
        """Area under the risk-coverage curve if all errors had the lowest confidences, (R,)."""
        area = np.append(0, np.cumsum(harmonic_tails(self._n)))
        return (area[-1] - area[self._n - self.wrong.astype(np.intp)]) / self._n

    def auroc(self) -> Floats:
        """P(a correct prediction is more confident than an error) + P(equal) / 2, (R,); NaN without
        either.
        """
        correct_below, correct_upto = self._below - self._wrong_below, self._upto - self._wrong_upto
        correct = (self._n - self.wrong)[:, None] - (correct_below + correct_upto) / 2
        wins = (self._wrong_here * correct).sum(axis=1)
        return _ratio(wins, self.wrong * (self._n - self.wrong))

    def fpr95(self) -> Floats:
        """Fraction of errors at or above the largest threshold that keeps 95 % of the correct,
        (R,); NaN if undefined.

        The count is computed in integer arithmetic because 0.95 * n may be rounded up.
        """
        correct = self._n - self.wrong
        dropped = correct - np.ceil(95 * correct / 100)
        below = np.empty_like(self.wrong)
        for row, most in enumerate(dropped):
            # first confidence up to which there are more correct predictions than may be dropped
            sample = np.searchsorted(self._correct_before[row], most, side="right") - 1
            start = self._starts[np.searchsorted(self._starts, sample, side="right") - 1]
            below[row] = self._before[row, start] - self._correct_before[row, start]
        return _ratio(self.wrong - below, np.where(correct > 0, self.wrong, 0))

    def aupr(self) -> Floats:
        """Mean over errors of the share of errors among all predictions at most as confident, (R,);
        NaN if undefined.
        """
        share = self._wrong_upto / np.maximum(self._upto, 1)
        total = (self._wrong_here * share).sum(axis=1)
        return _ratio(total, np.where(self.wrong < self._n, self.wrong, 0))

    def _area(self, by_rank: Floats) -> Floats:
        """Sum over errors of ``by_rank`` at their ranks from the most confident, (R,); ties get
        their mean.
        """
        area = np.append(0, np.cumsum(by_rank))
        below, upto = ((self._n - sums).astype(np.intp) for sums in (self._below, self._upto))
        mean = (area.take(below) - area.take(upto)) / np.maximum(self._upto - self._below, 1)
        return (mean * self._wrong_here).sum(axis=1)


def aurc(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Area under the risk-coverage curve, ``1 / N sum_n e_n / n`` with e_n the number of errors
    among the n most confident.

    Errors as in :func:`calgrid.metrics.ece`. Source: Geifman and El-Yaniv, NeurIPS 2017, as the
    mean over coverages.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : unused, for one signature over
        all metrics.
    """
    return float(_confidences(probs, labels).aurc()[0])


def e_aurc(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """:func:`aurc` minus the AURC of the same errors ranked last (the finite oracle, not its limit
    for large N).

    Parameters and errors as in :func:`aurc`. Source: Geifman, Uziel and El-Yaniv, ICLR 2019.
    """
    confidences = _confidences(probs, labels)
    return float((confidences.aurc() - confidences.oracle_aurc())[0])


def augrc(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Area under the generalised risk-coverage curve, ``1 / N sum_n e_n / N`` with e_n the number
    of errors among the n most confident.

    Parameters and errors as in :func:`aurc`. Source: Traub et al., NeurIPS 2024.
    """
    return float(_confidences(probs, labels).augrc()[0])


def auroc_failure(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """AUROC of the confidence as a score for "correct"; NaN if all predictions are correct, or all
    are wrong.

    Parameters and errors as in :func:`aurc`. Source: Hendrycks and Gimpel, ICLR 2017.
    """
    return float(_confidences(probs, labels).auroc()[0])


def aupr_failure(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Area under the precision-recall curve of errors by low confidence, as average precision; NaN
    if all predictions are correct, or all are wrong.

    It depends on the error rate, which is its value without separation. Parameters and errors as in
    :func:`aurc`. Source: Hendrycks and Gimpel, ICLR 2017; Corbière et al., NeurIPS 2019,
    "AUPR-Error".
    """
    return float(_confidences(probs, labels).aupr()[0])


def fpr95_failure(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Fraction of errors at or above the largest threshold that keeps at least 95 % of the correct
    predictions.

    NaN if all predictions are correct, or all are wrong. Parameters and errors as in :func:`aurc`.
    Source: Hendrycks and Gimpel, ICLR 2017; Corbière et al., NeurIPS 2019.
    """
    return float(_confidences(probs, labels).fpr95()[0])


def _confidences(probs: Probabilities, labels: ArrayLike) -> Confidences:
    predictions = check_probabilities(probs, labels)
    correct = predictions.correct[predictions.order]
    sums = cumulative(np.vstack([np.ones_like(correct), correct]))
    return Confidences(predictions.tie_ends, correct, sums[:1], sums[1:])


def harmonic_tails(n: int) -> Floats:
    """sum_{m = r}^{n} 1 / m for the ranks r = 1 ... n: contribution of an error at rank r to the
    sum of risks.
    """
    return np.cumsum(1 / np.arange(n, 0.0, -1))[::-1]


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)
