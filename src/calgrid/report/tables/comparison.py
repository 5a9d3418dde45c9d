"""Tables of comparisons: answers to the questions of a study, verdicts against the baseline method,
each method against each other, and our results beside published numbers.
"""

import math
from collections.abc import Callable, Sequence

import pandas as pd

from calgrid.components.metrics import metric_names
from calgrid.report import captions, text
from calgrid.report.study import GROUP, STATISTICS, Group, StudyData, among, calibrated
from calgrid.report.table import Cell, Columns, Section, Table, grouped, section, whole, words
from calgrid.report.tables.shift import condition
from calgrid.statistics.pairs import FEW_METHODS, QUESTIONS, RECIPES_BY, answers
from calgrid.statistics.verdicts import BETTER, EQUIVALENT, FOUND, NO_VERDICT, TIE, WORSE
from calgrid.storage.schema import TEST_COLUMNS

TESTED = ("accuracy", "nll", "nll_calibration", "brier", "squared_ce", "ece_debiased", "ece")
NAMES = ["method", "calibrator", "fit_on"]
PLACE = ["split", "shift", "severity"]
#: columns of the tests beside those of a group
COLUMNS = [name for name in TEST_COLUMNS if name not in GROUP]
PUBLISHED_COLUMNS = [*NAMES, "split", "shift", "metric", *STATISTICS, "n_seeds"]
PUBLISHED_COLUMNS += ["published", "published_source"]
#: metrics of the answers to questions
ANSWERED = (
    "nll",
    "nll_calibration",
    "brier",
    "squared_ce",
    "accuracy",
    "ece_debiased",
    "ece",
    "aece_eq",
)
ID = "comparisons"
#: verdict -> begin of an answer, in this order
WRITTEN = {
    BETTER: "better:",
    WORSE: "worse:",
    TIE: "no difference found in",
    EQUIVALENT: "equivalent:",
    NO_VERDICT: "no verdict on",
}
WORDS = ("Question", "Method", "Calibrator", "Against", "Seeds", "Answer")
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


def comparisons(data: StudyData) -> Table | None:
    """Answers to the questions in ``statistics.comparisons``; those about methods uncalibrated and
    with one calibrator.
    """
    if not data.comparisons:
        return None
    metrics = (*ANSWERED, *data.own_metrics)
    found = answers(data.tests[data.tests["split"] == "test"], data.comparisons)
    of_calibrators = found["method"] == found["against"]
    shown = of_calibrators | found["calibrator"].isin(data.few_calibrators())
    told = data.in_order(
        found[shown & found["metric"].isin(metrics)],
        data.methods,
        by=("question", "method", "calibrator", "metric"),
        question=[each["question"] for each in data.comparisons],
        metric=metrics,
    ).drop(columns=PLACE)

    def sections(group: Group, rows: pd.DataFrame) -> list[Section]:
        header = [*WORDS, *(f"Δ {text.in_unit(metric)}" for metric in metrics)]
        keys = ["question", "method", "calibrator", "fit_on", "against", "against_calibrator"]
        cells = [_row(metrics, part) for _, part in rows.groupby(keys, sort=False)]
        return [Section(data.label(group), header, cells)]

    return grouped(
        ID,
        "Questions of the study",
        "Methods",
        data.groups,
        lambda group: data.select(told, group).drop(columns=GROUP),
        sections,
        lambda frame: (
            "Differences (method minus the method it is compared with, same calibrator; or "
            "calibrator minus the calibrator it is compared with, same method) on the "
            f"{captions.test_split(data)}, paired over seeds; {captions.seeds(frame)}. ± is the "
            "standard deviation of the difference over seeds, the noise of a single run; brackets: "
            f"{100 * data.level:g} % interval of the mean difference over seeds and test images "
            "(of errors without a verdict over seeds alone); parentheses: p-value after Holm's "
            "correction for all questions about methods with the same metric and calibrator, or "
            "all answers about calibrators with the same metric, and p-value of the t-test over "
            "seeds alone, which holds on these images only. Bold: better or worse. "
            f"{captions.TESTED}"
        ),
    )


def _row(metrics: Sequence[str], rows: pd.DataFrame) -> list[Cell]:
    first = rows.iloc[0]
    sides = "method", "against", "against_calibrator"
    method, against, calibrator = first[list(sides)]
    named = [first["question"], method, first["calibrator"]]
    named.append(calibrator if method == against else against)
    cells = [*map(words, named), whole(rows["n_seeds"].max()), words(_answer(rows))]
    for metric in metrics:
        part = rows[rows["metric"] == metric]
        cells.append(_difference(part, _of_question))
    return cells


def _answer(rows: pd.DataFrame) -> str:
    """Verdicts of all self-deciding metrics in one phrase: differences with their intervals first,
    then ties with their detectable difference.
    """
    rows = rows[rows["metric"] == rows["decided_by"]]
    if (rows["verdict"] == NO_VERDICT).all():
        return NO_VERDICT
    cases: dict[str, list[str]] = {verdict: [] for verdict in WRITTEN}
    for row in rows.itertuples():
        shown = text.name(row.metric)
        if row.verdict in FOUND:
            shown += f" {text.difference(row.metric, row.difference, row.ci_low, row.ci_high)}"
        elif row.verdict == TIE:
            also = "" if cases[TIE] else "detectable: "
            shown += f" ({also}{text.size(row.metric, row.detectable)})"
        elif row.verdict == NO_VERDICT and (why := text.untested(row.metric, row.std_test)):
            shown += f" ({why})"
        cases[row.verdict].append(shown)
    said = [f"{WRITTEN[verdict]} {text.listed(names)}" for verdict, names in cases.items() if names]
    return "; ".join(said)


def tests(data: StudyData) -> Table | None:
    """Tests of all pairs; shown: methods against the baseline, on clean images and under shift."""
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
                line += [
                    _difference(own[own["metric"] == metric], _of_baseline) for metric in metrics
                ]
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
    """NLL of each method minus each other one's, with the same calibrator."""
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
                own = part[part["method"] == method]
                cells = (_difference(own[own["against"] == name], _of_two) for name in names)
                lines.append([words(method), *cells])
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


def _difference(rows: pd.DataFrame, beside: Callable[[pd.Series], str]) -> Cell:
    """Cell of the difference of one pair and metric, in bold if it has its own verdict, followed by
    the text ``beside``.
    """
    if rows.empty:
        return Cell(text.NOTHING)
    row = rows.iloc[0]
    metric, difference = row["metric"], float(row["difference"])
    said = text.format_metric(metric, difference, signed=True)
    found = row["verdict"] in FOUND and row["decided_by"] == metric
    return Cell(said, beside(row), found, difference)


def _of_two(row: pd.Series) -> str:
    """Interval, verdict and p-value."""
    between = text.interval(row["metric"], row["ci_low"], row["ci_high"], signed=True)
    return f"{between} {row['verdict']}, p {text.p_value(row['p_holm'])}"


def _of_question(row: pd.Series) -> str:
    """Deviation over seeds, interval and, with its own verdict, p-values; empty for one seed."""
    if row["n_seeds"] < 2:
        return ""
    metric = row["metric"]
    spread = text.interval(metric, row["ci_low"], row["ci_high"], signed=True)
    if not text.is_square(metric):
        spread = f"± {text.format_metric(metric, row['std_seed'])} {spread}"
    if spread and row["decided_by"] == metric:
        spread += f" ({text.p_value(row['p_holm'])}; {text.p_value(row['p_seeds'])})"
    return spread


def _of_baseline(row: pd.Series) -> str:
    """Verdict and p-values of a metric with its own verdict."""
    if row["decided_by"] != row["metric"]:
        return ""
    verdict, detectable = row["verdict"], float(row["detectable"])
    if verdict == TIE and not math.isnan(detectable):
        verdict += f", {text.format_metric(row['metric'], detectable)}"
    return f"({verdict}; {text.p_value(row['p_holm'])}; {text.p_value(row['p_seeds'])})"


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
