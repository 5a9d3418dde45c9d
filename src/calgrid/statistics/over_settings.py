"""Mean ranks and win rates with bootstrap intervals over settings."""

import itertools
import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calgrid.errors import DataError
from calgrid.metrics.intervals import quantiles, resample_weights
from calgrid.statistics._paired import check_level
from calgrid.statistics.ranks import Missing, Ties, setting_ranks


def rank_intervals(
    scores: pd.DataFrame,
    *,
    lower_is_better: bool = True,
    missing: Missing = "drop_settings",
    ties: Ties = "average",
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Mean rank of each method over settings with a percentile interval: whole settings are resampled.

    Parameters
    ----------
    scores, lower_is_better, missing, ties : as in :func:`calgrid.statistics.setting_ranks`.
    n_resamples, level, seed : number of resamples, nominal coverage in (0, 1), seed of the resamples.

    Returns
    -------
    One row a method, in the order of ``scores``: mean_rank, ci_low, ci_high (NaN for a single setting), n_settings.
    The interval is about other settings drawn like these. With few of them it is too narrow, and it is about mean
    ranks, not about which method is best.

    Raises
    ------
    ConfigError, DataError : as in :func:`calgrid.statistics.setting_ranks`; ConfigError for ``n_resamples`` or
        ``level``.
    """
    check_level(level)
    ranks = setting_ranks(scores, lower_is_better=lower_is_better, missing=missing, ties=ties)
    low, high = _mean_interval(ranks.to_numpy(), n_resamples, level, seed)
    return pd.DataFrame({"mean_rank": ranks.mean(), "ci_low": low, "ci_high": high, "n_settings": len(ranks)})


def win_rates(
    scores: pd.DataFrame,
    *,
    lower_is_better: bool = True,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Share of settings in which a method beats another, for every pair, with a percentile interval over settings.

    Parameters
    ----------
    scores : settings in rows, methods in columns, seeds already averaged. A tie counts half.
    Others as in :func:`rank_intervals`.

    Returns
    -------
    One row for each ordered pair of methods: method, against, win_rate, ci_low, ci_high, n_settings (those that have
    both; without any the rest is NaN, with one the interval is).

    Raises
    ------
    DataError : with fewer than two methods. ConfigError : for ``n_resamples`` or ``level``.
    """
    check_level(level)
    if scores.shape[1] < 2:
        raise DataError(f"scores must have at least two methods in its columns, got {scores.shape[1]}.")
    rows = []
    for method, against in itertools.permutations(scores.columns, 2):
        pair = scores[[method, against]].dropna()
        better = np.sign(pair[against] - pair[method]) * (1 if lower_is_better else -1)
        wins = ((1 + better) / 2).to_numpy(dtype=float)[:, None]
        low, high = _mean_interval(wins, n_resamples, level, seed)
        rate = float(wins.mean()) if len(wins) else math.nan
        rows.append((method, against, rate, low[0], high[0], len(wins)))
    return pd.DataFrame(rows, columns=["method", "against", "win_rate", "ci_low", "ci_high", "n_settings"])


def _mean_interval(
    values: NDArray[np.float64], n_resamples: int, level: float, seed: int
) -> tuple[NDArray[np.float64], ...]:
    """Percentile interval of the mean over rows (N, Q), each limit (Q,); NaN with fewer than two rows."""
    n = len(values)
    if n < 2:
        nothing = np.full(values.shape[1], math.nan)
        return nothing, nothing
    means = np.concatenate([weights @ values / n for weights in resample_weights(n, n_resamples, seed)])
    return tuple(quantiles(means, [(1 - level) / 2, (1 + level) / 2]))
