"""Tables of comparisons: paired tests against the baseline method, and our results beside published
numbers.
"""

import math

import pandas as pd

from calgrid.components.metrics import metric_names
from calgrid.reporting import captions, text
from calgrid.reporting.study import Group, StudyData
from calgrid.reporting.table import Cell, Section, Table, by_group, whole, words

TESTED = ("accuracy", "nll", "brier", "ece_debiased", "ece")
TEST_COLUMNS = [
    "method",
    "calibrator",
    "fit_on",
    "metric",
    "mean",
    "n_seeds",
    "diff_vs_baseline",
    "p_value",
    "p_holm",
]
TEST_COLUMNS += ["verdict"]
PUBLISHED_COLUMNS = [
    "method",
    "calibrator",
    "fit_on",
    "split",
    "shift",
    "metric",
    "mean",
    "std",
    "ci_low",
    "ci_high",
    "n_seeds",
    "published",
    "published_source",
]


def tests(data: StudyData) -> Table | None:
    """Paired differences between each method and the baseline."""
    shown = (*TESTED, *data.own_metrics)

    def select(group: Group) -> pd.DataFrame:
        rows = data.tidy(group, "test")
        tested = (
            rows["metric"].isin(shown)
            & rows["diff_vs_baseline"].notna()
            & (rows["method"] != data.baseline)
        )
        return data.in_order(rows[tested], data.order(group), by=("calibrator", "method"))[
            TEST_COLUMNS
        ]

    def sections(group: Group, rows: pd.DataFrame) -> list[Section]:
        metrics = [metric for metric in shown if (rows["metric"] == metric).any()]
        header = [
            "Calibrator",
            "Method",
            "Seeds",
            *(f"Δ {text.in_unit(m)} (p; Holm)" for m in metrics),
        ]
        cells = [
            [words(calibrator), words(method), whole(part["n_seeds"].max())]
            + [_difference(part[part["metric"] == metric]) for metric in metrics]
            for (calibrator, method), part in rows.groupby(["calibrator", "method"], sort=False)
        ]
        return [Section(data.label(group), header, cells)]

    frame, formatted = by_group(data, select, sections)
    if frame.empty:
        return None
    caption = (
        f"Difference of each method to {data.baseline} (method minus {data.baseline}) with the "
        f"same calibrator on the "
        f"{captions.test_split(data)}; {captions.seeds(frame)}. In parentheses: p-value of the "
        f"paired t-test over "
        "seeds, and p-value after Holm's correction for all methods compared in that column. Bold: "
        "significant (Holm p "
        f"below {1 - data.level:g}); tie: not significant; without p-values: too few paired seeds "
        f"for a test. "
        f"{captions.TESTED} Read differences of ECE together with NLL, Brier score and accuracy."
    )
    return Table(
        "tests", f"Paired tests against {data.baseline}", "Methods", caption, frame, formatted
    )


def _difference(rows: pd.DataFrame) -> Cell:
    if rows.empty:
        return Cell(text.NOTHING)
    row = rows.iloc[0]
    difference = float(row["diff_vs_baseline"])
    p, holm = float(row["p_value"]), float(row["p_holm"])
    verdict = "; tie" if row["verdict"] == "tie" else ""
    spread = "" if math.isnan(p) else f"({text.p_value(p)}; {text.p_value(holm)}{verdict})"
    said = text.format_metric(row["metric"], difference, signed=True)
    return Cell(said, spread, row["verdict"] in ("better", "worse"), difference)


def published(data: StudyData) -> Table | None:
    """Our results beside the published numbers."""
    order = metric_names()

    def select(group: Group) -> pd.DataFrame:
        rows = pd.concat([data.tidy(group, "test"), data.tidy(group, "ood")])
        found = rows[rows["published"].notna()].sort_values(
            "metric", key=lambda ids: ids.map(order.index)
        )
        return data.in_order(found, data.order(group))[PUBLISHED_COLUMNS]

    def sections(group: Group, rows: pd.DataFrame) -> list[Section]:
        header = [
            "Method",
            "Calibrator",
            "Metric",
            "Seeds",
            "Ours",
            "Published",
            "Difference",
            "Source",
        ]
        return [Section(data.label(group), header, [_beside(row) for _, row in rows.iterrows()])]

    frame, formatted = by_group(data, select, sections)
    if frame.empty:
        return None
    caption = (
        f"Our results on the {captions.test_split(data)} for which a paper has published a number; "
        f"{captions.seeds(frame)}. {captions.spread(data, frame)} Papers differ in splits, epochs "
        f"and code. Read an "
        "ECE together with accuracy, NLL and Brier score, which are in the other tables."
    )
    title = "Ours beside published numbers"
    return Table("published", title, "Published numbers", caption, frame, formatted)


def _beside(row: pd.Series) -> list[Cell]:
    metric, ours, theirs = row["metric"], float(row["mean"]), float(row["published"])
    spread = text.spread(metric, *row[["n_seeds", "std", "ci_low", "ci_high"]])
    return [
        words(row["method"]),
        words(row["calibrator"]),
        words(text.in_unit(metric) + (f" against {row['shift']}" if row["shift"] else "")),
        whole(row["n_seeds"]),
        Cell(text.format_metric(metric, ours), spread, sort=ours),
        Cell(text.format_metric(metric, theirs), sort=theirs),
        Cell(text.format_metric(metric, ours - theirs, signed=True), sort=ours - theirs),
        words(row["published_source"]),
    ]
