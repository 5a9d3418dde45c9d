"""Summary of a study: rank, NLL and its tests of each method, calibration error, best recipe."""

import math

import pandas as pd

from calgrid.report import captions, text
from calgrid.report.index import SUMMARY
from calgrid.report.recipes import against, best_of_methods
from calgrid.report.study import UNCALIBRATED, Group, StudyData
from calgrid.report.table import (
    Cell,
    Columns,
    Section,
    Table,
    grouped,
    interval_cell,
    metric_cell,
    ranked,
    section,
    whole,
)

UNTESTED = "ties not tested"


def overview(data: StudyData) -> Table | None:
    """Uncalibrated methods by rank."""
    if len(data.methods) < 2:
        return None

    def rows(group: Group) -> pd.DataFrame:
        found = data.test(group, [UNCALIBRATED])
        if found.empty:
            return found
        baseline = found[found["method"] == data.baseline]
        for name, one in {"best": found[:1], "baseline": baseline}.items():
            for _, row in one.iterrows():
                found = found.join(against(data, group, row, found).add_prefix(f"{name}_"))
        recipes = {}
        for method, recipe in best_of_methods(data, group).items():
            # calibrators that are not significantly worse than the best, or why this is unknown
            tied = ", ".join(recipe.tied["calibrator"]) if recipe.tested else UNTESTED
            recipes[method] = (recipe.best["nll_mean"], recipe.best["calibrator"], tied)
        columns = ["recipe_nll", "recipe_calibrator", "recipe_ties"]
        beside = pd.DataFrame.from_dict(recipes, orient="index", columns=columns)
        return found.join(beside, on="method")

    against_baseline: Columns = {}
    if data.baseline in data.methods:
        against_baseline[f"NLL against {data.baseline}"] = lambda row: _tested(row, "baseline")
    columns: Columns = {
        "Method": lambda row: Cell(row["method"], f"accuracy {text.means(row, 'accuracy')[0]}"),
        "Rank": lambda row: whole(row["place"]),
        text.heading("nll"): lambda row: metric_cell(row, "nll"),
        "NLL against the best": lambda row: _tested(row, "best"),
        **against_baseline,
        text.in_unit("ece_debiased"): lambda row: interval_cell(
            row, "ece_debiased", "ece_debiased"
        ),
        f"Best recipe: {text.in_unit('nll')}": _recipe,
    }

    def format(group: Group, found: pd.DataFrame) -> list[Section]:
        return [ranked(section(data.label(group), found, columns), found)]

    def caption(frame: pd.DataFrame) -> str:
        known = frame["ece_debiased_ci_low"].notna().any()
        brackets = f"Brackets: {100 * data.level:g} % intervals. " if known else ""
        return (
            f"Uncalibrated networks on the {captions.test_split(data)}; {captions.seeds(frame)}. "
            f"{captions.RANKING} {brackets}The best recipe is the calibrator, or none, with the "
            "lowest mean NLL on these test images among those that keep the method's best "
            "accuracy, which favours it; not worse: the calibrator that is not significantly "
            "worse, or the number of them, named in the CSV file. "
            f"{captions.TESTED}"
        )

    return grouped("overview", "Methods at a glance", SUMMARY, data.groups, rows, format, caption)


def _recipe(row: pd.Series) -> Cell:
    if not isinstance(row["recipe_calibrator"], str):
        return Cell(text.NOTHING)
    ties = [name for name in row["recipe_ties"].split(", ") if name]
    named = row["recipe_calibrator"]
    if ties == [UNTESTED]:
        named += f", {UNTESTED}"
    elif ties:
        named += f", not worse: {ties[0] if len(ties) == 1 else len(ties)}"
    nll = row["recipe_nll"]
    return Cell(text.format_metric("nll", nll), named, sort=float(nll))


def _tested(row: pd.Series, name: str) -> Cell:
    """Difference and verdict, without the p-value of the table of tests."""
    difference = float(row.get(f"{name}_difference", math.nan))
    if math.isnan(difference):
        return Cell(text.NOTHING)
    said = text.verdict(row[f"{name}_verdict"], "nll", row[f"{name}_detectable"])
    return Cell(text.format_metric("nll", difference, signed=True), said, sort=difference)
