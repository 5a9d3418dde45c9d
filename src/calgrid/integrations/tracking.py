"""A finished study for other tools: CSV, MLflow (SQLite) and Weights & Biases (offline runs).

Each run of the study is one run of the tool: its key and the options of its training are
parameters, its history are values by epoch, and its results are final values named
``checkpoint/calibrator/split/metric``, with ``fit_on`` after the calibrator where it is not val,
and the name of the set after ``ood`` and ``shift``. Fits with several seeds are averaged; of
corruptions there is the mean over all (``shift/mean``). CSV has every number, and alone the
conformal sets.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from tqdm import tqdm

from calgrid.reporting.study import StudyData
from calgrid.storage.atomic import replacing
from calgrid.storage.layout import RunKey
from calgrid.storage.schema import HISTORIES, RUN_KEY, SHIFT_MEANS, STUDY_FILES
from calgrid.storage.tables import with_words

#: metrics in one request to MLflow
BATCH = 1000
#: where MLflow would keep files of runs, which these have not; a folder would be stored as its
#: full path
ARTIFACTS = "mlflow-artifacts:/"
#: seconds before a bar of progress appears
SILENT_SECONDS = 1
#: columns that name a result of a run
PLACE = ("checkpoint", "calibrator", "fit_on", "split", "shift", "metric")


@dataclass(frozen=True)
class TrackedRun:
    """A run of a study as tools for tracking experiments see it.

    Attributes
    ----------
    parameters : key, fingerprint, and options ``loss.NAME`` and ``procedure.NAME`` of the training.
    results : final values by name. history : values by name, for each epoch from 1.
    """

    key: RunKey
    parameters: Mapping[str, Any]
    results: Mapping[str, float]
    history: Mapping[int, Mapping[str, float]]


def tracked_runs(data: StudyData) -> Iterator[TrackedRun]:
    """All runs of a study, in its order.

    Raises
    ------
    DataError : a file is missing or damaged.
    """
    histories = data.rows(HISTORIES)
    for run in data.manifest["runs"]:
        key = RunKey(**run["key"])
        where = key._asdict()
        means = data.rows(SHIFT_MEANS, **where, severity=-1)
        unshifted = data.rows("metrics.parquet", **where, severity=0)
        history = histories[(histories[list(RUN_KEY)] == list(key)).all(axis=1)]
        facts = data.facts(run)
        options = {}
        for part in ("loss", "procedure"):
            for name, value in facts.get(part, {}).get("options", {}).items():
                options[f"{part}.{name}"] = value
        results = {}
        by_place = pd.concat([unshifted, means]).groupby(list(PLACE), observed=True, sort=False)
        for place, value in by_place["value"].mean().dropna().items():
            results[_name(dict(zip(PLACE, place, strict=True)))] = value
        yield TrackedRun(
            key,
            {**where, "fingerprint": run["fingerprint"], **options},
            results,
            {int(row["epoch"]) + 1: _values(row) for _, row in history.iterrows()},
        )


def _with_progress(data: StudyData) -> Iterator[TrackedRun]:
    """All runs of a study, with a bar in a terminal."""
    count = len(data.manifest["runs"])
    yield from tqdm(
        tracked_runs(data), "export", count, leave=False, disable=None, delay=SILENT_SECONDS
    )


def _name(place: Mapping[str, str]) -> str:
    fit_on = "" if place["fit_on"] == "val" else place["fit_on"]
    shift = place["shift"].removeprefix("ood/")
    parts = (place["checkpoint"], place["calibrator"], fit_on, place["split"], shift)
    return "/".join(part for part in (*parts, place["metric"]) if part)


def _values(row: pd.Series) -> dict[str, float]:
    """Numbers of an epoch that were measured."""
    measured = row.drop([*RUN_KEY, "epoch"]).dropna()
    return {str(name): float(value) for name, value in measured.items()}


def write_csv(data: StudyData, folder: Path) -> int:
    """Write each Parquet file of a study as CSV, except that of resamples, whose cells are lists.

    Returns the number of files. Numbers have all digits; missing ones are empty.
    """
    written = 0
    for name in STUDY_FILES:
        if not name.endswith(".parquet"):
            continue
        table = with_words(pq.read_table(data.verified(name)), encoded=False)
        if not any(pa.types.is_list(column.type) for column in table.schema):
            with replacing(Path(folder, name).with_suffix(".csv")) as temporary:
                csv.write_csv(table, temporary)
            written += 1
    return written


def write_mlflow(data: StudyData, path: Path) -> int:
    """Write an SQLite file for ``mlflow ui --backend-store-uri sqlite:///FILE``; return its runs.

    The study is an experiment.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.entities import Metric, Param  # noqa: PLC0415  (an extra)
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # noqa: PLC0415
    from mlflow.tracking import MlflowClient  # noqa: PLC0415

    for name in ("mlflow", "alembic"):  # on the making of tables
        logging.getLogger(name).setLevel(logging.WARNING)
    count = 0
    with replacing(path) as temporary:
        address = f"sqlite:///{temporary.resolve()}"
        SqlAlchemyStore(address, ARTIFACTS)  # makes the default experiment
        client = MlflowClient(address)
        experiment = client.create_experiment(
            data.manifest["configuration"]["study"], artifact_location=ARTIFACTS
        )
        now = int(time.time() * 1000)
        for run in _with_progress(data):
            made = client.create_run(experiment, now, run_name=run.key.path).info.run_id
            values = [Metric(name, value, now, 0) for name, value in run.results.items()]
            for epoch, row in run.history.items():
                values += [Metric(name, value, now, epoch) for name, value in row.items()]
            parameters = [Param(name, str(value)) for name, value in run.parameters.items()]
            client.log_batch(made, params=parameters)
            for start in range(0, len(values), BATCH):
                client.log_batch(made, metrics=values[start : start + BATCH])
            client.set_terminated(made)
            count += 1
    return count


def write_wandb(data: StudyData, folder: Path) -> int:
    """Write a folder for ``wandb sync FOLDER/wandb/offline-run-*``; return its number of runs.

    The study is a project. The fingerprint of a run is its id, so a second upload replaces the
    first. Nothing is sent, and neither this machine nor its packages are described.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb  # noqa: PLC0415  (an extra)

    settings = wandb.Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        host="",
        silent=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    count = 0
    folder.mkdir(parents=True, exist_ok=True)
    for tracked in _with_progress(data):
        with wandb.init(
            project=data.manifest["configuration"]["study"],
            name=tracked.key.path,
            id=tracked.parameters["fingerprint"],
            config=dict(tracked.parameters),
            dir=folder,
            mode="offline",
            settings=settings,
        ) as run:
            for epoch, row in tracked.history.items():
                run.log(row, step=epoch)
            run.summary.update(tracked.results)
        count += 1
    wandb.teardown()  # until then its service may still write
    return count
