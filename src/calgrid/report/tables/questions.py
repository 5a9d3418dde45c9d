"""Table of the comparisons that a study asks for: one row per question, with its verdict and the
numbers.
"""

from collections.abc import Sequence

import pandas as pd

from calgrid.report import captions, text
from calgrid.report.study import GROUP, Group, StudyData
from calgrid.report.table import Cell, Section, Table, grouped, whole, words
from calgrid.statistics.pairs import answers
from calgrid.statistics.verdicts import BETTER, EQUIVALENT, FOUND, NO_VERDICT, TIE, WORSE

METRICS = (
    "nll",
    "nll_calibration",
    "brier",
    "squared_ce",
    "accuracy",
    "ece_debiased",
    "ece",
    "aece_eq",
)
CONSTANT = ["split", "shift", "severity"]
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


def comparisons(data: StudyData) -> Table | None:
    """Answers to the questions in ``statistics.comparisons``; those about methods uncalibrated and
    with one calibrator.
    """
    if not data.comparisons:
        return None
    metrics = (*METRICS, *data.own_metrics)
    found = answers(data.tests[data.tests["split"] == "test"], data.comparisons)
    of_calibrators = found["method"] == found["against"]
    shown = of_calibrators | found["calibrator"].isin(data.few_calibrators())
    told = data.in_order(
        found[shown & found["metric"].isin(metrics)],
        data.methods,
        by=("question", "method", "calibrator", "metric"),
        question=[each["question"] for each in data.comparisons],
        metric=metrics,
    ).drop(columns=CONSTANT)

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
        cells.append(Cell(text.NOTHING) if part.empty else _difference(part.iloc[0]))
    return cells


def _answer(rows: pd.DataFrame) -> str:
    """Verdicts of all metrics that have their own in one phrase: differences with their intervals
    first, then ties with the difference that is detectable.
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


def _difference(row: pd.Series) -> Cell:
    metric, difference = row["metric"], float(row["difference"])
    std = text.format_metric(metric, row["std_seed"])
    between = text.interval(metric, row["ci_low"], row["ci_high"], signed=True)
    deviation = "" if text.is_square(metric) else f"± {std} "
    spread = deviation + between if row["n_seeds"] > 1 else ""
    found = row["verdict"] in FOUND and row["decided_by"] == metric
    if spread and row["decided_by"] == metric:
        spread += f" ({text.p_value(row['p_holm'])}; {text.p_value(row['p_seeds'])})"
    return Cell(text.format_metric(metric, difference, signed=True), spread, found, difference)
