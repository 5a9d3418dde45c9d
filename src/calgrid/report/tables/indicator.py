"""Table of diagnostics of the indicator and the gate of FeDLaS."""

import functools

import pandas as pd

from calgrid.report.selections import histories
from calgrid.report.study import Group, StudyData
from calgrid.report.table import Columns, Table, grouped, mean_cell, section, whole, words
from calgrid.storage.schema import SETTING

#: column of the history -> heading, factor, decimals
DIAGNOSTICS = {
    "nci_correct_pearson": ("Indicator and correctness: Pearson", 1, 3),
    "nci_correct_spearman": ("Indicator and correctness: Spearman", 1, 3),
    "nci_correct_auroc": ("Indicator and correctness: AUROC (%)", 100, 2),
    "nci_confidence_pearson": ("Indicator and confidence: Pearson", 1, 3),
    "nci_confidence_spearman": ("Indicator and confidence: Spearman", 1, 3),
    "positive_share": ("Positive mode (%)", 100, 2),
    "flip_rate": ("Mode flipped (%)", 100, 2),
    "mean_smoothing": ("Mean smoothing", 1, 4),
}
CAPTION = (
    "Diagnostics of the indicator and the gate of FeDLaS in the last epoch, over all training "
    "samples; mean over the seeds for which the value is defined, ± the standard deviation over "
    "them. Correctness: whether the network classified the training sample correctly; confidence: "
    "its largest softmax probability. A correlation of 0 or an AUROC of 50 % means no association "
    "with the indicator. A dash: not defined, because the indicator is constant or no training "
    "sample is wrong. Positive mode: gate +1; mode flipped: samples whose gate differs from that "
    "of the previous epoch."
)


def indicator(data: StudyData) -> Table | None:
    """Last-epoch diagnostics of the methods with an indicator."""
    columns: Columns = {
        "Method": lambda row: words(row["method"]),
        "Seeds": lambda row: whole(row["n_seeds"]),
    }
    for name, (label, factor, decimals) in DIAGNOSTICS.items():
        columns[label] = functools.partial(mean_cell, name=name, factor=factor, decimals=decimals)
    return grouped(
        "indicator",
        "Indicator and gate of FeDLaS",
        "Training",
        data.settings,
        lambda group: _means(data, group),
        lambda group, rows: [section(data.label(group, checkpoint=False), rows, columns)],
        lambda _: CAPTION,
        keys=SETTING,
    )


def _means(data: StudyData, group: Group) -> pd.DataFrame:
    """One row per method: ``{column}_mean`` and ``{column}_std`` of each diagnostic, and
    ``n_seeds``.
    """
    rows = []
    for method, history in histories(data, group, "positive_share").groupby("method", sort=False):
        last = history.loc[history.groupby("seed")["epoch"].idxmax()].reindex(
            columns=[*DIAGNOSTICS]
        )
        row = {"method": method, "n_seeds": len(last)}
        for name in DIAGNOSTICS:
            row[f"{name}_mean"], row[f"{name}_std"] = last[name].mean(), last[name].std()
        rows.append(row)
    return pd.DataFrame(rows)
