"""Sentences that captions share: scored images, seeds, meaning of spreads and intervals."""

from collections.abc import Sequence

import pandas as pd

from calgrid.reporting import text
from calgrid.reporting.study import SEES_VALIDATION, Group, StudyData

RANKING = (
    "Rows are ranked by NLL, then Brier score, among those whose accuracy is within 1 point of the best; the others "
    "follow without a rank."
)
DAGGER = (
    f"{SEES_VALIDATION} sees validation data during training, which the other methods do not; calibrators are fitted "
    "on the same data."
)
NULL = (
    "ECE null is what a perfectly calibrated network with the same confidences would score on as many images: an ECE "
    "at or below it is no evidence of miscalibration."
)

TESTED = (
    "A test over seeds is about training again and scoring on these test images: other images are not in it. The bias "
    "of a calibration error depends on the model and is the same for all seeds, so a difference of such errors counts "
    "only where it exceeds what the intervals of both methods over test images leave open."
)


def seeds(rows: pd.DataFrame) -> str:
    """Say how many seeds the rows rest on: ``mean over 3 seeds``, ``one seed``."""
    low, high = int(rows["n_seeds"].min()), int(rows["n_seeds"].max())
    if high == 1:
        return "one seed"
    return f"mean over {high} seeds" if low == high else f"mean over {low} to {high} seeds"


def test_split(data: StudyData) -> str:
    """Name the clean test split with its size."""
    sizes = sorted({data.test_samples(group) for group in data.groups} - {0})
    span = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return f"clean test split ({span} images)"


def spread(data: StudyData, rows: pd.DataFrame) -> str:
    """Sentence about the spread shown with the means."""
    level = f"{100 * data.level:g} %"
    many = "± is the standard deviation over seeds"
    single = f"brackets are {level} bootstrap intervals over test images (none for MCE)"
    if rows["n_seeds"].min() > 1:
        return f"{many}."
    if rows["n_seeds"].max() == 1:
        return f"{single[0].upper()}{single[1:]}, which do not cover other seeds."
    return f"{many}; with one seed, {single}."


def interval(data: StudyData, rows: pd.DataFrame) -> str:
    """Sentence about the intervals of a figure."""
    level = f"{100 * data.level:g} %"
    single = f"{level} bootstrap intervals over test images, which do not cover other seeds"
    many = f"{level} t intervals for the mean over seeds"
    if rows["n_seeds"].max() == 1:
        return f"Bars are {single}."
    if rows["n_seeds"].min() > 1:
        return f"Bars are {many}."
    return f"Bars are {many}; with one seed, {single}."


def sees_validation(data: StudyData, groups: Sequence[Group]) -> str:
    """Sentence about methods that see validation data during training; empty if there are none."""
    present = {run["key"]["method"] for group in groups for run in data.runs(group)}
    seeing = [method for method in data.validation_methods if method in present]
    if not seeing:
        return ""
    return f"{text.listed(seeing)} {'see' if len(seeing) > 1 else 'sees'} validation data during training."


def warnings(data: StudyData) -> list[str]:
    """What must be said with all results of a study because of its data sets, one sentence each."""
    said = {group.dataset: warning for group in data.groups if (warning := data.warning(group))}
    return [f"Warning: on {dataset}, {warning}." for dataset, warning in said.items()]


def reading(data: StudyData) -> list[str]:
    """How to read the report's numbers: intervals, tests, ranking, null, shift."""
    level = f"{100 * data.level:g} %"
    return [
        *warnings(data),
        *([DAGGER] if data.validation_methods else []),
        "Accuracy, calibration errors, AUROC and FPR95 are in percent, NLL in nats; the Brier score is the sum over "
        f"classes. Calibration errors use {data.bins} bins. All numbers are on rows that fitted nothing.",
        f"With several seeds, ± is the standard deviation over seeds and an interval is a {level} Student t interval "
        "of the mean over seeds, on the scale of its logit (of its logarithm where it has no upper bound), which keeps "
        "it within the bounds of the metric: it covers what training again with other seeds would change.",
        f"With one seed, an interval is a {level} bootstrap interval over test images: it covers the choice of test "
        "images and does not cover other seeds. Calibration errors are biased upwards, in resamples more: their "
        "interval reaches down to what chance does not explain (0 where it may explain all), and a debiased error has "
        "that of the plain one, for both estimate the same. MCE has none: no interval with valid coverage is known.",
        RANKING,
        f"ECE is never read alone. {NULL} ECE debiased subtracts the estimated bias and may fall slightly below 0.",
        f"Tests are paired t-tests over seeds against {data.baseline}, corrected by Holm over all methods of a column. "
        f"{TESTED}",
        "Under shift every corruption at every severity is scored by itself and the results are averaged; samples of "
        "different settings are never pooled.",
    ]
