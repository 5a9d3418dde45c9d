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
    calibrated_columns,
    grouped,
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

    return grouped(
        "methods",
        "Training-time methods, uncalibrated" if len(data.methods) > 1 else "Uncalibrated",
        "Methods",
        data.groups,
        lambda group: data.test(group, [UNCALIBRATED]),
        section,
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

    def section(group: Group, rows: pd.DataFrame) -> list[Section]:
        tied = ties(data, group, rows, metrics, within="method")
        return [metric_section(data.label(group), rows, metrics, lead, "method", tied)]

    def tests(group: Group) -> pd.DataFrame:
        rows = data.test(group)
        return rows if len(data.methods) > 1 else rows.sort_values("nll_mean", kind="stable")

    shown = data.groups if groups is None else groups
    return grouped(id, title, "Calibrators", shown, tests, section, caption)
