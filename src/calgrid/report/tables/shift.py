"""Tables of shifted and out-of-distribution test sets."""

from collections.abc import Iterator

import pandas as pd

from calgrid.metrics.table import OOD_NETWORK
from calgrid.report import captions
from calgrid.report.study import BESIDE_ECE, UNCALIBRATED, Group, StudyData
from calgrid.report.table import (
    Section,
    Table,
    calibrated_columns,
    grouped,
    metric_section,
    present,
    whole,
    words,
)
from calgrid.storage.records import OOD_GROUPS
from calgrid.storage.schema import METRICS

SHIFT_METRICS = (*BESIDE_ECE, "aece_eq", "cece")
OOD_METRICS = (
    "auroc",
    "fpr95",
    "auroc_entropy",
    "fpr95_entropy",
    "fpr95_oodpos",
    "aupr",
    "aupr_oodpos",
)
#: metrics of the table of scores, a section each
SCORED_BY = {
    "AUROC": (
        *("auroc", "auroc_entropy", "auroc_maxlogit", "auroc_energy", "auroc_knn", "auroc_vim"),
    ),
    "FPR95": (
        *("fpr95", "fpr95_entropy", "fpr95_maxlogit", "fpr95_energy", "fpr95_knn", "fpr95_vim"),
    ),
    "AUPR": ("aupr", "aupr_maxlogit", "aupr_energy", "aupr_knn", "aupr_vim"),
}


def shift(data: StudyData) -> Table | None:
    """Calibration under shift, by severity."""

    def sections(group: Group, rows: pd.DataFrame) -> Iterator[Section]:
        lead = {**calibrated_columns(data), "Corruptions": lambda row: whole(row["n_shifts"])}
        metrics = (*SHIFT_METRICS, *data.own_metrics)
        for key, part in rows.groupby(["severity", "domain"]):
            heading = f"{data.label(group)}: {condition(*key)}"
            yield metric_section(heading, part, metrics, lead, "method")

    def caption(frame: pd.DataFrame) -> str:
        rows = data.distinct(METRICS, ["shift", "severity"], split="shift")
        names = sorted(rows.loc[rows["severity"] > 0, "shift"].unique())
        named = f"Corruptions: {', '.join(names)}." if names else ""
        return (
            "Every corruption at every severity is scored separately, images are never pooled; "
            "shown is the mean over the corruptions of one severity. "
            f"{captions.over_seeds(frame)} {named} Calibrators were fitted on clean val "
            f"unless their name says otherwise. {captions.BEST_CALIBRATOR} Verdicts on the mean "
            f"over all severities are in the table of verdicts against {data.baseline}. "
            f"{captions.NULL}"
        )

    title, select = "Calibration under shift", data.shift_means
    return grouped("shift", title, "Shift", data.groups, select, sections, caption)


def condition(severity: int, domain: str) -> str:
    """Words for a severity, where -1 is the mean over all and 0 has none, of a shifted domain."""
    if severity < 0:
        return "mean over all severities"
    return f"severity {severity}" if severity else domain


def _set(data: StudyData, group: Group, name: str) -> str:
    """Name of an out-of-distribution set with its group, or of the mean over a group."""
    if name in OOD_GROUPS:
        return f"mean over {name} sets"
    known = [item for run in data.runs(group) for item in run.get("ood_groups", {}).items()]
    return next((f"{name} ({found})" for found, names in known if name in names), name)


def ood(data: StudyData) -> Table | None:
    """Detection of out-of-distribution sets."""

    def sections(group: Group, rows: pd.DataFrame) -> Iterator[Section]:
        for name, part in rows.groupby("shift"):
            heading = f"{data.label(group)} against {_set(data, group, str(name))}"
            yield metric_section(heading, part, OOD_METRICS, calibrated_columns(data))

    return grouped(
        "ood",
        "Out-of-distribution detection",
        "Out of distribution",
        data.groups,
        data.ood,
        sections,
        lambda frame: (
            "Detection of out-of-distribution images among clean test images by the largest "
            f"probability or by the entropy; {captions.seeds(frame)}. "
            f"{captions.spread(data, frame)} AUROC: area under the ROC curve. FPR95: share of "
            "out-of-distribution images accepted at the threshold that accepts 95 % of the test "
            "images; OOD positive: share of test images rejected at the threshold that rejects 95 "
            "% of the out-of-distribution images. Bold: best of its column."
        ),
    )


def ood_scores(data: StudyData) -> Table | None:
    """Scores of uncalibrated networks that detect out-of-distribution sets."""

    def select(group: Group) -> pd.DataFrame:
        rows = data.ood(group)
        if not present(rows, OOD_NETWORK):
            return pd.DataFrame()
        bare = rows[rows["calibrator"] == UNCALIBRATED]
        return bare.sort_values("shift", kind="stable")  # means over groups first

    def sections(group: Group, rows: pd.DataFrame) -> Iterator[Section]:
        lead = {
            "Set": lambda row: words(_set(data, group, row["shift"])),
            "Method": lambda row: words(row["method"]),
            "Seeds": lambda row: whole(row["n_seeds"]),
        }
        for measure, of_section in SCORED_BY.items():
            heading = f"{data.label(group)}: {measure}"
            yield metric_section(heading, rows, of_section, lead, "shift")

    return grouped(
        "ood_scores",
        "Out-of-distribution scores",
        "Out of distribution",
        data.groups,
        select,
        sections,
        lambda frame: (
            "Detection of out-of-distribution images by uncalibrated networks, by largest "
            "probability, entropy, largest logit (MaxLogit), energy of the logits, distance to a "
            f"near training image (kNN) and virtual logit (ViM); {captions.seeds(frame)}. "
            f"{captions.spread(data, frame)} k of kNN is 50, but at most the training images of a "
            "class. kNN and ViM need features of the training images (export_features: train). "
            "Bold: best method of each set."
        ),
    )
