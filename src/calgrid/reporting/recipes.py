"""Recipes, a method with a calibrator or without: the best on the test split, and its ties."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from calgrid.components.metrics import find_metric
from calgrid.reporting.study import Group, StudyData, keeps_accuracy, rank_rows
from calgrid.reporting.table import best_rows
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
    family of tests; empty if there is one seed, with which nothing is tested.
    """
    if rows["n_seeds"].max() < 2:
        return {}
    deciding = {name: find_metric(name).decided_by for name in metrics}
    families: dict[tuple[str, Any], list[str]] = defaultdict(list)
    kept: dict[str, pd.DataFrame] = {}
    for part, members in rows.groupby(within, sort=False):
        kept[str(part)] = members[keeps_accuracy(members)]
        for metric, best in best_rows(members, metrics).items():
            if best and deciding[metric]:
                families[str(part), min(best)].append(metric)
    numbers = _numbers(data, group, [*{*deciding, *filter(None, deciding.values())}])
    tables: list[list[pd.DataFrame]] = [[], []]
    asked, labels = [], {}
    for number, ((part, best), shown) in enumerate(families.items()):
        # a name of its own for each recipe of a family, so that it is tested there alone
        names = {label: f"{number}\n{name}" for label, name in _recipe(kept[part]).items()}
        labels.update({name: label for label, name in names.items()})
        wanted = {*shown, *(deciding[metric] for metric in shown)}
        for chosen, table in zip(tables, numbers, strict=True):
            method = f"{number}\n" + table["method"]
            own = method.isin(names.values()) & table["metric"].isin(wanted)
            chosen.append(table[own].assign(method=method[own], calibrator=str(number)))
        asked += [
            {"question": "\n".join(shown), "method": name, "against": names[best]}
            for label, name in names.items()
            if label != best
        ]
    found: dict[str, set[Any]] = {metric: set() for metric in metrics}
    if asked:
        judged = compare(pd.concat(tables[0]), asked, data.level, pd.concat(tables[1]))
        tied = judged[judged["verdict"].isin((TIE, EQUIVALENT))]
        for row in tied.itertuples():
            if row.metric in row.question.split("\n"):
                found[row.metric].add(labels[row.method])
    return found


def _rows(data: StudyData, group: Group) -> pd.DataFrame:
    rows = data.test(group)
    return rows if rows.empty else rows[rows["fit_on"] == "val"]


def _numbers(data: StudyData, group: Group, metrics: Sequence[str]) -> list[pd.DataFrame]:
    """Metrics of all recipes and their resamples; a recipe takes the place of the method."""
    tables = [
        data.rows(name, group, split="test", metric=metrics, fit_on="val")
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
