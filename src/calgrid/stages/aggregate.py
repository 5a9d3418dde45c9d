"""Stage ``aggregate``: all runs of a study in ``metrics.parquet``, ``summary.parquet`` and ``costs.parquet``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from calgrid.progress import Progress
from calgrid.stages.calibrate import COLUMNS
from calgrid.statistics import summarise
from calgrid.storage.atomic import read_json
from calgrid.storage.stage import run_stage
from calgrid.storage.tables import read_frame, read_published, write_frame

OUTPUTS = ("metrics.parquet", "summary.parquet", "costs.parquet")
KEY = ["protocol", "dataset", "backbone", "method", "seed"]
COSTS = ["stage", "item", "seconds", "peak_memory_mb", "device", "device_name", "threads", "epochs", "parameters"]


def aggregate(manifest_path: Path, out: Path) -> bool:
    """Collect the parts that the manifest lists, each checked against its expected fingerprint.

    Raises
    ------
    StateError : a part was made with another configuration or code version.
    DataError : a part is missing or damaged.
    """
    manifest = read_json(manifest_path, "manifest")

    def produce(folder: Path) -> None:
        parts, costs = [], []
        with Progress("aggregate", len(manifest["runs"]), "run") as progress:
            for run in manifest["runs"]:
                path = Path(run["part"], "metrics.parquet")
                parts.append(read_frame(path, "metrics file", fingerprint=run["fingerprint"]))
                costs.extend(_costs(run))
                progress.advance()
        metrics = pd.concat(parts, ignore_index=True).astype(COLUMNS)
        statistics = manifest["statistics"]
        summary = summarise(
            metrics,
            baseline_method=statistics["baseline"],
            published=read_published(manifest["published"]) if manifest["published"] else None,
            level=statistics["level"],
        )
        write_frame(folder / "metrics.parquet", metrics)
        write_frame(folder / "summary.parquet", summary)
        write_frame(folder / "costs.parquet", pd.DataFrame(costs, columns=[*KEY, *COSTS]))

    return run_stage(out, "aggregate", manifest["fingerprint"], OUTPUTS, produce)


def _costs(run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of what a run cost: its first stage, training, prediction, each probe, and each fit of a calibrator."""
    key, first = run["key"], run["first_stage"]
    if first is not None:
        yield {**key, "stage": "first_stage", "item": first["method"], **_stage_cost(first["run"], "train")}
    if not run["external"]:
        yield {**key, "stage": _stage_of_training(run["run"]), "item": "", **_stage_cost(run["run"], "train")}
        yield {**key, "stage": "predict", "item": "", **_stage_cost(run["run"], "predict")}
    for probe in run.get("probes", ()):
        yield {**key, "stage": "probe", "item": probe["name"], **_stage_cost(run["run"], f"probes/{probe['name']}")}
    calibration = read_json(Path(run["part"], "calibrate.json"), "calibration record")
    for fit in calibration["fits"]:
        yield {**key, "stage": "calibrate", "item": fit["calibrator"], "seconds": fit["seconds"], "device": "cpu"}


def _stage_of_training(run: str) -> str:
    """Return ``train``, or ``weights`` where they were taken as they are, which says nothing of what training costs."""
    return "weights" if "weights" in read_json(Path(run, "train.json"), "train record") else "train"


def _stage_cost(run: str, stage: str) -> dict[str, Any]:
    record = read_json(Path(run, f"{stage}.json"), f"{stage} record")
    environment = record["environment"]
    return {
        "seconds": record["seconds"],
        "peak_memory_mb": record["peak_memory_mb"],
        **{name: environment[name] for name in ("device", "device_name", "threads")},
        "epochs": record.get("epochs"),
        "parameters": record.get("parameters"),
    }
