"""Seconds and memory of calibrators, from the numbers of rows, classes and features.

Seconds are rounded-up measurements on one core of an AMD EPYC of 2025 (``python
benchmarks/full_size.py --only costs``). Calibrators without an entry count as the slowest ones that
use only logits.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from calgrid.conventions import GROUP_ROWS, PREDICTED_NUMBERS, SAME_SHIFT_SHARE

#: seconds from rows n, classes k and features d
Seconds = Callable[[float, float, float], float]

FIT_SECONDS: Mapping[str, Seconds] = {
    "none": lambda n, k, d: 1e-8 * n * k,
    "bbq": lambda n, k, d: 1e-7 * n * k,
    "cts": lambda n, k, d: 2e-6 * n * k,
    "dirichlet": lambda n, k, d: 0.1 + 3e-7 * n * k * k,
    "ets": lambda n, k, d: 1e-7 * n * k,
    "fc": lambda n, k, d: 4e-9 * n * k * d + 3e-7 * n * (k + d),
    "gc_ets": lambda n, k, d: 0.5 + n * (6e-4 + 1e-6 * k + 8e-7 * d),
    "gc_ts": lambda n, k, d: 0.5 + n * (3e-4 + 3e-7 * k + 6e-7 * d),
    "hb": lambda n, k, d: 2e-8 * n * k,
    "hb_ova": lambda n, k, d: 1e-7 * n * k,
    "hts": lambda n, k, d: 2e-7 * n * k,
    "irm": lambda n, k, d: 4e-7 * n * k,
    "iso": lambda n, k, d: 2e-8 * n * k,
    "iso_ova": lambda n, k, d: 2e-7 * n * k,
    "ms_odir": lambda n, k, d: 0.1 + 3e-7 * n * k * k,
    "procal_bms": lambda n, k, d: 2 * _neighbours(n, n, d),
    "procal_dr": lambda n, k, d: _neighbours(n, n, d),
    "pts": lambda n, k, d: n * (3e-4 + 3e-7 * k),
    "pts_paper": lambda n, k, d: 45 + 1e-6 * n * k,
    "smart": lambda n, k, d: n * (2e-4 + 2e-7 * k),
    "sms": lambda n, k, d: 5e-8 * n * k * k,
    "spline": lambda n, k, d: 2e-8 * n * k,
    "svs": lambda n, k, d: 3e-7 * n * k,
    "ts": lambda n, k, d: 7e-8 * n * k,
    "ts_ece_grid": lambda n, k, d: 2e-7 * n * k,
    "ts_mix": lambda n, k, d: 2e-7 * n * k,
    "tva_ts": lambda n, k, d: 2e-7 * n * k,
    "vs": lambda n, k, d: 1.2e-6 * n * k,
}
#: the slowest calibrator with time proportional to rows and classes, for calibrators without an
#: entry
SLOWEST = "cts"
#: seconds of a softmax per logit
SOFTMAX_SECONDS = 5e-8
#: seconds to predict n rows after a fit on m rows, if more than a softmax
PREDICT_SECONDS: Mapping[str, Callable[[float, float, float, float], float]] = {
    "fc": lambda n, m, k, d: n * (SOFTMAX_SECONDS * k + 5e-11 * k * d + 5e-9 * d),
    "gc_ets": lambda n, m, k, d: n * (4e-7 * k + 3e-8 * d),
    "gc_ts": lambda n, m, k, d: n * (2e-7 * k + 3e-8 * d),
    "procal_bms": lambda n, m, k, d: _neighbours(n, m, d) + SOFTMAX_SECONDS * n * k,
    "procal_dr": lambda n, m, k, d: _neighbours(n, m, d) + SOFTMAX_SECONDS * n * k,
}
#: seconds of all metrics per row and per probability, and of a bootstrap resample of them
SCORE_SECONDS, SCORE_SECONDS_A_CLASS = 1e-5, 2e-8
RESAMPLE_SECONDS, RESAMPLE_SECONDS_A_CLASS = 1.3e-7, 1e-10
#: seconds to read, check and copy one number of a logits file
READ_SECONDS = 2e-8
#: float64 arrays of the size of the logits and of the features in a fit, other bytes per row, and
#: arrays of the size of the probabilities in a bootstrap
FITTED, FITTED_FEATURES, ROW_BYTES, SCORED = 7, 4, 2**14, 3
#: bytes of the rows that are predicted at once, and of blocks of distances, kernels or clipped
#: features
BLOCK_BYTES, FEATURE_BLOCK_BYTES = 4 * 8 * PREDICTED_NUMBERS, 2**28


def _neighbours(queries: float, points: float, d: float) -> float:
    """Seconds to find the nearest points of each query and to estimate densities there."""
    return queries * points * (5e-11 * d + 1.2e-8)


class Rows(NamedTuple):
    """Numbers of rows, classes and features of a logits file."""

    number: int
    classes: int
    features: int

    @property
    def stored(self) -> int:
        """Bytes as float32."""
        return 4 * self.number * (self.classes + self.features)

    def of(self, number: float) -> "Rows":
        """Copy with another number of rows."""
        return self._replace(number=int(number))


class Fitted(NamedTuple):
    """A calibrator: registered identifier, whether it needs features, and number of seeds."""

    id: str
    features: bool
    seeds: int


class Family(NamedTuple):
    """A shift family: rows of a setting, number of settings, and whether it is an
    out-of-distribution set.
    """

    rows: Rows
    settings: int
    ood: bool

    @property
    def group(self) -> Rows:
        """Rows that are predicted, written and read at once."""
        most = max(1, GROUP_ROWS // max(self.rows.number, 1))
        return self.rows.of(self.rows.number * min(self.settings, most))


@dataclass(frozen=True)
class Calibration:
    """The calibration of one checkpoint of a run."""

    calibrators: Sequence[Fitted]
    val: Rows
    test: Rows
    families: Sequence[Family]
    #: bootstrap resamples of the clean test split, for intervals and paired differences
    resamples: int
    #: whether calibrators fitted on val are scored on shifts
    on_val: bool
    #: fits on each setting under ``same_shift``
    draws: int

    @functools.cached_property
    def seconds(self) -> float:
        """Core seconds."""
        return sum(map(self._of_clean, self.calibrators)) + sum(map(self._of_family, self.families))

    def _of_clean(self, each: Fitted) -> float:
        tested = score_seconds(each.id, self.test, self.val, self.resamples)
        return each.seeds * (fit_seconds(each.id, self.val) + tested)

    def _of_family(self, family: Family) -> float:
        rows, seconds = family.rows, 0.0
        fit, rest = (
            rows.of(SAME_SHIFT_SHARE * rows.number),
            rows.of((1 - SAME_SHIFT_SHARE) * rows.number),
        )
        for each in self.calibrators:
            if each.features and not rows.features:
                continue
            if family.ood:
                seconds += each.seeds * score_seconds(each.id, self.test, self.val, self.resamples)
            if family.ood or self.on_val:
                seconds += each.seeds * score_seconds(each.id, rows, self.val)
            if not family.ood:
                seconds += self.draws * (
                    fit_seconds(each.id, fit) + score_seconds(each.id, rest, fit)
                )
        numbers = rows.number * (rows.classes + rows.features)
        return family.settings * (
            seconds + numbers * READ_SECONDS * (1 + len(self.calibrators) * self.draws)
        )

    @functools.cached_property
    def part_bytes(self) -> int:
        """Maximum bytes in a process: stored rows and working memory of the largest part."""
        clean = self.test.stored + self._working_bytes(self.val, self.test)
        return self.val.stored + max([clean, *map(self._family_bytes, self.families)])

    def _family_bytes(self, family: Family) -> int:
        setting, group = family.rows, family.group
        if family.ood:
            return (
                self.test.stored
                + group.stored
                + self._working_bytes(self.val, max(self.test, group))
            )
        # same_shift copies the rows of a setting: one part to fit, the other to score
        copies = setting.stored if self.draws else 0
        return (
            group.stored
            + copies
            + self._working_bytes(setting.of(SAME_SHIFT_SHARE * setting.number), group)
        )

    def _working_bytes(self, fitted: Rows, scored: Rows) -> int:
        """Maximum bytes of a fit or a prediction."""
        read = max(fitted.features, scored.features) * any(
            each.features for each in self.calibrators
        )
        fit = fitted.number * (8 * (FITTED * fitted.classes + FITTED_FEATURES * read) + ROW_BYTES)
        score = scored.number * 8 * SCORED * scored.classes
        return max(fit, score) + BLOCK_BYTES + (FEATURE_BLOCK_BYTES if read else 0)


def fit_seconds(id: str, rows: Rows) -> float:
    """Seconds of one fit."""
    return FIT_SECONDS.get(id, FIT_SECONDS[SLOWEST])(*rows)


def predict_seconds(id: str, rows: Rows, fitted: Rows) -> float:
    """Seconds to predict ``rows`` after a fit on ``fitted``."""
    n, k, d = rows
    return (
        PREDICT_SECONDS[id](n, fitted.number, k, d)
        if id in PREDICT_SECONDS
        else SOFTMAX_SECONDS * n * k
    )


def score_seconds(id: str, rows: Rows, fitted: Rows, resamples: int = 0) -> float:
    """Seconds to predict ``rows`` after a fit on ``fitted``, and to score them."""
    resampled = resamples * (RESAMPLE_SECONDS + RESAMPLE_SECONDS_A_CLASS * rows.classes)
    scored = rows.number * (SCORE_SECONDS + SCORE_SECONDS_A_CLASS * rows.classes + resampled)
    return predict_seconds(id, rows, fitted) + scored
