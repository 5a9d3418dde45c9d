"""Sentences shared by captions: test split, number of seeds, meaning of spreads and intervals."""

import re
from collections.abc import Sequence

import pandas as pd

from calgrid.metrics.table import CALIBRATION
from calgrid.report import text
from calgrid.report.study import SEES_VALIDATION, UNCONVERGED, Group, StudyData, among

ARROW = "An arrow: the interval continues outside the axes."
#: words of a caption that the report shows before a fold, at most
SHOWN_WORDS = 40
RANKING = (
    "Rows are ranked by NLL, then Brier score; those whose accuracy is below the best, with more "
    "than 1 point between the intervals of both, follow without a rank."
)
DAGGER = (
    f"{SEES_VALIDATION} sees validation data during training, unlike the other methods; "
    "calibrators are fitted on the same data."
)
BEST_CALIBRATOR = (
    "Bold: best calibrator of each network and column, among those that keep its best accuracy "
    "within 1 point."
)
TIES = (
    "Underlined: not significantly worse than the best, over seeds and test images, after Holm's "
    "correction within the families of tests.parquet; calibration errors by the squared "
    "calibration error and its best, and metrics that have no test are not marked."
)
NULL = (
    "ECE null is the expected ECE of a perfectly calibrated network with the same confidences and "
    "number of images: an ECE at or below it is no evidence of miscalibration."
)
SECONDS = (
    "Seconds of all processor cores on a CPU, which do not depend on other work on the machine; "
    "on a GPU, seconds for which it was held."
)
TESTED = (
    "Verdicts cover retraining with other seeds and other test images. Calibration errors have a "
    "bias that depends on the model, so the verdict on calibration is that of the squared "
    "calibration error, which has none. better and worse: significant after Holm's correction; "
    "equivalent: the interval, corrected too, is within 0.5 points (accuracy and other shares), "
    "0.01 nats (NLL), 0.005 (Brier) or 1 % (root of squared CE); tie: no difference found, which "
    "is no evidence of equality; detectable: the difference found with a power of 80 %; no "
    "verdict: not testable, as with one seed. Root of squared CE: of a difference of squares, with "
    "its sign."
)


def folded(caption: str) -> tuple[str, str]:
    """First sentences of a caption, of up to ``SHOWN_WORDS`` words in all, and the others."""
    first, *others = re.split(r"(?<=[.?!]) ", caption)
    while others and len(f"{first} {others[0]}".split()) <= SHOWN_WORDS:
        first += f" {others.pop(0)}"
    return first, " ".join(others)


def seeds(rows: pd.DataFrame) -> str:
    """Number of seeds of the rows: ``mean over 3 seeds``, ``one network each``."""
    low, high = int(rows["n_seeds"].min()), int(rows["n_seeds"].max())
    if high == 1:
        return "one network each"
    return f"mean over {high} seeds" if low == high else f"mean over {low} to {high} seeds"


def over_seeds(rows: pd.DataFrame) -> str:
    """Number of seeds, and the meaning of ± if there are several."""
    said = seeds(rows)
    said += "; ±: standard deviation over seeds" if rows["n_seeds"].max() > 1 else ""
    return f"{said[0].upper()}{said[1:]}."


def order(rows: pd.DataFrame) -> str:
    """How methods are sorted, if there are several."""
    return "; methods by rank" if rows["method"].nunique() > 1 else ""


def ties(rows: pd.DataFrame) -> str:
    """Meaning of the marks of ties; with one seed, methods are not compared."""
    if rows["n_seeds"].max() > 1:
        return TIES
    if rows["calibrator"].nunique() == 1:
        return "With one seed ties are not tested." if rows["method"].nunique() > 1 else ""
    return TIES.replace("over seeds and test images", "for this network and other test images")


def test_split(data: StudyData) -> str:
    """Clean test split with its number of images."""
    sizes = sorted(set(map(data.test_samples, data.groups)) - {0})
    span = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return f"clean test split ({span} images)"


def spread(data: StudyData, rows: pd.DataFrame) -> str:
    """Meaning of the spread beside the means of a table; empty if there is none."""
    single = f"{100 * data.level:g} % bootstrap intervals over test images (none for MCE)"
    return _by_seeds(rows, "±: standard deviation over seeds", "brackets", single)


def interval(data: StudyData, rows: pd.DataFrame, mark: str = "Bars") -> str:
    """Meaning of the intervals of a figure, drawn as ``mark``; empty if there are none."""
    level = f"{100 * data.level:g} %"
    many = f"{mark}: {level} t intervals for the mean over seeds"
    single = f"{level} bootstrap intervals over test images"
    return _by_seeds(rows, many, mark.lower(), single)


def _by_seeds(rows: pd.DataFrame, many: str, mark: str, single: str) -> str:
    """Meaning of a mark for several seeds, for one seed, or for both if the rows have both; of one
    seed without intervals there is none.
    """
    several = rows["n_seeds"] > 1
    known = rows[~several].filter(regex="ci_low$").notna().any(axis=None)
    alone = f"{mark}: {single}, which do not cover retraining."
    if not several.any():
        return alone[0].upper() + alone[1:] if known else ""
    return f"{many}; for one seed, {alone}" if known else f"{many}."


def sees_validation(data: StudyData, groups: Sequence[Group]) -> str:
    """Name the methods of the groups that see validation data during training; empty if there are
    none.
    """
    present = [name for group in groups for name in data.keys_of(group)["method"]]
    seeing = among(data.validation_methods, present)
    if not seeing:
        return ""
    see = "see" if len(seeing) > 1 else "sees"
    return f"{text.listed(seeing)} {see} validation data during training."


def unconverged(data: StudyData) -> str:
    """Legend of the mark of calibrators with unconverged fits, and numbers of these fits."""
    cases = [f"`{name}` {few} of {all}" for name, (few, all) in data.unconverged.items()]
    return f"{UNCONVERGED} fits that stopped before they converged: {text.listed(cases)}."


def warnings(data: StudyData) -> list[str]:
    """Warnings about the data sets of a study, one sentence each."""
    said = {group.dataset: warning for group in data.groups if (warning := data.warning(group))}
    return [f"Warning: on {dataset}, {warning}." for dataset, warning in said.items()]


def reading(data: StudyData) -> list[str]:
    """How to read the numbers of the report: intervals, tests, ranking, null, shift."""
    level = f"{100 * data.level:g} %"
    units = (
        "Accuracy, calibration errors, AUROC and FPR95 are in percent, NLL in nats; the Brier "
        f"score is the sum over classes. Calibration errors use {data.bins} bins. No calibrator "
        "was fitted on the images that it is scored on."
    )
    over_seeds = (
        f"With several seeds, ± is the standard deviation over seeds and an interval is a {level} "
        "Student t interval of the mean over seeds, computed on the logit scale (on the log "
        "scale if the metric has no upper bound) to stay within the bounds of the metric "
        "(it extends to a bias-corrected mean that is outside). It covers the variance of "
        "retraining with other seeds."
    )
    over_images = (
        f"An interval of one network is a {level} bootstrap interval over test images: it covers "
        "the choice of test images, not the variance of retraining. Calibration errors are biased "
        "upwards, more so in resamples: their interval starts at the part of the error that "
        "chance does not explain (0 if chance may explain all of it). ECE debiased has the "
        "interval of ECE, as both estimate the same quantity. MCE has none, as no interval with "
        "valid coverage is known. Calibration errors have neither interval nor verdict with fewer "
        f"than {CALIBRATION}; other metrics that few errors decide need more."
    )
    null = (
        f"Read ECE together with other metrics. {NULL} ECE debiased subtracts the estimated bias "
        "and may be slightly below 0."
    )
    baseline = data.named(data.baseline)
    tested = (
        f"Methods are tested against {baseline}, with Holm's correction over all methods of "
        f"a column. {TESTED}"
    )
    if data.baseline not in data.methods:
        tested = (
            f"No method is tested against {baseline}, the baseline, which is not among them: "
            f"statistics.baseline in the configuration names another. {TESTED}"
        )
    shifted = (
        "Under shift every corruption at every severity is scored separately and the results are "
        "averaged; images of different corruptions or severities are never pooled."
    )
    sentences = {
        units: True,
        over_seeds: data.keys["seed"].nunique() > 1,
        over_images: True,
        RANKING: len(data.methods) > 1,
        null: True,
        tested: len(data.methods) > 1,
        shifted: any(run["families"] for run in data.manifest["runs"]),
    }
    dagger = [DAGGER] if data.validation_methods else []
    return [*warnings(data), *dagger, *(said for said, holds in sentences.items() if holds)]
