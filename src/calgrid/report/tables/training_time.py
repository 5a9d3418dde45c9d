"""Table of training time from random weights to the last checkpoint, first stage included."""

import pandas as pd

from calgrid.report import captions, text
from calgrid.report.study import StudyData
from calgrid.report.table import Columns, Table, number, seconds_cell, section, whole, words
from calgrid.storage.schema import SETTING

KEYS = [*SETTING, "method"]
STAGES = ("first_stage", "train")


def training_time(data: StudyData) -> Table | None:
    """Seconds of all stages of training by method, and their ratio to the baseline (MaC-Cal, Table
    4).
    """
    frame = totals(data)
    if frame.empty:
        return None
    columns: Columns = {
        "Method": lambda row: words(row["method"]),
        "First stage": lambda row: words(
            row["first_stage"] if isinstance(row["first_stage"], str) else text.NOTHING
        ),
        "Seeds": lambda row: whole(row["n_seeds"]),
        "First stage (s)": lambda row: seconds_cell(row["first_stage_seconds"]),
        "Own (s)": lambda row: seconds_cell(row["own_seconds"]),
        "Total (s)": lambda row: seconds_cell(row["seconds"], row["seconds_std"]),
        f"Ratio to {data.baseline}": lambda row: number(
            row["ratio_to_baseline"], f"{row['ratio_to_baseline']:.2f}"
        ),
        "Epochs": lambda row: words(_epochs(row) or text.NOTHING),
        "Peak memory (MB)": lambda row: whole(row["peak_memory_mb"]),
        "Device": lambda row: words(row["device_name"]),
    }
    sections = []
    for (protocol, dataset, backbone), rows in frame.groupby(list(SETTING), sort=False):
        sections.append(section(f"{dataset}, {backbone}, protocol {protocol}", rows, columns))
    caption = (
        f"{captions.SECONDS} {captions.over_seeds(frame)} The "
        "total of a second stage includes its first stage, which is trained once for all its "
        f"second stages. The ratio of totals to {data.baseline} is missing if the two ran on "
        "different devices. Memory is the maximum of both stages."
    )
    return Table("training_time", "Training time", "Costs", caption, frame, sections)


def totals(data: StudyData) -> pd.DataFrame:
    """One row per setting and method: seconds of each stage and in total, mean over seeds."""
    costs = data.costs[data.costs["stage"].isin(STAGES)]
    if costs.empty:
        return pd.DataFrame(columns=[*KEYS, "seconds", "ratio_to_baseline"])
    costs = costs.assign(**costs[["seconds", "peak_memory_mb", "epochs"]].apply(pd.to_numeric))
    runs = costs.pivot_table(
        index=[*KEYS, "seed"],
        columns="stage",
        values=["seconds", "epochs"],
        aggfunc="mean",
        sort=False,
    )
    seconds = runs["seconds"].reindex(columns=STAGES)
    per_run = seconds.set_axis(["first_stage_seconds", "own_seconds"], axis=1)
    per_run["seconds"] = seconds.sum(axis=1)
    per_run[["first_stage_epochs", "own_epochs"]] = runs["epochs"].reindex(columns=STAGES)
    grouped = per_run.groupby(KEYS, sort=False)
    others = costs.groupby(KEYS, sort=False)
    first_stages = costs[costs["stage"] == "first_stage"].groupby(KEYS, sort=False)
    frame = grouped.mean().assign(
        seconds_std=grouped["seconds"].std(),
        n_seeds=grouped.size(),
        peak_memory_mb=others["peak_memory_mb"].max(),
        device_name=others["device_name"].agg(text.distinct),
        first_stage=first_stages["item"].first(),
    )
    frame = frame.reset_index()
    base = frame.loc[frame["method"] == data.baseline, [*SETTING, "seconds", "device_name"]]
    joined = frame.merge(base, on=list(SETTING), how="left", suffixes=("", "_base"))
    same = (joined["device_name"] == joined["device_name_base"]) & (joined["device_name"] != "")
    ratio = (joined["seconds"] / joined["seconds_base"]).where(same & (joined["seconds_base"] > 0))
    return joined.assign(ratio_to_baseline=ratio).drop(columns=["seconds_base", "device_name_base"])


def _epochs(row: pd.Series) -> str:
    epochs = row[["first_stage_epochs", "own_epochs"]].dropna()
    return " + ".join(epochs.map("{:.0f}".format))
