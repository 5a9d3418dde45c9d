"""Comparison of methods over settings by ranks (Demšar, JMLR 2006)."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from calgrid.errors import ConfigError, DataError
from calgrid.statistics.verdicts import holm

Ties = Literal["average", "min"]
#: steps of the fit of ratings
RATING_STEPS = 200


@dataclass(frozen=True)
class FriedmanResult:
    """Friedman's test that all methods have the same mean rank, and Iman and Davenport's more
    powerful form.
    """

    chi2: float
    p_value: float
    f: float
    f_p_value: float
    n_settings: int
    n_methods: int


@dataclass(frozen=True)
class CriticalDifference:
    """Mean ranks of methods over settings with Nemenyi's critical difference.

    Attributes
    ----------
    mean_ranks : by method, ascending: the best first.
    cd : critical difference at ``alpha``; mean ranks differ significantly if they are at least this
        far apart.
    groups : the bars of the diagram: each has the methods (best first) of a maximal run of mean
        ranks within less than ``cd``; a method that differs from all others is in none.
    friedman : test that all methods have the same mean rank; interpret the bars only if it rejects.
    alpha : level of ``cd``.
    """

    mean_ranks: pd.Series
    cd: float
    groups: tuple[tuple[str, ...], ...]
    friedman: FriedmanResult
    alpha: float


def setting_ranks(
    scores: pd.DataFrame,
    *,
    lower_is_better: bool = True,
    ties: Ties = "average",
) -> pd.DataFrame:
    """Rank of each method within each setting, 1 = best.

    Parameters
    ----------
    scores : settings in rows, methods in columns, seeds already averaged (they are not independent
        settings). A setting with a missing number is dropped; nothing is imputed.
    ties : tied methods get the ``average`` of their ranks, or the smallest (``min``, as in FeDLaS'
        tables).

    Raises
    ------
    ConfigError : unknown ``ties``.
    DataError : no setting is left.
    """
    if ties not in ("average", "min"):
        raise ConfigError(f"ties must be 'average' or 'min', got {ties!r}.")
    complete = scores.dropna()
    if complete.empty:
        raise DataError("scores must have a setting without missing numbers.")
    return complete.rank(axis="columns", method=ties, ascending=lower_is_better)


def mean_ranks(
    scores: pd.DataFrame,
    *,
    lower_is_better: bool = True,
    ties: Ties = "average",
) -> pd.Series:
    """Mean over settings of the rank of each method; arguments and errors as in
    :func:`setting_ranks`.
    """
    ranks = setting_ranks(scores, lower_is_better=lower_is_better, ties=ties)
    return ranks.mean().rename("mean_rank")


def friedman(ranks: ArrayLike) -> FriedmanResult:
    """Friedman's ``chi^2 = 12 N / (k (k + 1)) [sum R^2 - k (k + 1)^2 / 4]`` over mean ranks R; F
    after Iman and Davenport.

    Parameters
    ----------
    ranks : (N, k), the rank of each of k methods in each of N settings, from :func:`setting_ranks`.
        Without correction for ties, which makes the test conservative.

    Raises
    ------
    DataError : unless N >= 2, k >= 2 and each row is a ranking (sums to k (k + 1) / 2).

    Source: Demšar, JMLR 2006, section 3.2.2.
    """
    table = np.asarray(ranks, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        raise DataError(
            "ranks must have shape (N, k) with at least 2 settings and 2 methods, got "
            f"{table.shape}."
        )
    n, k = table.shape
    if not np.allclose(table.sum(axis=1), k * (k + 1) / 2):
        raise DataError(
            f"ranks must hold in each row the ranks 1 to {k} (ties averaged), as setting_ranks "
            "gives them."
        )
    chi2 = float(12 * n / (k * (k + 1)) * ((table.mean(axis=0) ** 2).sum() - k * (k + 1) ** 2 / 4))
    room = n * (k - 1) - chi2  # 0 if all settings have the same order
    f = math.inf if room < 1e-9 else (n - 1) * chi2 / room
    f_p_value = float(special.fdtrc(k - 1, (k - 1) * (n - 1), f)) if math.isfinite(f) else 0.0
    return FriedmanResult(chi2, float(special.chdtrc(k - 1, chi2)), f, f_p_value, n, k)


def nemenyi_cd(k: int, n: int, alpha: float = 0.05) -> float:
    """Critical difference of mean ranks, ``q_alpha sqrt(k (k + 1) / (6 n))``, for k methods over
    n settings.

    It depends on the set of methods: prefer :func:`wilcoxon_holm` against one reference.

    Raises
    ------
    ConfigError : unless k >= 2, n >= 1 and 0 < alpha < 1.

    Source: Nemenyi 1963; Demšar, JMLR 2006, equation in section 3.2.2.
    """
    if k < 2 or n < 1 or not 0 < alpha < 1:
        raise ConfigError(
            f"nemenyi_cd needs k >= 2, n >= 1 and 0 < alpha < 1, got k={k}, n={n}, alpha={alpha}."
        )
    # its import takes half as long as that of calgrid's statistics
    from scipy import stats  # noqa: PLC0415

    q = stats.studentized_range.ppf(1 - alpha, k, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(k * (k + 1) / (6 * n)))


def critical_difference(
    scores: pd.DataFrame,
    *,
    lower_is_better: bool = True,
    alpha: float = 0.05,
) -> CriticalDifference:
    """Friedman's test, mean ranks and Nemenyi's critical difference of methods over settings; ties
    averaged.

    Parameters
    ----------
    scores : settings in rows, methods in columns, seeds already averaged (they are not independent
        settings).
    lower_is_better : as in :func:`calgrid.statistics.setting_ranks`.
    alpha : level of the critical difference, in (0, 1).

    Raises
    ------
    DataError : fewer than two settings or methods remain.
    ConfigError : ``alpha`` is out of range.

    Source: Demšar, JMLR 2006, sections 3.2.2 and 3.2.4.
    """
    ranks = setting_ranks(scores, lower_is_better=lower_is_better)
    test = friedman(ranks)
    cd = nemenyi_cd(test.n_methods, test.n_settings, alpha)
    means = ranks.mean().sort_values(kind="stable").rename("mean_rank")
    ends = means.to_numpy().searchsorted(means.to_numpy() + cd, side="left")
    bars, reached = [], 0
    for start, end in enumerate(ends.tolist()):
        if end > reached and end - start > 1:
            bars.append(tuple(means.index[start:end]))
        reached = max(reached, end)
    return CriticalDifference(means, cd, tuple(bars), test, alpha)


def wilcoxon_holm(scores: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Wilcoxon signed-rank test of each method against the reference over settings, Holm-adjusted.

    Two-sided, zero differences kept in the ranking (Pratt), exact without zeros and ties. A pair is
    compared over settings with both methods. With n settings no p-value is below ``2 / 2^n``: 6 are
    needed for 0.05.

    Parameters
    ----------
    scores : settings in rows, methods in columns, seeds already averaged. reference : one of the
        columns.

    Returns
    -------
    One row per method other than the reference: n_settings, median_difference (method - reference),
    statistic, p_value, p_holm; NaN if no setting has both.

    Raises
    ------
    DataError : ``reference`` is no column.

    Source: Wilcoxon 1945; Pratt 1959; Benavoli et al., JMLR 2016, for pairwise tests instead of
    Nemenyi's.
    """
    if reference not in scores.columns:
        known = ", ".join(map(str, scores.columns))
        raise DataError(
            f"scores must have a column for the reference '{reference}', it has: {known}."
        )
    from scipy import stats  # noqa: PLC0415  (as in nemenyi_cd)

    differences = scores.drop(columns=reference).sub(scores[reference], axis="index")
    rows = {}
    for name, column in differences.items():
        known = column.dropna()
        # equal everywhere: no evidence, and the formula would be 0 / 0
        statistic, p_value = (0.0, 1.0) if len(known) else (math.nan, math.nan)
        if known.any():
            statistic, p_value = stats.wilcoxon(known, zero_method="pratt")
        rows[name] = len(known), known.median(), float(statistic), float(p_value)
    columns = ["n_settings", "median_difference", "statistic", "p_value"]
    tests = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return tests.astype({"n_settings": int}).assign(p_holm=holm(tests["p_value"]))


def improvements(scores: pd.DataFrame, reference: str, datasets: pd.Series) -> pd.DataFrame:
    """Post-hoc improvement (PHI): mean over settings of 100 times the reference's loss minus each
    other column's.

    Parameters
    ----------
    scores : losses, settings in rows, methods or calibrators in columns; settings with a missing
        number are dropped. reference : one of the columns. datasets : data set of each setting.

    Returns
    -------
    One row per other column: phi, and phi_reach, the half-width of its 95 % interval, 1.96 standard
    deviations over settings by the root of the number of data sets, because settings of one data
    set are not independent; NaN for a single setting.

    Source: CalArena, arXiv 2605.30188.
    """
    complete = scores.dropna()
    gains = -100 * complete.drop(columns=reference).sub(complete[reference], axis="index")
    n = datasets.reindex(complete.index).nunique()
    return pd.DataFrame({"phi": gains.mean(), "phi_reach": 1.96 * gains.std() / math.sqrt(n)})


def win_rates(
    scores: pd.DataFrame,
    *,
    lower_is_better: bool = True,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Win rates and Bradley-Terry ratings of methods over settings, with bootstrap intervals.

    Parameters
    ----------
    scores : settings in rows, methods in columns, seeds already averaged; settings with a missing
        number are dropped.
    level, n_resamples, seed : of the percentile intervals, over settings.

    Returns
    -------
    One row per method, the best first: win_rate, mean share of the other methods that it beats in a
    setting (ties count half), win_low, win_high; rating (Elo scale, mean 1000), rating_low,
    rating_high; n_settings.

    Raises
    ------
    DataError : fewer than two settings or methods are complete.

    Source: CalArena (arXiv 2605.30188), whose ties count nothing; Bradley and Terry, Biometrika
    1952; Hunter, Annals of Statistics 2004 (the iteration).
    """
    complete = scores.dropna()
    if min(complete.shape) < 2:
        raise DataError("scores must have two complete settings and two methods or more.")
    values = complete.to_numpy(float) * (1 if lower_is_better else -1)
    # (settings, methods, methods): whether the first beats the second
    first, second = values[:, :, None], values[:, None, :]
    wins = (first < second) + 0.5 * (first == second) - 0.5 * np.eye(values.shape[1])
    n = len(values)
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=n_resamples)
    # sums of integers and halves are exact: who always wins has the rate 1
    drawn = np.einsum("rs,sab->rab", weights, wins) / n
    mean, ends = wins.mean(axis=0), ((1 - level) / 2, (1 + level) / 2)
    others = len(mean) - 1
    win_low, win_high = np.quantile(drawn.sum(axis=-1) / others, ends, axis=0)
    rating_low, rating_high = np.quantile(bradley_terry(drawn), ends, axis=0)
    table = pd.DataFrame(
        {
            "name": complete.columns,
            "win_rate": mean.sum(axis=-1) / others,
            "win_low": win_low,
            "win_high": win_high,
            "rating": bradley_terry(mean),
            "rating_low": rating_low,
            "rating_high": rating_high,
            "n_settings": n,
        }
    )
    return table.sort_values("win_rate", ascending=False, kind="stable", ignore_index=True)


def bradley_terry(wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ratings (..., k) on the Elo scale, with mean 1000, from win shares (..., k, k) of each pair.

    Each side of a pair has a twentieth of a win more: one that always wins has no finite rating.
    """
    k = wins.shape[-1]
    own = wins + 0.05 * (1 - np.eye(k))
    total, strength = own.sum(axis=-1), np.ones(wins.shape[:-1])
    games = own + own.swapaxes(-1, -2)
    for _ in range(RATING_STEPS):
        both = strength[..., :, None] + strength[..., None, :]
        strength = total / (games / both).sum(axis=-1)
        strength /= np.exp(np.log(strength).mean(axis=-1, keepdims=True))
    return np.asarray(1000 + 400 * np.log10(strength))
