"""Recipes, a method with a calibrator or without: the best on the test split, and its ties."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from calgrid.components.metrics import find_metric
from calgrid.report.study import PAIR, Group, StudyData
from calgrid.report.table import present
from calgrid.statistics.pairs import RECIPES_BY, best_of
from calgrid.statistics.verdicts import NO_VERDICT, NOT_WORSE

#: columns of the test of a pair
TEST = ("difference", "ci_low", "ci_high", "detectable", "verdict")


@dataclass(frozen=True)
class Recipes:
    """Recipes with calibrators fitted on val that keep accuracy, by mean NLL.

    Attributes
    ----------
    best : row of :meth:`StudyData.test` with the lowest mean.
    others : rows of the others in this order, with the columns ``TEST`` of each against the best.
    """

    best: pd.Series
    others: pd.DataFrame

    @property
    def tied(self) -> pd.DataFrame:
        """Others, not significantly worse."""
        return self.others[self.others["verdict"].isin(NOT_WORSE)]

    @property
    def tested(self) -> bool:
        """Whether all others have a verdict; other methods need two seeds for one."""
        return NO_VERDICT not in set(self.others["verdict"])


def best_of_all(data: StudyData, group: Group) -> Recipes | None:
    """Recipes of a group; None if it has none."""
    rows = data.test(group)
    return _ranked(data, group, rows) if len(rows) else None


def best_of_methods(data: StudyData, group: Group) -> dict[str, Recipes]:
    """Recipes of each method of a group."""
    rows = data.test(group).groupby("method") if len(data.test(group)) else ()
    found = {name: _ranked(data, group, part) for name, part in rows}
    return {name: recipes for name, recipes in found.items() if recipes is not None}


def _ranked(data: StudyData, group: Group, rows: pd.DataFrame) -> Recipes | None:
    rows = rows[rows["fit_on"] == "val"]
    best, others = best_of(rows, RECIPES_BY)
    if best is None:
        return None
    ranked = rows.loc[others].sort_values([f"{RECIPES_BY}_mean", "brier_mean", "method"])
    return Recipes(rows.loc[best], ranked.join(against(data, group, rows.loc[best], ranked)))


def ties(
    data: StudyData, group: Group, rows: pd.DataFrame, metrics: Sequence[str], within: str
) -> dict[str, set[Any]]:
    """Metric -> index labels of recipes not significantly worse than the best by the deciding
    metric; the best is included if any was tested.

    ``rows`` are of :meth:`StudyData.test`; compared are recipes with the same value in the column
    ``within`` that keep its best accuracy. With one seed only calibrators of a method are compared,
    on its network.
    """
    found: dict[str, set[Any]] = {}
    for metric in present(rows, metrics):
        deciding = find_metric(metric).decided_by
        if not deciding or not present(rows, [deciding]):
            continue
        found[metric] = set()
        for _, part in rows.groupby(within, sort=False):
            best, others = best_of(part, deciding)
            if best is None:
                continue
            verdicts = against(data, group, part.loc[best], part.loc[others], deciding)["verdict"]
            found[metric] |= {best} if (verdicts != NO_VERDICT).any() else set()
            found[metric] |= {*verdicts.index[verdicts.isin(NOT_WORSE)]}
    return found


def against(
    data: StudyData, group: Group, one: pd.Series, rows: pd.DataFrame, metric: str = RECIPES_BY
) -> pd.DataFrame:
    """Columns ``TEST`` of each of the recipes of ``rows`` against one, from the table of tests."""
    method, calibrator = one[["method", "calibrator"]]
    pairs = rows.assign(metric=metric, against=method, against_calibrator=calibrator)[PAIR]
    found = data.pairs(group).reindex(pd.MultiIndex.from_frame(pairs), columns=TEST)
    return found.set_axis(rows.index).fillna({"verdict": NO_VERDICT})
