"""Summary of a study in four columns: method, calibration, NLL vs the baseline, best recipe."""

import math

import pandas as pd

from calgrid.report import captions, text
from calgrid.report.index import SUMMARY
from calgrid.report.recipes import best_of_methods
from calgrid.report.study import UNCALIBRATED, Group, StudyData
from calgrid.report.table import Cell, Section, Table, by_group

TESTED = ("diff_vs_baseline", "p_holm", "detectable", "verdict")
UNTESTED = "ties not tested"


def overview(data: StudyData) -> Table | None:
    """Uncalibrated methods by rank."""
    if len(data.methods) < 2:
        return None

    def rows(group: Group) -> pd.DataFrame:
        found = data.test(group, [UNCALIBRATED])
        tests = data.tidy(group, "test", [UNCALIBRATED])
        tests = tests[tests["metric"] == "nll"].set_index("method")
        recipes = {}
        for method, recipe in best_of_methods(data, group).items():
            # calibrators that are not significantly worse than the best, or why this is unknown
            tied = ", ".join(recipe.tied["calibrator"]) if recipe.tested else UNTESTED
            recipes[method] = (recipe.best["nll_mean"], recipe.best["calibrator"], tied)
        columns = ["recipe_nll", "recipe_calibrator", "recipe_ties"]
        beside = pd.DataFrame.from_dict(recipes, orient="index", columns=columns)
        found = found.join(tests[list(TESTED)].add_prefix("nll_"), on="method")
        return found.join(beside, on="method")

    header = [
        "Method",
        text.in_unit("ece_debiased"),
        f"NLL against {data.baseline}",
        f"Best recipe: {text.in_unit('nll')}",
    ]

    def section(group: Group, found: pd.DataFrame) -> list[Section]:
        cells = [_row(row, data) for _, row in found.iterrows()]
        return [Section(data.label(group), header, cells)]

    frame, sections = by_group(data.groups, rows, section)
    if frame.empty:
        return None
    brackets = ""
    if frame["ece_debiased_ci_low"].notna().any():
        brackets = f"Brackets: {100 * data.level:g} % intervals. "
    caption = (
        f"Uncalibrated networks on the {captions.test_split(data)}; {captions.seeds(frame)}. "
        f"{captions.RANKING} {brackets}The best recipe is the "
        "calibrator, or none, with the lowest mean NLL on these test images among those within 1 "
        "point of the method's best accuracy, which favours it; not worse: the calibrator that is "
        "not significantly worse, or the number of them, named in the CSV file. "
        f"{captions.TESTED}"
    )
    return Table("overview", "Methods at a glance", SUMMARY, caption, frame, sections)


def _row(row: pd.Series, data: StudyData) -> list[Cell]:
    (accuracy,) = text.means(row, "accuracy")
    named = Cell(row["method"], f"accuracy {accuracy}")
    ece = float(row["ece_debiased_mean"])
    ends = row["ece_debiased_ci_low"], row["ece_debiased_ci_high"]
    interval = text.interval("ece_debiased", *ends)
    calibration = Cell(text.format_metric("ece_debiased", ece), interval, sort=ece)
    return [named, calibration, _tested(row, data), _recipe(row)]


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


def _tested(row: pd.Series, data: StudyData) -> Cell:
    """Difference and verdict, without the p-value of the table of tests."""
    difference = row["nll_diff_vs_baseline"]
    if row["method"] == data.baseline or math.isnan(difference):
        return Cell(text.NOTHING)
    said = text.verdict(row["nll_verdict"], "nll", row["nll_detectable"])
    return Cell(text.format_metric("nll", difference, signed=True), said, sort=float(difference))
