"""Selections of the rows of a study, shared by tables and figures: settings to compare methods or
calibrators in, data sets with different validation rows, training histories and samples, results of
probes, and runs retrained under masks.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from calgrid.report import text
from calgrid.report.study import UNCALIBRATED, Group, StudyData
from calgrid.storage.manifest import FirstStageRun
from calgrid.storage.schema import HISTORIES, PROBES, SAMPLES, SETTING
from calgrid.storage.specs import Key

Kind = Literal["method", "calibrator"]
#: the procedure that retrains a head under masks
MASKING = "maccal"


def settings(data: StudyData, kind: Kind, metrics: Collection[str]) -> pd.DataFrame:
    """Tidy means of metrics on the clean test split, with the columns ``setting`` and ``name``
    (method or calibrator).

    For methods, a setting is a protocol, data set and backbone, without calibration; for
    calibrators, it also has a method. Of several checkpoints only the first is used.
    """
    parts = []
    for group in data.settings:
        rows = data.tidy(group, "test", [UNCALIBRATED] if kind == "method" else None)
        where = "/".join(group) if kind == "method" else "/".join(group) + "/" + rows["method"]
        parts.append(rows[rows["metric"].isin(metrics)].assign(setting=where, name=rows[kind]))
    return pd.concat(parts)


def val_rows(data: StudyData, group: Group) -> tuple[str, float]:
    """Data set of a group and its number of validation rows, infinity if it is not limited.

    Data sets made by the key ``val_rows`` of an external import are named ``{data set}_n{rows}``.
    """
    found = re.fullmatch(r"(.+)_n(\d+)", group.dataset)
    if found is None or not all(run["external"] for run in data.runs(group)):
        return group.dataset, math.inf
    return found[1], int(found[2])


def on_most_rows(data: StudyData, group: Group) -> bool:
    """Whether no other group differs only in having more validation rows."""
    dataset, rows = val_rows(data, group)
    alike = [other for other in data.groups if other._replace(dataset=group.dataset) == group]
    others = [val_rows(data, other) for other in alike]
    return not any(name == dataset and more > rows for name, more in others)


def histories(data: StudyData, group: Group, column: str = "epoch") -> pd.DataFrame:
    """Histories of the runs of a group, one row per epoch, counted from 1; external runs have none.

    Parameters
    ----------
    column : selects runs with at least one value in this column; every run has ``epoch``.
    """
    rows = _of_setting(data, HISTORIES, group)
    if column not in rows:
        return rows.iloc[:0]
    measured = rows.groupby(["method", "seed"])[column].transform("count") > 0
    return rows[measured].assign(epoch=rows["epoch"] + 1)


def last_samples(data: StudyData, group: Group) -> pd.DataFrame:
    """Training samples of the last sampled epoch of each run that wrote some, sorted by run and
    index.
    """
    rows = _of_setting(data, SAMPLES, group)
    return data.in_order(rows, data.methods, by=("method",))


def sampled_epochs(samples: pd.DataFrame) -> str:
    """Epochs of training samples, counted from 1, for captions: ``5 and 6``."""
    epochs = np.unique(samples["epoch"].astype(int)) + 1
    return text.listed(list(map(str, epochs)))


def loss_options(data: StudyData, group: Group, method: str) -> Mapping[str, Any]:
    """Options of the loss with which a method of a group was trained; empty for an external run."""
    for run in data.runs(group):
        if run["key"]["method"] == method:
            return data.facts(run).get("loss", {}).get("options", {})
    return {}


def _of_setting(data: StudyData, name: str, group: Group) -> pd.DataFrame:
    return data.rows(name, **dict(zip(SETTING, group, strict=False)))


def probed(data: StudyData, group: Group, id: str, options: Sequence[str] = ()) -> pd.DataFrame:
    """Results of a probe at the checkpoint of a group, for all methods and seeds, methods in the
    order of the study.

    Returns the table of the probe with the columns method, seed and ``name``: the method, followed
    by the name of the variant if the group has several variants of the probe.

    Parameters
    ----------
    id : identifier of the probe. options : names of its options to add as columns.
    """
    measured = [probe for run in data.runs(group) for probe in run.get("probes", ())]
    probes = {probe["name"]: probe for probe in measured if probe["id"] == id}
    parts = []
    for name, probe in probes.items():
        rows = data.rows(PROBES, group, probe=name).dropna(
            axis="columns", how="all"
        )  # columns of other probes
        known = {option: probe["options"][option] for option in options}
        variant = f" ({name})" if len(probes) > 1 else ""
        parts.append(rows.assign(name=rows["method"] + variant, **known))
    if not parts:
        return pd.DataFrame()
    return data.in_order(pd.concat(parts), data.methods, by=("method",))


def seeds(table: pd.DataFrame) -> str:
    """Number of seeds in words, for captions."""
    most = table.groupby("name")["seed"].nunique().max()
    return f"{most} seeds" if most > 1 else "one network each"


def retrained(
    data: StudyData, group: Group
) -> Iterator[tuple[Key, FirstStageRun, Mapping[str, Any]]]:
    """Runs of a group that were retrained under masks: key, first stage, and options of the
    procedure.
    """
    for run in data.runs(group):
        procedure, first = data.facts(run).get("procedure", {}), run["first_stage"]
        if first is not None and procedure.get("id") == MASKING:
            yield run["key"], first, procedure["options"]
