"""Table of costs: seconds and memory of training, prediction and calibration."""

import pandas as pd

from calgrid.report import captions, text
from calgrid.report.study import UNCALIBRATED, StudyData
from calgrid.report.table import Columns, Table, number, seconds_cell, section, whole, words
from calgrid.storage.schema import SETTING

TITLES = {
    "train": "training",
    "predict": "prediction",
    "calibrate": "fits of calibrators",
    "probe": "probes",
}
#: stages with several items per run -> heading of their column
ITEMS = {"calibrate": "Calibrator", "probe": "Probe"}
KEYS = [*SETTING, "stage", "method", "item"]
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
    """Seconds and peak memory by method and stage, and the ratio to the baseline."""
    frame = _means(data)
    if frame.empty:
        return None
    sections = []
    for (protocol, dataset, backbone, stage), rows in frame.groupby(
        [*SETTING, "stage"], sort=False
    ):
        heading = f"{dataset}, {backbone}, protocol {protocol}: {TITLES[stage]}"
        shown = {}  # columns with a value in at least one row
        for name, make in _columns(stage, data).items():
            if any(make(row).text != text.NOTHING for _, row in rows.iterrows()):
                shown[name] = make
        sections.append(section(heading, rows, shown))
    caption = (
        f"{captions.SECONDS} {captions.over_seeds(frame)} Peak memory is "
        "that of the GPU's allocator, or of the whole process on a CPU. Numbers of a second stage "
        "exclude its first stage, which the table of training time includes. The ratio is to "
        f"{data.baseline}, for the same stage and calibrator or probe; compare only runs on the "
        "same device."
    )
    return Table("costs", "Costs", "Costs", caption, frame, sections)


def _means(data: StudyData) -> pd.DataFrame:
    numbers = data.costs[NUMBERS].apply(pd.to_numeric)  # an empty column has no type in the file
    costs = data.costs.assign(item=data.costs["item"].fillna(""), **numbers)
    known = costs[
        costs["seconds"].notna() & (costs["item"] != UNCALIBRATED) & costs["stage"].isin(TITLES)
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
    stage = joined["stage"].map(list(TITLES).index)
    joined["ratio_to_baseline"] = joined["seconds"] / base_seconds.where(known_base)
    order = joined.assign(stage=stage).sort_values([*SETTING, "stage"], kind="stable").index
    return joined.loc[order]


def _columns(stage: str, data: StudyData) -> Columns:
    names: Columns = {"Method": lambda row: words(row["method"])}
    if stage in ITEMS:
        names[ITEMS[stage]] = lambda row: words(row["item"])
    common: Columns = {
        "Seeds": lambda row: whole(row["n_seeds"]),
        "Seconds": lambda row: seconds_cell(row["seconds"], row["seconds_std"]),
        f"Ratio to {data.baseline}": lambda row: number(
            row["ratio_to_baseline"], f"{row['ratio_to_baseline']:.2f}"
        ),
    }
    if data.is_single:
        names.pop("Method")
        common = {"Seconds": common["Seconds"]}
    return {**names, **common, **({} if stage == "calibrate" else RUN_COLUMNS)}
