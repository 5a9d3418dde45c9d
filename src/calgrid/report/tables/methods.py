"""Tables of the clean test split: methods at a glance, uncalibrated, with every calibrator, and
against the truth.
"""

import math
from collections.abc import Callable, Sequence

import pandas as pd

from calgrid.report import captions, text
from calgrid.report.index import SUMMARY
from calgrid.report.recipes import against, best_of_methods, ties
from calgrid.report.study import BESIDE_ECE, UNCALIBRATED, Group, StudyData
from calgrid.report.table import (
    Cell,
    Columns,
    Section,
    Table,
    calibrated_columns,
    grouped,
    interval_cell,
    metric_cell,
    metric_section,
    present,
    ranked,
    section,
    whole,
    words,
)

METRICS = (
    *(*BESIDE_ECE, "balanced_accuracy", "macro_auroc"),
    *("aece_eq", "cece", "mce", "o_ece", "u_ece", "smce"),
)
PARTS = (
    *("nll", "nll_refinement", "nll_calibration"),
    *("brier", "brier_refinement", "brier_calibration"),
    *("l1_ts", "l1_iso", "l2_ts", "l2_iso"),
)
UNTESTED = "ties not tested"
SOFT_METRICS = ("soft_kl", "soft_tv", "soft_ece")
SOFT_COLUMNS = (*SOFT_METRICS, "ece_debiased", "ece", "ece_null", "accuracy")
TRUTH = (
    "The truth about an image is the known probability of each class given the image, or the "
    "share of annotators who chose it. KL and total variation are mean distances of the predicted "
    "distribution from it; ECE to truth is the ECE with the true probability of the predicted "
    "class instead of its correctness. It is free of label noise, but still depends on the sample "
    "of images. The other columns use labels only."
)


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
    # "not worse: none" would read as: nothing is
    clear = {UNCALIBRATED: "uncalibrated"}
    ties = [clear.get(name, name) for name in row["recipe_ties"].split(", ") if name]
    named = clear.get(row["recipe_calibrator"], row["recipe_calibrator"])
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


def methods(data: StudyData) -> Table | None:
    """Training-time methods without calibrator."""
    metrics = (*METRICS, *data.own_metrics)
    lead = {
        "Method": lambda row: words(row["method"]),
        "Rank": lambda row: whole(row["place"]),
        "Seeds": lambda row: whole(row["n_seeds"]),
    }
    ranking = f"{captions.RANKING} Bold: best of its column among the ranked rows. "
    if len(data.methods) < 2:
        del lead["Rank"]
        if data.is_single:
            del lead["Seeds"]
        ranking = ""

    def sections(group: Group, rows: pd.DataFrame) -> list[Section]:
        tied = ties(data, group, rows, metrics, within="calibrator")
        found = metric_section(data.label(group), rows, metrics, lead, ties=tied)
        return [ranked(found, rows)]

    return grouped(
        "methods",
        "Training-time methods, uncalibrated" if len(data.methods) > 1 else "Uncalibrated",
        "Methods",
        data.groups,
        lambda group: data.test(group, [UNCALIBRATED]),
        sections,
        lambda frame: (
            f"Uncalibrated networks on the {captions.test_split(data)}; {captions.seeds(frame)}. "
            f"{captions.spread(data, frame)} {ranking}{captions.ties(frame)} {captions.NULL}"
        ),
    )


def calibrators(data: StudyData) -> Table | None:
    """Every method with every calibrator."""
    if set(data.calibrators) == {UNCALIBRATED}:
        return None
    sorted_by = "Methods are sorted by their rank without calibration."
    if len(data.methods) == 1:
        sorted_by = "Calibrators are sorted by their NLL."
    return _of_calibrators(
        data,
        "calibrators",
        "Post-hoc calibrators",
        (*METRICS, *data.own_metrics),
        lambda frame: (
            f"Post-hoc calibrators, fitted on val, on the {captions.test_split(data)}; "
            f"{captions.seeds(frame)}. {captions.spread(data, frame)} "
            f"{sorted_by} {captions.BEST_CALIBRATOR} {captions.ties(frame)} {captions.NULL}"
        ),
    )


def parts(data: StudyData) -> Table | None:
    """Refinement and calibration parts of proper scores, and L_p errors."""
    return _of_calibrators(
        data,
        "parts",
        "Refinement and calibration",
        PARTS,
        lambda frame: (
            f"Parts of the proper scores on the {captions.test_split(data)}; "
            f"{captions.seeds(frame)}. {captions.spread(data, frame)} The calibration part is what "
            "recalibration would gain, by one temperature (NLL) or in bins of each class (Brier "
            "score); refinement is the rest. A gain in refinement is one that no such "
            "recalibration gives. L1 and L2 errors of all probabilities are what a temperature or "
            "isotonic maps, fitted on other images of the split, find: bounds from below, negative "
            f"by noise, of which none is best. {captions.BEST_CALIBRATOR} {captions.ties(frame)}"
        ),
    )


def soft_labels(data: StudyData) -> Table | None:
    """Every method with every calibrator, on test splits with known truth."""
    judged = [group for group in data.groups if present(data.test(group), SOFT_METRICS)]
    return _of_calibrators(
        data,
        "soft_labels",
        "Distance to the truth about each image",
        SOFT_COLUMNS,
        lambda frame: (
            f"Distance to the truth on the clean test split; {captions.seeds(frame)}. "
            f"{captions.spread(data, frame)} {TRUTH} {captions.BEST_CALIBRATOR} "
            f"{captions.ties(frame)} {captions.NULL}"
        ),
        judged,
    )


def _of_calibrators(
    data: StudyData,
    id: str,
    title: str,
    metrics: Sequence[str],
    caption: Callable[[pd.DataFrame], str],
    groups: Sequence[Group] | None = None,
) -> Table | None:
    """Table of every method with every calibrator, of all groups by default."""
    lead = calibrated_columns(data)

    def sections(group: Group, rows: pd.DataFrame) -> list[Section]:
        tied = ties(data, group, rows, metrics, within="method")
        return [metric_section(data.label(group), rows, metrics, lead, "method", tied)]

    def tests(group: Group) -> pd.DataFrame:
        rows = data.test(group)
        return rows if len(data.methods) > 1 else rows.sort_values("nll_mean", kind="stable")

    shown = data.groups if groups is None else groups
    return grouped(id, title, "Calibrators", shown, tests, sections, caption)
