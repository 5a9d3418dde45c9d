"""Tables of comparisons: verdicts against the baseline method, and our results beside published
numbers.
"""

import math

import pandas as pd

from calgrid.components.metrics import metric_names
from calgrid.report import captions, text
from calgrid.report.study import GROUP, STATISTICS, Group, StudyData, among, calibrated
from calgrid.report.table import Cell, Columns, Section, Table, grouped, section, whole, words
from calgrid.report.tables.shift import condition
from calgrid.statistics.pairs import FEW_METHODS, QUESTIONS, RECIPES_BY
from calgrid.statistics.verdicts import FOUND, TIE
from calgrid.storage.schema import TEST_COLUMNS

TESTED = ("accuracy", "nll", "nll_calibration", "brier", "squared_ce", "ece_debiased", "ece")
NAMES = ["method", "calibrator", "fit_on"]
PLACE = ["split", "shift", "severity"]
#: columns of the tests beside those of a group
COLUMNS = [name for name in TEST_COLUMNS if name not in GROUP]
PUBLISHED_COLUMNS = [*NAMES, "split", "shift", "metric", *STATISTICS, "n_seeds"]
PUBLISHED_COLUMNS += ["published", "published_source"]
#: columns of the table of published numbers
BESIDE: Columns = {
    "Method": lambda row: words(row["method"]),
    "Calibrator": lambda row: words(row["calibrator"]),
    "Metric": lambda row: words(
        text.in_unit(row["metric"]) + (f" against {row['shift']}" if row["shift"] else "")
    ),
    "Seeds": lambda row: whole(row["n_seeds"]),
    "Ours": lambda row: _value(
        row, row["mean"], text.spread(row["metric"], *row[["n_seeds", "std", "ci_low", "ci_high"]])
    ),
    "Published": lambda row: _value(row, row["published"]),
    "Difference": lambda row: _value(row, row["mean"] - row["published"], signed=True),
    "Source": lambda row: words(row["published_source"]),
}


def tests(data: StudyData) -> Table | None:
    """Tests of all pairs; shown are those of each method against the baseline, on clean images and
    under shift.
    """
    shown = (*TESTED, *data.own_metrics)

    def select(group: Group) -> pd.DataFrame:
        rows = data.select(data.tests, group)
        return data.in_order(rows, data.order(group), by=("calibrator", "method"))[COLUMNS]

    def sections(group: Group, rows: pd.DataFrame) -> list[Section]:
        against = (rows["against"] == data.baseline) & (rows["method"] != data.baseline)
        against &= rows["calibrator"] == rows["against_calibrator"]
        rows = rows[against & rows["metric"].isin(shown) & (rows["split"] != "ood")]
        metrics = among(shown, rows["metric"])
        header = ["Calibrator", "Method", "Seeds"]
        header += [f"Δ {text.in_unit(metric)}" for metric in metrics]
        found = []
        for (split, shift, severity), part in rows.groupby(PLACE, sort=False):
            where = f": {condition(severity, shift)}" if split == "shift" else ""
            lines = []
            for names, own in part.groupby(["calibrator", "method"], sort=False):
                line = [*map(words, names), whole(own["n_seeds"].max())]
                line += [_difference(own[own["metric"] == metric]) for metric in metrics]
                lines.append(line)
            found.append(Section(data.label(group) + where, header, lines))
        return found

    def caption(frame: pd.DataFrame) -> str:
        shifted = asked = ""
        if (frame["severity"] < 0).any():
            shifted = " and on the mean over all corruptions and severities"
        if frame["family"].str.startswith(QUESTIONS).any():
            asked = "or, where a question of the study is about this pair, for all questions, "
        return (
            f"Difference of each method to {data.baseline} (method minus {data.baseline}) with the "
            f"same calibrator on the {captions.test_split(data)}{shifted}; "
            f"{captions.seeds(frame)}. In parentheses: verdict (of a tie also the difference that "
            "would have been found), p-value after Holm's correction for all methods compared in "
            f"that column, {asked}and p-value of the t-test over seeds alone, which holds on these "
            "images only. The CSV file has the tests of all pairs that the report speaks of, with "
            f"the family of each. Bold: better or worse. {captions.TESTED}"
        )

    title = f"Verdicts against {data.baseline}"
    return grouped("tests", title, "Methods", data.groups, select, sections, caption)


def each_two(data: StudyData) -> Table | None:
    """NLL of each method minus that of each other one, with the same calibrator."""
    if data.comparisons or not 2 < len(data.methods) <= FEW_METHODS:
        return None
    metric = RECIPES_BY

    def select(group: Group) -> pd.DataFrame:
        rows = data.select(data.clean_tests, group)
        same = (rows["calibrator"] == rows["against_calibrator"]) & (rows["metric"] == metric)
        rows = rows[same & rows["calibrator"].isin(data.few_calibrators())]
        return data.in_order(rows, data.order(group), by=("calibrator", "method"))[COLUMNS]

    def sections(group: Group, rows: pd.DataFrame) -> list[Section]:
        found = []
        for calibrator, part in rows.groupby("calibrator", sort=False):
            names = among(data.order(group), part["method"])
            lines = []
            for method in names:
                own = part[part["method"] == method].set_index("against")
                lines.append([words(method), *(_verdict(own[own.index == name]) for name in names)])
            heading = f"{data.label(group)}: {calibrated(str(calibrator))}"
            found.append(Section(heading, ["Method", *(f"minus {name}" for name in names)], lines))
        return found

    title = "Each method against each other"
    return grouped(
        "each_two",
        title,
        "Methods",
        data.groups,
        select,
        sections,
        lambda frame: (
            f"NLL (nats) of the method of a row minus that of the method of a column, on the "
            f"{captions.test_split(data)}; {captions.seeds(frame)}: below 0, the method of the row "
            f"is better. Below: {100 * data.level:g} % interval, verdict and p-value after Holm's "
            "correction in the family of the pair (tests.parquet). Bold: better or worse. "
            f"{captions.TESTED}"
        ),
    )


def _verdict(rows: pd.DataFrame) -> Cell:
    """Difference of one pair with its verdict and p-value."""
    for row in rows.itertuples():
        difference = float(row.difference)
        said = text.format_metric(row.metric, difference, signed=True)
        between = text.interval(row.metric, row.ci_low, row.ci_high, signed=True)
        below = f"{between} {row.verdict}, p {text.p_value(row.p_holm)}"
        return Cell(said, below, row.verdict in FOUND, difference)
    return Cell(text.NOTHING)


def _difference(rows: pd.DataFrame) -> Cell:
    if rows.empty:
        return Cell(text.NOTHING)
    row = rows.iloc[0]
    metric, difference = row["metric"], float(row["difference"])
    said = text.format_metric(metric, difference, signed=True)
    if row["decided_by"] != metric:
        return Cell(said, sort=difference)
    detectable = float(row["detectable"])
    verdict = row["verdict"]
    if verdict == TIE and not math.isnan(detectable):
        verdict += f", {text.format_metric(metric, detectable)}"
    p_holm, p_seeds = text.p_value(row["p_holm"]), text.p_value(row["p_seeds"])
    spread = f"({verdict}; {p_holm}; {p_seeds})"
    return Cell(said, spread, row["verdict"] in FOUND, difference)


def published(data: StudyData) -> Table | None:
    """Our results beside the published numbers."""

    def select(group: Group) -> pd.DataFrame:
        rows = pd.concat([data.tidy(group, "test"), data.tidy(group, "ood")])
        by, found = ("method", "calibrator", "metric"), rows[rows["published"].notna()]
        return data.in_order(found, data.order(group), by, metric=metric_names())[PUBLISHED_COLUMNS]

    return grouped(
        "published",
        "Ours beside published numbers",
        "Published numbers",
        data.groups,
        select,
        lambda group, rows: [section(data.label(group), rows, BESIDE)],
        lambda frame: (
            f"Our results on the {captions.test_split(data)} for which a paper has published a "
            f"number; {captions.seeds(frame)}. {captions.spread(data, frame)} Papers differ in "
            "splits, epochs, hyper-parameters and code; a number is found by the names of method "
            "and calibrator. Read an ECE together with accuracy, NLL and Brier score, which are "
            "in the other tables."
        ),
    )


def _value(row: pd.Series, value: float, spread: str = "", signed: bool = False) -> Cell:
    return Cell(text.format_metric(row["metric"], value, signed), spread, sort=float(value))
