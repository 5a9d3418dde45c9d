"""Table of the distance to the truth about each image, where that is known: a posterior or people's votes."""

import pandas as pd

from calgrid.reporting import captions
from calgrid.reporting.study import Group, StudyData
from calgrid.reporting.table import CALIBRATED, Section, Table, by_group, metric_section, present

SOFT_METRICS = ("soft_kl", "soft_tv", "soft_ece")
METRICS = (*SOFT_METRICS, "ece_debiased", "ece", "ece_null", "accuracy")
CAPTION = (
    "The truth about an image is the known probability of each class given the image, or the shares of the people who "
    "chose it. KL and total variation are the mean distances of the predicted distribution from it; ECE to truth is "
    "the ECE with the true probability of the predicted class in place of right or wrong, so that it is free of the "
    "noise of labels though not of that of images. The other columns see labels only."
)


def soft_labels(data: StudyData) -> Table | None:
    """Every method with every calibrator, on test splits of which the truth is known."""

    def section(group: Group, rows: pd.DataFrame) -> list[Section]:
        return [metric_section(data.label(group), rows, present(rows, METRICS), CALIBRATED, within="method")]

    frame, sections = by_group(data, lambda group: _judged(data.test(group)), section)
    if frame.empty:
        return None
    caption = (
        f"Distance to the truth on the clean test split; {captions.seeds(frame)}. {captions.spread(data, frame)} "
        f"{CAPTION} Bold: best calibrator of each method and column, among those within 1 point of the method's best "
        f"accuracy. {captions.NULL}"
    )
    return Table("soft_labels", "Distance to the truth about each image", "Calibrators", caption, frame, sections)


def _judged(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a group if its truth is known, else none."""
    return rows if present(rows, SOFT_METRICS) else rows.iloc[:0]
