"""Records of FeDLaS for each training sample of an epoch, and their statistics in the history."""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from torch import Tensor, nn

from calgrid.losses.base import PerSample

Floats = NDArray[np.float64]


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson correlation in [-1, 1] of x and y (N,); NaN if one of them is constant or empty."""
    first, second = _standardised(x), _standardised(y)
    if first is None or second is None:
        return math.nan
    return min(max(float(first @ second), -1.0), 1.0)


def _standardised(values: ArrayLike) -> Floats | None:
    """Values (N,) of mean 0 and norm 1; None if they are constant or empty."""
    values = np.asarray(values, dtype=np.float64)
    # compared by value, because a rounded mean gives a constant a variance above zero
    if len(values) == 0 or values.min() == values.max():
        return None
    centred = values - values.mean()
    return centred / np.linalg.norm(centred)


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation in [-1, 1] of x and y (N,): Pearson's of their ranks."""
    return pearson(rankdata(x), rankdata(y))


def auroc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Probability that a positive sample scores above a negative one; ties count half.

    Returns the Mann-Whitney U statistic divided by the number of pairs, in [0, 1]; NaN if a kind is
    missing.

    Parameters
    ----------
    scores : (N,).
    positive : (N,) bool.
    """
    chosen = np.asarray(positive, dtype=bool)
    m, n = int(chosen.sum()), int((~chosen).sum())
    if m == 0 or n == 0:
        return math.nan
    return float((rankdata(scores)[chosen].sum() - m * (m + 1) / 2) / (m * n))


#: columns of the table of an epoch; float32 is exact for all of them
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
#: the mode of a sample is the sign of its gate plus SEEN, 0 if unseen
SEEN = 2


class SampleRecord(nn.Module):
    """Last training pass of each sample in the current epoch, and the mode of its gate in the
    previous one.

    Both are saved state on the device, so that an interrupted epoch reports the same numbers. The
    rows of the current epoch are deleted at its end, so checkpoints have one byte per sample.
    """

    def __init__(self) -> None:
        super().__init__()
        self.running = PerSample(len(COLUMNS), dtype=torch.float32)
        self.previous = PerSample(dtype=torch.int8)

    def write(self, index: Tensor, **columns: Tensor) -> None:
        """Record the samples ``index`` (N,): a value (N,) for each of ``COLUMNS``; later ones
        replace earlier ones.
        """
        index = self.running.cover(index)
        rows = self.running.rows
        # one write into one buffer, because seven writes would take longer than the loss
        rows[index] = torch.stack([columns[name].to(rows) for name in COLUMNS], dim=1).detach()

    def table(self) -> dict[str, Tensor]:
        """Return the current epoch: ``index`` (int32) and ``COLUMNS``, each (S,) on the CPU, sorted
        by index.
        """
        rows = self.running.rows.cpu()
        # recorded samples have a confidence of at least 1/C
        index = rows[:, list(COLUMNS).index("confidence")].nonzero().squeeze(1)
        chosen = rows[index].unbind(dim=1)
        table = {"index": index.int()}
        for (name, dtype), values in zip(COLUMNS.items(), chosen, strict=True):
            table[name] = values.to(dtype)
        return table

    def pop(self) -> dict[str, float]:
        """Return the statistics of the current epoch, and begin the next."""
        table = {name: values.numpy() for name, values in self.table().items()}
        modes = np.zeros(len(self.running.rows), dtype=np.int8)
        modes[table["index"]] = table["gate"] + SEEN
        self.previous.grow(len(modes))
        before = self.previous.rows.cpu().numpy()[: len(modes)]
        both = (before > 0) & (modes > 0)
        nci, correct, confidence = table["nci"], table["correct"], table["confidence"]
        statistics = {
            **smoothing_statistics(table),
            # of the samples seen in both epochs
            "flip_rate": float((before != modes)[both].mean()) if both.any() else math.nan,
            "nci_correct_pearson": pearson(nci, correct),
            "nci_correct_spearman": spearman(nci, correct),
            "nci_correct_auroc": auroc(nci, correct),
            "nci_confidence_pearson": pearson(nci, confidence),
            "nci_confidence_spearman": spearman(nci, confidence),
        }
        self.running.clear()
        self.previous.rows = torch.from_numpy(modes).to(self.previous.rows.device)
        return statistics


def smoothing_statistics(table: dict[str, Floats]) -> dict[str, float]:
    """Share of samples in positive mode, mean and quantiles of the smoothing a_i; NaN without
    samples.
    """
    names = [f"smoothing_q{100 * quantile:02.0f}" for quantile in QUANTILES]
    amounts = table["smoothing"].astype(np.float64)
    if len(amounts) == 0:
        return dict.fromkeys(("positive_share", "mean_smoothing", *names), math.nan)
    return {
        "positive_share": float((table["gate"] > 0).mean()),
        "mean_smoothing": float(amounts.mean()),
        **dict(zip(names, np.quantile(amounts, QUANTILES).tolist(), strict=True)),
    }
