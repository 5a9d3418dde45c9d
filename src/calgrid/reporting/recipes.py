"""Recipes, a method with a calibrator or without: the best on the test split, and its ties."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from calgrid.components.metrics import find_metric
from calgrid.reporting.study import Group, StudyData, keeps_accuracy, rank_rows
from calgrid.reporting.table import best_rows, present
from calgrid.statistics import compare
from calgrid.statistics.verdicts import NO_VERDICT, NOT_WORSE
from calgrid.storage.schema import METRICS, RESAMPLES


@dataclass(frozen=True)
class Recipes:
    """Recipes with calibrators fitted on val, by mean NLL, within one point of the best accuracy.

    Attributes
    ----------
    best : row of :meth:`StudyData.test` with the lowest mean.
    others : rows of the others in this order, with the ``verdict`` of each against the best; they
        are one family of tests.
    """

    best: pd.Series
    others: pd.DataFrame

    @property
    def tied(self) -> pd.DataFrame:
        """Others that are not significantly worse."""
        return self.others[self.others["verdict"].isin(NOT_WORSE)]

    @property
    def tested(self) -> bool:
        """Whether all others have a verdict; those of other methods need two seeds."""
        return NO_VERDICT not in set(self.others["verdict"])


def best_of_all(data: StudyData, group: Group) -> Recipes | None:
    """Recipes of a group; None if it has none."""
    rows = _rows(data, group)
    return None if rows.empty else _ranked(data, rows, *_numbers(data, group, ["nll"]))


def best_of_methods(data: StudyData, group: Group) -> dict[str, Recipes]:
    """Recipes of each method of a group."""
    numbers = _numbers(data, group, ["nll"])
    rows = _rows(data, group)
    return {name: _ranked(data, part, *numbers) for name, part in rows.groupby("method")}


def ties(
    data: StudyData, group: Group, rows: pd.DataFrame, metrics: Sequence[str], within: str
) -> dict[str, set[Any]]:
    """Metric -> index labels of the recipes that are not significantly worse than its best.

    ``rows`` are of :meth:`StudyData.test`; those with the same value in the column ``within`` are
    compared, and those within one point of their best accuracy. Each metric of each such part is a
    family of tests. With one seed only calibrators of a method are compared, on its network.
    """
    of_runs = within == "method"
    metrics = present(rows, metrics)
    deciding = {name: find_metric(name).decided_by for name in metrics}
    shown: dict[str, list[str]] = {}
    asked = []
    recipes = _recipe(rows)
    for part, compared in rows.groupby(within, sort=False):
        members = compared[keeps_accuracy(compared)]
        for metric, best in best_rows(members, metrics).items():
            if not best or not deciding[metric]:
                continue
            family = f"{part}: others against {recipes[min(best)]}"
            if family not in shown:
                asked += _questions(recipes[min(best)], recipes[members.index], family)
            shown.setdefault(family, []).append(metric)
    found: dict[str, set[Any]] = defaultdict(set)
    if not asked:
        return found
    numbers = _numbers(data, group, [*{*deciding, *filter(None, deciding.values())}])
    tests = compare(numbers[0], asked, data.level, numbers[1], of_runs)
    for test in tests[tests["verdict"].isin(NOT_WORSE)].itertuples():
        if test.metric in shown[test.question]:
            found[test.metric] |= set(recipes.index[recipes == test.method])
    return found


def _rows(data: StudyData, group: Group) -> pd.DataFrame:
    rows = data.test(group)
    return rows if rows.empty else rows[rows["fit_on"] == "val"]


def _numbers(data: StudyData, group: Group, metrics: Sequence[str]) -> list[pd.DataFrame]:
    """Metrics of all recipes and their resamples; a recipe takes the place of the method."""
    numbers = []
    for name in (METRICS, RESAMPLES):
        table = data.rows(name, group, split="test", metric=metrics, fit_on="val")
        numbers.append(table.assign(method=_recipe(table), calibrator=""))
    return numbers


def _recipe(rows: pd.DataFrame) -> pd.Series:
    return rows["method"] + "\n" + rows["calibrator"]


def _questions(best: str, recipes: Iterable[str], family: str = "") -> list[dict[str, str]]:
    """Questions about all other recipes against the best one: one family of tests."""
    return [
        {"question": family, "family": family, "method": recipe, "against": best}
        for recipe in recipes
        if recipe != best
    ]


def _ranked(
    data: StudyData, rows: pd.DataFrame, metrics: pd.DataFrame, resamples: pd.DataFrame
) -> Recipes:
    ranked = rank_rows(rows)
    ranked = ranked[ranked["keeps_accuracy"]]
    recipes = list(_recipe(ranked))
    best, others = recipes[0], recipes[1:]
    metrics = metrics[metrics["method"].isin(recipes)]
    resamples = resamples[resamples["method"].isin(recipes)]
    of_runs = ranked["method"].nunique() == 1
    tests = compare(metrics, _questions(best, others), data.level, resamples, of_runs)
    verdicts = tests.set_index("method")["verdict"].reindex(others).fillna(NO_VERDICT)
    return Recipes(ranked.iloc[0], ranked.iloc[1:].assign(verdict=verdicts.to_numpy()))
