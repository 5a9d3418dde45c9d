"""Critical-difference diagrams: mean ranks, and groups without significant differences."""

from dataclasses import dataclass

import pandas as pd

from calgrid.statistics.ranks import FriedmanResult, Missing, friedman, nemenyi_cd, setting_ranks


@dataclass(frozen=True)
class CriticalDifference:
    """Mean ranks of methods over settings with Nemenyi's critical difference.

    Attributes
    ----------
    mean_ranks : by method, ascending: the best first.
    cd : critical difference at ``alpha``; mean ranks differ significantly if they are at least this far apart.
    groups : the bars of the diagram: each has the methods (best first) of a maximal run of mean ranks within less than
        ``cd``; a method that differs from all others is in none.
    friedman : test that all methods have the same mean rank; interpret the bars only if it rejects.
    alpha : level of ``cd``.
    """

    mean_ranks: pd.Series
    cd: float
    groups: tuple[tuple[str, ...], ...]
    friedman: FriedmanResult
    alpha: float


def critical_difference(
    scores: pd.DataFrame, *, lower_is_better: bool = True, missing: Missing = "drop_settings", alpha: float = 0.05
) -> CriticalDifference:
    """Friedman's test, mean ranks and Nemenyi's critical difference of methods over settings; ties averaged.

    Parameters
    ----------
    scores : settings in rows, methods in columns, seeds already averaged (they are not independent settings).
    lower_is_better, missing : as in :func:`calgrid.statistics.setting_ranks`.
    alpha : level of the critical difference, in (0, 1).

    Raises
    ------
    DataError : fewer than two settings or methods remain. ConfigError : as in
        :func:`calgrid.statistics.setting_ranks`, or for ``alpha``.

    Source: Demšar, JMLR 2006, sections 3.2.2 and 3.2.4.
    """
    ranks = setting_ranks(scores, lower_is_better=lower_is_better, missing=missing)
    test = friedman(ranks)
    cd = nemenyi_cd(test.n_methods, test.n_settings, alpha)
    means = ranks.mean().sort_values(kind="stable").rename("mean_rank")
    return CriticalDifference(means, cd, _bars(means, cd), test, alpha)


def _bars(means: pd.Series, cd: float) -> tuple[tuple[str, ...], ...]:
    """Maximal runs of at least two sorted means within less than ``cd``."""
    ends = means.to_numpy().searchsorted(means.to_numpy() + cd, side="left")
    bars, reached = [], 0
    for start, end in enumerate(ends.tolist()):
        if end > reached and end - start > 1:
            bars.append(tuple(means.index[start:end]))
        reached = max(reached, end)
    return tuple(bars)
