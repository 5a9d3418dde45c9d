"""Tables of costs: seconds and memory of training, prediction and calibration, and of training from
random weights to the last checkpoint, first stage included.
"""

import pandas as pd

from calgrid.report import captions, text
from calgrid.report.study import UNCALIBRATED, StudyData
from calgrid.report.table import (
    Cell,
    Columns,
    Table,
    number,
    seconds_cell,
    section,
    whole,
    words,
)
from calgrid.storage.schema import SETTING

#: titles of stages after training, in the order of the table; others follow under their names
TITLES = {
    "predict": "prediction",
    "calibrate": "fits of calibrators",
    "probe": "probes",
}
#: stages whose seconds count as training
TRAINING = ("first_stage", "train")
#: stages with several items per run -> heading of their column
ITEMS = {"calibrate": "Calibrator", "probe": "Probe"}
KEYS = [*SETTING, "stage", "method", "item"]
RUNS = [*SETTING, "method"]
EPOCHS = ["first_stage_epochs", "own_epochs"]
NUMBERS = ["seconds", "peak_memory_mb", "threads", "epochs", "parameters"]
RUN_COLUMNS: Columns = {
    "Peak memory (MB)": lambda row: whole(row["peak_memory_mb"]),
    "Epochs": lambda row: whole(row["epochs"]),
    "Parameters": lambda row: whole(row["parameters"]),
    "Device": lambda row: words(
        f"{row['device_name'] or row['device']}, {text.count(int(row['threads']), 'thread')}"
    ),
}


def costs(data: StudyData) -> Table | None:
    """Seconds and peak memory by method and stage after training, and the ratio to the baseline."""
    frame = _means(data)
    if frame.empty:
        return None
    sections = []
    for (protocol, dataset, backbone, stage), rows in frame.groupby(
        [*SETTING, "stage"], sort=False
    ):
        title = TITLES.get(stage, stage)
        heading = f"{dataset}, {backbone}, protocol {protocol}: {title}"
        shown = {}  # columns with a value in at least one row
        for name, make in _columns(stage, data).items():
            if any(make(row).text != text.NOTHING for _, row in rows.iterrows()):
                shown[name] = make
        sections.append(section(heading, rows, shown))
    caption = (
        f"{captions.SECONDS} {captions.over_seeds(frame)} Peak memory is "
        "that of the GPU's allocator, or of the whole process on a CPU. The ratio is to "
        f"{data.baseline}, for the same stage and calibrator or probe; compare only runs on the "
        "same device."
    )
    return Table("costs", "Costs", "Costs", caption, frame, sections)


def _means(data: StudyData) -> pd.DataFrame:
    numbers = data.costs[NUMBERS].apply(pd.to_numeric)  # an empty column has no type in the file
    costs = data.costs.assign(item=data.costs["item"].fillna(""), **numbers)
    known = costs[
        costs["seconds"].notna()
        & (costs["item"] != UNCALIBRATED)
        & ~costs["stage"].isin((*TRAINING, "weights"))
    ]
    of_run = dict.fromkeys(NUMBERS, "mean") | {"device": "first", "device_name": "first"}
    runs = known.groupby([*KEYS, "seed"], sort=False).agg(of_run).reset_index()
    means = runs.groupby(KEYS, sort=False).agg(
        seconds=("seconds", "mean"),
        seconds_std=("seconds", "std"),
        peak_memory_mb=("peak_memory_mb", "max"),
        epochs=("epochs", "max"),
        parameters=("parameters", "max"),
        device=("device", text.distinct),
        device_name=("device_name", text.distinct),
        threads=("threads", "max"),
        n_seeds=("seed", "nunique"),
    )
    means = means.reset_index()
    same = [*SETTING, "stage", "item"]
    base = means.loc[means["method"] == data.baseline, [*same, "seconds"]]
    joined = means.merge(base, on=same, how="left", suffixes=("", "_base"))
    base_seconds = joined.pop("seconds_base")
    known_base = (base_seconds > 0) & (len(data.methods) > 1)
    joined["ratio_to_baseline"] = joined["seconds"] / base_seconds.where(known_base)
    stages = list(dict.fromkeys([*TITLES, *joined["stage"]]))
    return joined.sort_values(
        [*SETTING, "stage"],
        kind="stable",
        key=lambda column: column.map(stages.index) if column.name == "stage" else column,
    )


def _columns(stage: str, data: StudyData) -> Columns:
    names: Columns = {"Method": lambda row: words(row["method"])}
    if stage in ITEMS:
        names[ITEMS[stage]] = lambda row: words(row["item"])
    common: Columns = {
        "Seeds": lambda row: whole(row["n_seeds"]),
        "Seconds": lambda row: seconds_cell(row["seconds"], row["seconds_std"]),
        f"Ratio to {data.baseline}": _ratio,
    }
    if data.is_single:
        names.pop("Method")
        common = {"Seconds": common["Seconds"]}
    return {**names, **common, **({} if stage == "calibrate" else RUN_COLUMNS)}


def _ratio(row: pd.Series) -> Cell:
    return number(row["ratio_to_baseline"], f"{row['ratio_to_baseline']:.2f}")


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
        f"Ratio to {data.baseline}": _ratio,
        "Epochs": lambda row: words(
            " + ".join(row[EPOCHS].dropna().map("{:.0f}".format)) or text.NOTHING
        ),
        "Peak memory (MB)": lambda row: whole(row["peak_memory_mb"]),
        "Parameters": lambda row: whole(row["parameters"]),
        "Device": lambda row: words(row["device_name"]),
    }
    sections = [
        section(f"{dataset}, {backbone}, protocol {protocol}", rows, columns)
        for (protocol, dataset, backbone), rows in frame.groupby(list(SETTING), sort=False)
    ]
    caption = (
        f"{captions.SECONDS} {captions.over_seeds(frame)} The "
        "total of a second stage includes its first stage, which is trained once for all its "
        f"second stages. The ratio of totals to {data.baseline} is missing if the two ran on "
        "different devices. Memory is the maximum of both stages."
    )
    return Table("training_time", "Training time", "Costs", caption, frame, sections)


def totals(data: StudyData) -> pd.DataFrame:
    """One row per setting and method: seconds of each stage and in total, mean over seeds."""
    costs = data.costs[data.costs["stage"].isin(TRAINING)]
    if costs.empty:
        return pd.DataFrame(columns=[*RUNS, "seconds", "ratio_to_baseline"])
    costs = costs.assign(**costs[NUMBERS].apply(pd.to_numeric))
    runs = costs.pivot_table(
        index=[*RUNS, "seed"],
        columns="stage",
        values=["seconds", "epochs"],
        aggfunc="mean",
        sort=False,
    )
    seconds = runs["seconds"].reindex(columns=TRAINING)
    per_run = seconds.set_axis(["first_stage_seconds", "own_seconds"], axis=1)
    per_run["seconds"] = seconds.sum(axis=1)
    per_run[EPOCHS] = runs["epochs"].reindex(columns=TRAINING)
    grouped = per_run.groupby(RUNS, sort=False)
    others = costs.groupby(RUNS, sort=False)
    first_stages = costs[costs["stage"] == "first_stage"].groupby(RUNS, sort=False)
    frame = grouped.mean().assign(
        seconds_std=grouped["seconds"].std(),
        n_seeds=grouped.size(),
        peak_memory_mb=others["peak_memory_mb"].max(),
        parameters=others["parameters"].max(),
        device_name=others["device_name"].agg(text.distinct),
        first_stage=first_stages["item"].first(),
    )
    frame = frame.reset_index()
    base = frame.loc[frame["method"] == data.baseline, [*SETTING, "seconds", "device_name"]]
    joined = frame.merge(base, on=list(SETTING), how="left", suffixes=("", "_base"))
    same = (joined["device_name"] == joined["device_name_base"]) & (joined["device_name"] != "")
    ratio = (joined["seconds"] / joined["seconds_base"]).where(same & (joined["seconds_base"] > 0))
    return joined.assign(ratio_to_baseline=ratio).drop(columns=["seconds_base", "device_name_base"])
