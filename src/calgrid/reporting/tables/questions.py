"""Table of the comparisons that a study asks for: one row per question, with its verdict and the
numbers.
"""

from collections.abc import Sequence

import pandas as pd

from calgrid.reporting import captions, text
from calgrid.reporting.study import GROUP, Group, StudyData
from calgrid.reporting.table import Cell, Section, Table, by_group, whole, words
from calgrid.statistics import compare
from calgrid.storage.schema import METRICS as STORED

METRICS = ("nll", "brier", "ece_debiased", "ece", "aece", "accuracy")
CONSTANT = ["split", "shift", "severity"]
FOUND = ("lower", "higher")


def comparisons(data: StudyData) -> Table | None:
    """Answers to the questions in ``statistics.comparisons``, uncalibrated and with one calibrator."""
    if not data.comparisons:
        return None
    metrics = (*METRICS, *data.own_metrics)
    rows = data.rows(STORED, split="test", metric=metrics)
    rows = rows[rows["calibrator"].isin(data.few_calibrators())]
    answers = _in_order(data, metrics, compare(rows, data.comparisons, data.level))

    def sections(group: Group, rows: pd.DataFrame) -> list[Section]:
        header = ["Question", "Method", "Against", "Calibrator", "Seeds", "Answer"]
        header += [f"Δ {text.in_unit(metric)} ± noise, interval (p; Holm)" for metric in metrics]
        keys = ["question", "method", "against", "calibrator", "fit_on"]
        return [
            Section(
                data.label(group),
                header,
                [_row(metrics, part) for _, part in rows.groupby(keys, sort=False)],
            )
        ]

    frame, formatted = by_group(
        data, lambda group: data.select(answers, group).drop(columns=GROUP), sections
    )
    if frame.empty:
        return None
    return Table(
        "comparisons", "Questions of the study", "Methods", _caption(data, frame), frame, formatted
    )


def _in_order(data: StudyData, metrics: Sequence[str], answers: pd.DataFrame) -> pd.DataFrame:
    """Sort answers by question as in the configuration, then by calibrator and metric as shown."""
    orders = {"calibrator": data.calibrators.index, "metric": metrics.index}
    asked = answers.groupby(["question", "method", "against"], sort=False).ngroup()
    places = answers.assign(
        question=asked, **{key: answers[key].map(place) for key, place in orders.items()}
    )
    order = places.sort_values(["question", "calibrator", "metric"], kind="stable").index
    return answers.loc[order].drop(columns=CONSTANT)


def _caption(data: StudyData, frame: pd.DataFrame) -> str:
    return (
        "Differences (method minus the method it is compared with, same calibrator) on the "
        f"{captions.test_split(data)}, paired over seeds; {captions.seeds(frame)}. ± is the "
        f"standard deviation of the "
        f"difference over seeds, the noise of a single run; brackets: {100 * data.level:g} % "
        f"Student t interval of the "
        "mean difference; parentheses: p-value of the paired t-test, and p-value after Holm's "
        "correction for all "
        "questions with the same metric and calibrator. Bold: significant differences (Holm p "
        "below "
        f"{1 - data.level:.2g}), called lower or higher in the answer. 'equal': a difference below "
        f"0.00001, due to "
        "rounding. 'tie': no significant difference, which is no evidence of equality; the "
        "interval shows which "
        f"differences remain possible. {captions.TESTED} Read differences of ECE together with "
        f"NLL, Brier score and "
        "accuracy."
    )


def _row(metrics: Sequence[str], rows: pd.DataFrame) -> list[Cell]:
    by_metric = {row["metric"]: row for _, row in rows.iterrows()}
    head = rows.iloc[0]
    return [
        *(words(head[name]) for name in ("question", "method", "against", "calibrator")),
        whole(rows["n_seeds"].max()),
        words(_answer(rows)),
        *(
            _difference(by_metric[metric]) if metric in by_metric else Cell(text.NOTHING)
            for metric in metrics
        ),
    ]


def _answer(rows: pd.DataFrame) -> str:
    """Verdicts of all metrics in one phrase: significant differences first, then metrics with the
    same verdict.
    """
    found = rows[rows["verdict"].isin(FOUND)]
    said = [
        f"{row['verdict']} {text.name(row['metric'])} (Holm p {text.p_value(row['p_holm'])})"
        for _, row in found.iterrows()
    ]
    others = rows[~rows["verdict"].isin(FOUND)]
    for verdict, part in others.groupby("verdict", sort=False):
        where = (
            f" in {text.listed([text.name(metric) for metric in part['metric']])}"
            if len(part) < len(rows)
            else ""
        )
        said.append(verdict + where)
    return "; ".join(said)


def _difference(row: pd.Series) -> Cell:
    metric, difference = row["metric"], float(row["difference"])
    std, low, high = (
        text.format_metric(metric, row[name], name != "std")
        for name in ("std", "ci_low", "ci_high")
    )
    p, holm = (text.p_value(row[name]) for name in ("p_value", "p_holm"))
    spread = f"± {std} [{low}, {high}] ({p}; {holm})" if row["n_seeds"] > 1 else ""
    return Cell(
        text.format_metric(metric, difference, signed=True),
        spread,
        row["verdict"] in FOUND,
        difference,
    )
