"""What FeDLaS did to each training sample in an epoch, and the statistics of it that go into the history."""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from calgrid.losses._history import PerSample

Floats = NDArray[np.float64]


# association of two variables in plain NumPy, since training needs no SciPy; O(N log N) time, O(N) memory


def ranks(values: ArrayLike) -> Floats:
    """Ranks (N,) from 1 on of values (N,); ties get the mean of the ranks that they share."""
    _, group, count = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[group]


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson correlation in [-1, 1] of x and y (N,); NaN where one of them is constant or empty."""
    first, second = (np.asarray(values, dtype=np.float64) for values in (x, y))
    # asked of the values, since a mean that is rounded leaves a constant a variance above zero
    if any(len(values) == 0 or values.min() == values.max() for values in (first, second)):
        return math.nan
    first, second = first - first.mean(), second - second.mean()
    # each divided by its own norm first: a product of tiny norms would underflow
    value = float((first / np.linalg.norm(first)) @ (second / np.linalg.norm(second)))
    return min(max(value, -1.0), 1.0)


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation in [-1, 1] of x and y (N,): Pearson's of their ranks."""
    return pearson(ranks(x), ranks(y))


def auroc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Probability that a positive sample scores above a negative one, ties counting half.

    Returns the Mann-Whitney U statistic over the number of pairs, in [0, 1]; NaN without both kinds.

    Parameters
    ----------
    scores : (N,).
    positive : (N,) bool.
    """
    chosen = np.asarray(positive, dtype=bool)
    m, n = int(chosen.sum()), int((~chosen).sum())
    if m == 0 or n == 0:
        return math.nan
    return float((ranks(scores)[chosen].sum() - m * (m + 1) / 2) / (m * n))


#: columns of the table of an epoch; kept as float32 while the epoch runs, which is exact for all of them
COLUMNS = {
    "label": torch.int32,
    "correct": torch.bool,
    "confidence": torch.float32,
    "norm": torch.float32,
    "nci": torch.float32,
    "gate": torch.int8,
    "smoothing": torch.float32,
}
QUANTILES = (0.05, 0.25, 0.50, 0.75, 0.95)
#: a mode is 0 for a sample that was not seen, else the sign of its gate plus this
SEEN = 2


class SampleRecord(nn.Module):
    """The last training pass of each sample in the running epoch, and the mode of its gate in the one before.

    Both are state, kept on the device: an epoch that is interrupted and resumed reports the same numbers. The rows
    of the running epoch are dropped at its end, so that checkpoints hold one byte a sample.
    """

    def __init__(self) -> None:
        super().__init__()
        self.running = PerSample(len(COLUMNS), dtype=torch.float32)
        self.previous = PerSample(dtype=torch.int8)

    def write(self, index: Tensor, **columns: Tensor) -> None:
        """Record the samples ``index`` (N,): a value (N,) for each of ``COLUMNS``; the last of a sample counts."""
        index = self.running.cover(index)
        rows = self.running.rows
        # one write into one buffer: seven of them would take longer than the loss itself
        rows[index] = torch.stack([columns[name].to(rows) for name in COLUMNS], dim=1).detach()

    def table(self) -> dict[str, Tensor]:
        """Return the running epoch: ``index`` int32 and ``COLUMNS``, each (S,) on the CPU, in the order of index."""
        rows = self.running.rows.cpu()
        # a sample that was seen has a confidence of at least 1/C
        index = rows[:, list(COLUMNS).index("confidence")].nonzero().squeeze(1)
        chosen = rows[index].unbind(dim=1)
        columns = {name: values.to(dtype) for (name, dtype), values in zip(COLUMNS.items(), chosen, strict=True)}
        return {"index": index.int(), **columns}

    def pop(self) -> dict[str, float]:
        """Return the statistics of the running epoch and begin the next."""
        table = {name: values.numpy() for name, values in self.table().items()}
        modes = np.zeros(len(self.running.rows), dtype=np.int8)
        modes[table["index"]] = table["gate"] + SEEN
        self.previous.grow(len(modes))
        before = self.previous.rows.cpu().numpy()
        statistics = {**smoothing_statistics(table), "flip_rate": flip_rate(before, modes), **indicator_value(table)}
        self.running.clear()
        self.previous.rows = torch.from_numpy(modes).to(self.previous.rows.device)
        return statistics


def smoothing_statistics(table: dict[str, Floats]) -> dict[str, float]:
    """Share of samples in positive mode, mean and quantiles of the smoothing a_i; NaN without samples."""
    amounts = table["smoothing"].astype(np.float64)
    some = len(amounts) > 0
    quantiles = np.quantile(amounts, QUANTILES) if some else np.full(len(QUANTILES), math.nan)
    names = [f"smoothing_q{100 * quantile:02.0f}" for quantile in QUANTILES]
    return {
        "positive_share": float((table["gate"] > 0).mean()) if some else math.nan,
        "mean_smoothing": float(amounts.mean()) if some else math.nan,
        **dict(zip(names, quantiles.tolist(), strict=True)),
    }


def flip_rate(before: NDArray[np.int8], now: NDArray[np.int8]) -> float:
    """Share of samples whose mode (S,) changed, over those seen in both epochs; NaN where there are none.

    ``before`` may have rows beyond the last of ``now``: samples that the epoch has not seen.
    """
    before = before[: len(now)]
    both = (before > 0) & (now > 0)
    return float((before != now)[both].mean()) if both.any() else math.nan


def indicator_value(table: dict[str, Floats]) -> dict[str, float]:
    """How the indicator goes with being right and with the largest probability, over the samples of an epoch."""
    nci, correct, confidence = table["nci"], table["correct"], table["confidence"]
    return {
        "nci_correct_pearson": pearson(nci, correct),
        "nci_correct_spearman": spearman(nci, correct),
        "nci_correct_auroc": auroc(nci, correct),
        "nci_confidence_pearson": pearson(nci, confidence),
        "nci_confidence_spearman": spearman(nci, confidence),
    }
