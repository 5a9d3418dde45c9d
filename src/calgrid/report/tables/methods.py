"""Tables of the clean test split: methods uncalibrated, with every calibrator, and against the
truth.
"""

from collections.abc import Callable, Sequence

import pandas as pd

from calgrid.report import captions
from calgrid.report.recipes import ties
from calgrid.report.study import BESIDE_ECE, UNCALIBRATED, Group, StudyData
from calgrid.report.table import (
    Section,
    Table,
    by_group,
    calibrated_columns,
    metric_section,
    present,
    ranked,
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
SOFT_METRICS = ("soft_kl", "soft_tv", "soft_ece")
SOFT_COLUMNS = (*SOFT_METRICS, "ece_debiased", "ece", "ece_null", "accuracy")
TRUTH = (
    "The truth about an image is the known probability of each class given the image, or the "
    "share of annotators who chose it. KL and total variation are mean distances of the predicted "
    "distribution from it; ECE to truth is the ECE with the true probability of the predicted "
    "class instead of its correctness. It is free of label noise, but still depends on the sample "
    "of images. The other columns use labels only."
)


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

    def section(group: Group, rows: pd.DataFrame) -> list[Section]:
        tied = ties(data, group, rows, metrics, within="calibrator")
        found = metric_section(data.label(group), rows, metrics, lead, ties=tied)
        return [ranked(found, rows)]

    frame, sections = by_group(data.groups, lambda group: data.test(group, [UNCALIBRATED]), section)
    if frame.empty:
        return None
    caption = (
        f"Uncalibrated networks on the {captions.test_split(data)}; {captions.seeds(frame)}. "
        f"{captions.spread(data, frame)} {ranking}{captions.ties(frame)} {captions.NULL}"
    )
    title = "Training-time methods, uncalibrated" if len(data.methods) > 1 else "Uncalibrated"
    return Table("methods", title, "Methods", caption, frame, sections)


def calibrators(data: StudyData) -> Table | None:
    """Every method with every calibrator."""
    if set(data.calibrators) == {UNCALIBRATED}:
        return None
    frame, sections = by_group(
        data.groups, data.test, _calibrated(data, (*METRICS, *data.own_metrics))
    )
    if frame.empty:
        return None
    order = "Methods are sorted by their rank without calibration. "
    caption = (
        f"Post-hoc calibrators, fitted on val, on the {captions.test_split(data)}; "
        f"{captions.seeds(frame)}. {captions.spread(data, frame)} "
        f"{order if len(data.methods) > 1 else ''}{captions.BEST_CALIBRATOR} "
        f"{captions.ties(frame)} {captions.NULL}"
    )
    return Table("calibrators", "Post-hoc calibrators", "Calibrators", caption, frame, sections)


def parts(data: StudyData) -> Table | None:
    """Refinement and calibration parts of proper scores, and L_p errors."""
    frame, sections = by_group(data.groups, data.test, _calibrated(data, PARTS))
    if frame.empty:
        return None
    caption = (
        f"Parts of the proper scores on the {captions.test_split(data)}; {captions.seeds(frame)}. "
        f"{captions.spread(data, frame)} The calibration part is what recalibration would gain, by "
        "one temperature (NLL) or in bins of each class (Brier score); refinement is the rest. A "
        "gain in refinement is one that no such recalibration gives. L1 and L2 errors of all "
        "probabilities are what a temperature or isotonic maps, fitted on other images of the "
        "split, find: bounds from below, negative by noise, of which none is best. "
        f"{captions.BEST_CALIBRATOR} "
        f"{captions.ties(frame)}"
    )
    title = "Refinement and calibration"
    return Table("parts", title, "Calibrators", caption, frame, sections)


def soft_labels(data: StudyData) -> Table | None:
    """Every method with every calibrator, on test splits with known truth."""

    def judged(group: Group) -> pd.DataFrame:
        rows = data.test(group)
        return rows if present(rows, SOFT_METRICS) else rows.iloc[:0]

    frame, sections = by_group(data.groups, judged, _calibrated(data, SOFT_COLUMNS))
    if frame.empty:
        return None
    caption = (
        f"Distance to the truth on the clean test split; {captions.seeds(frame)}. "
        f"{captions.spread(data, frame)} {TRUTH} {captions.BEST_CALIBRATOR} "
        f"{captions.ties(frame)} {captions.NULL}"
    )
    title = "Distance to the truth about each image"
    return Table("soft_labels", title, "Calibrators", caption, frame, sections)


def _calibrated(
    data: StudyData, metrics: Sequence[str]
) -> Callable[[Group, pd.DataFrame], list[Section]]:
    """Function that makes the section of a group: every method with every calibrator."""

    def section(group: Group, rows: pd.DataFrame) -> list[Section]:
        tied = ties(data, group, rows, metrics, within="method")
        return [
            metric_section(
                data.label(group), rows, metrics, calibrated_columns(data), "method", tied
            )
        ]

    return section
