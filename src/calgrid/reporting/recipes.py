"""Recipes, a method with a calibrator or without: the best on the test split, and its ties."""

from dataclasses import dataclass

import pandas as pd

from calgrid.reporting.study import Group, StudyData, rank_rows
from calgrid.statistics import compare
from calgrid.statistics.verdicts import EQUIVALENT, NO_VERDICT, TIE
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
        return self.others[self.others["verdict"].isin((TIE, EQUIVALENT))]

    @property
    def tested(self) -> bool:
        """Whether all others have a verdict, which needs two seeds."""
        return NO_VERDICT not in set(self.others["verdict"])


def best_of_all(data: StudyData, group: Group) -> Recipes | None:
    """Recipes of a group; None if it has none."""
    rows = _rows(data, group)
    return None if rows.empty else _ranked(data, rows, *_numbers(data, group))


def best_of_methods(data: StudyData, group: Group) -> dict[str, Recipes]:
    """Recipes of each method of a group."""
    numbers = _numbers(data, group)
    rows = _rows(data, group)
    return {name: _ranked(data, part, *numbers) for name, part in rows.groupby("method")}


def _rows(data: StudyData, group: Group) -> pd.DataFrame:
    rows = data.test(group)
    return rows if rows.empty else rows[rows["fit_on"] == "val"]


def _numbers(data: StudyData, group: Group) -> list[pd.DataFrame]:
    """NLL of all recipes and its resamples; a recipe takes the place of the method."""
    tables = [
        data.rows(name, group, split="test", metric="nll", fit_on="val")
        for name in (METRICS, RESAMPLES)
    ]
    return [table.assign(method=_recipe(table), calibrator="") for table in tables]


def _recipe(rows: pd.DataFrame) -> pd.Series:
    return rows["method"] + "\n" + rows["calibrator"]


def _ranked(
    data: StudyData, rows: pd.DataFrame, metrics: pd.DataFrame, resamples: pd.DataFrame
) -> Recipes:
    ranked = rank_rows(rows)
    ranked = ranked[ranked["keeps_accuracy"]]
    best, *others = _recipe(ranked)
    asked = [{"question": "", "method": other, "against": best} for other in others]
    found = compare(
        metrics[metrics["method"].isin([best, *others])],
        asked,
        data.level,
        resamples[resamples["method"].isin([best, *others])],
    )
    verdicts = found.set_index("method")["verdict"].reindex(others).fillna(NO_VERDICT)
    return Recipes(ranked.iloc[0], ranked.iloc[1:].assign(verdict=verdicts.to_numpy()))
