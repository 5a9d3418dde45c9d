"""Tables of the clean test split: methods compared uncalibrated, and with every calibrator."""

import pandas as pd

from calgrid.reporting import captions
from calgrid.reporting.study import BESIDE_ECE, UNCALIBRATED, Group, StudyData
from calgrid.reporting.table import CALIBRATED, Section, Table, by_group, metric_section, present, whole, words

METRICS = (*BESIDE_ECE, "aece", "cece", "mce", "o_ece", "u_ece", "smce")


def methods(data: StudyData) -> Table | None:
    """Training-time methods as they come out of training."""
    metrics = (*METRICS, *data.own_metrics)

    def section(group: Group, rows: pd.DataFrame) -> list[Section]:
        lead = {
            "Method": lambda row: words(row["method"]),
            "Rank": lambda row: whole(row["place"]),
            "Seeds": lambda row: whole(row["n_seeds"]),
        }
        return [metric_section(data.label(group), rows, present(rows, metrics), lead)]

    frame, sections = by_group(data, lambda group: data.test(group, [UNCALIBRATED]), section)
    if frame.empty:
        return None
    caption = (
        f"Uncalibrated networks on the {captions.test_split(data)}; {captions.seeds(frame)}. "
        f"{captions.spread(data, frame)} {captions.RANKING} Bold: best of its column among the ranked rows. "
        f"{captions.NULL}"
    )
    return Table("methods", "Training-time methods, uncalibrated", "Methods", caption, frame, sections)


def calibrators(data: StudyData) -> Table | None:
    """Every method with every calibrator."""
    metrics = (*METRICS, *data.own_metrics)

    def section(group: Group, rows: pd.DataFrame) -> list[Section]:
        return [metric_section(data.label(group), rows, present(rows, metrics), CALIBRATED, within="method")]

    if set(data.calibrators) == {UNCALIBRATED}:
        return None
    frame, sections = by_group(data, data.test, section)
    if frame.empty:
        return None
    caption = (
        f"Post-hoc calibrators, fitted on val, on the {captions.test_split(data)}; {captions.seeds(frame)}. "
        f"{captions.spread(data, frame)} Methods stand in the order of their rank without calibration. Bold: best "
        f"calibrator of each method and column, among those within 1 point of the method's best accuracy. "
        f"{captions.NULL}"
    )
    return Table("calibrators", "Post-hoc calibrators", "Calibrators", caption, frame, sections)
