"""Tables of mean ranks of methods and of calibrators over settings."""

import functools
import math
from collections.abc import Sequence

import pandas as pd

from calgrid.components.metrics import find_metric
from calgrid.report import text
from calgrid.report.selections import Kind, settings
from calgrid.report.study import UNCALIBRATED, StudyData
from calgrid.report.table import Cell, Columns, Table, number, section, whole, words
from calgrid.statistics import improvements, mean_ranks, wilcoxon_holm, win_rates

RANKED = ("accuracy", "nll", "brier", "ece_debiased", "ece")
TESTED = "nll"
IMPROVED = ("nll", "brier")


def method_ranks(data: StudyData) -> Table | None:
    """Mean ranks of methods over at least two settings."""
    baseline = data.baseline if data.baseline in data.methods else ""
    caption = (
        "Mean rank of the uncalibrated methods over settings (protocol, data set and backbone), 1 "
        "= best; means over seeds are ranked within each setting that has all methods. "
        f"{_test(baseline)}"
    )
    return _table(data, "method", baseline, caption)


def calibrator_ranks(data: StudyData) -> Table | None:
    """Mean ranks of calibrators over at least two settings."""
    caption = (
        "Mean rank of the calibrators over settings (protocol, data set, backbone and method), 1 "
        "= best; means over seeds are ranked within each setting that has all calibrators. "
        f"{_test('no calibration')} Settings that share a test set are not independent, so the "
        "p-values are too small."
    )
    return _table(data, "calibrator", UNCALIBRATED, caption)


def _test(reference: str) -> str:
    """End of the caption; without a reference nothing is tested."""
    tested = ""
    if reference:
        tested = (
            "The p-value is that of Wilcoxon's signed-rank test of the differences in NLL to "
            f"{reference} over settings, after Holm's correction; it can be below 0.05 only with 6 "
            "settings or more. PHI: 100 times the mean decrease of the loss against "
            f"{reference}, as in CalArena, ± 1.96 standard deviations over settings by the root of "
            "the number of data sets. "
        )
    return (
        f"All on the clean test split; of several tested checkpoints the first is used. {tested}"
        "Win rate: mean share of the others with a higher NLL in a setting, ties half; rating: "
        "Bradley-Terry on the Elo scale, mean 1000; brackets: 95 % bootstrap intervals over "
        "settings, which with few settings are too narrow. Mean ranks and win rates depend on "
        "what is compared. Critical-difference diagrams are drawn only for metrics whose mean "
        "ranks can differ by more than the critical difference."
    )


def _table(data: StudyData, kind: Kind, reference: str, caption: str) -> Table | None:
    own = (name for name in data.own_metrics if find_metric(name).lower_is_better is not None)
    metrics = [*RANKED, *own]
    frame = _compare(settings(data, kind, metrics), metrics, kind, reference)
    if frame is None:
        return None
    title, compared = f"Mean ranks of {kind}s over settings", f"{kind.capitalize()}s"
    columns: Columns = {
        kind.capitalize(): lambda row: words(row["name"]),
        "Settings": lambda row: whole(row["n_settings"]),
    }
    for column, lowest in frame.filter(regex="^rank_").min().items():
        heading = f"{text.name(str(column).removeprefix('rank_'))} rank ↓"
        columns[heading] = functools.partial(_rank, column=column, lowest=lowest)
    if reference:
        columns |= {
            f"NLL against {reference}: Holm p": lambda row: words(
                text.p_value(row.get("p_holm", math.nan))
            ),
            "NLL PHI ↑": lambda row: _improvement(row, "nll"),
            "Brier PHI ↑": lambda row: _improvement(row, "brier"),
        }
    columns |= {
        "NLL win rate (%) ↑": lambda row: _with_ends(row, "win_rate", 100),
        "NLL rating ↑": lambda row: _with_ends(row, "rating", 1),
    }
    of_all = f"{compared} over {frame['n_settings'].iloc[0]} settings"
    sections = [section(of_all, frame, columns)]
    return Table(f"{kind}_ranks", title, compared, caption, frame, sections)


def _compare(
    rows: pd.DataFrame, metrics: Sequence[str], kind: str, reference: str
) -> pd.DataFrame | None:
    if rows.empty:
        return None
    scores = {
        metric: part.pivot(index="setting", columns="name", values="mean")
        for metric, part in rows.groupby("metric")
    }
    complete = scores[TESTED].dropna()
    if min(complete.shape) < 2:
        return None
    ranks = {}
    for metric in metrics:
        if len(scores[metric].dropna()):
            lower = bool(find_metric(metric).lower_is_better)
            ranks[f"rank_{metric}"] = mean_ranks(scores[metric], lower_is_better=lower)
    table = pd.DataFrame(ranks)
    table["n_settings"] = len(complete)
    if reference in complete:
        table["p_holm"] = wilcoxon_holm(complete, reference)["p_holm"]
        datasets = rows.drop_duplicates("setting").set_index("setting")["dataset"].astype(str)
        for metric in IMPROVED:
            gains = improvements(scores[metric], reference, datasets)
            table = table.join(gains.add_suffix(f"_{metric}"))
    wins = win_rates(complete, lower_is_better=bool(find_metric(TESTED).lower_is_better))
    table = table.join(wins.set_index("name").drop(columns="n_settings"))
    table = table.sort_values([f"rank_{TESTED}", "rank_brier"]).rename_axis("name").reset_index()
    return table.assign(kind=kind, reference=reference)


def _rank(row: pd.Series, column: str, lowest: float) -> Cell:
    rank = float(row[column])
    return Cell(f"{rank:.2f}", bold=rank == lowest, sort=rank)


def _with_ends(row: pd.Series, name: str, factor: int) -> Cell:
    mean, ends = factor * float(row[name]), name.removesuffix("_rate")
    low, high = factor * row[f"{ends}_low"], factor * row[f"{ends}_high"]
    return Cell(f"{mean:.0f}", f"[{low:.0f}, {high:.0f}]", sort=mean)


def _improvement(row: pd.Series, metric: str) -> Cell:
    phi, reach = (float(row.get(f"phi_{part}{metric}", math.nan)) for part in ("", "reach_"))
    return number(phi, f"{phi:.2f}", f"± {reach:.2f}")
