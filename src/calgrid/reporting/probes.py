"""Tables of probes, and what runs were retrained under masks: what figures about the networks themselves read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import softmax

from calgrid.metrics import Predictions, check_probabilities
from calgrid.reporting.study import Group, StudyData, run_logits
from calgrid.storage.records import TRAIN, read_record, verified
from calgrid.storage.tables import read_frame

#: the procedure that retrains a head under masks
MASKING = "maccal"


class Probed(NamedTuple):
    """What a probe measured of a method: options of the probe, and its table of all seeds with the column ``seed``."""

    method: str
    options: Mapping[str, Any]
    table: pd.DataFrame


class Retrained(NamedTuple):
    """A run of MaC-Cal or one of its variants: entry of the manifest, and the options of its procedure."""

    run: Mapping[str, Any]
    options: Mapping[str, Any]


def probed(data: StudyData, group: Group, id: str) -> dict[str, Probed]:
    """What a probe measured at a group's checkpoint, by method in the order of the study.

    Where a group has several variants of the probe, the name of the variant stands behind that of the method.

    Raises
    ------
    DataError, StateError : a table is missing, damaged or of another configuration.
    """
    found: dict[tuple[str, str], list[tuple[Mapping[str, Any], pd.DataFrame]]] = {}
    for run in data.runs(group):
        for probe in run.get("probes", ()):
            if probe["id"] == id:
                record, what = f"probes/{probe['name']}", f"table of the probe {probe['name']}"
                path = verified(run["run"], f"{record}.json", f"{record}.parquet", what)
                table = read_frame(path, what, probe["fingerprint"])
                own = table[table["checkpoint"] == group.checkpoint].assign(seed=run["key"]["seed"])
                found.setdefault((run["key"]["method"], probe["name"]), []).append((probe["options"], own))
    several = len({name for _, name in found}) > 1
    return {
        f"{method} ({name})" if several else method: Probed(method, parts[0][0], pd.concat([t for _, t in parts]))
        for (method, name), parts in sorted(found.items(), key=lambda item: data.methods.index(item[0][0]))
    }


def seeds(tables: Mapping[str, Probed]) -> str:
    """Say for a caption how many seeds there are."""
    most = max(part.table["seed"].nunique() for part in tables.values())
    return f"{most} seeds" if most > 1 else "one seed"


def retrained(data: StudyData, group: Group) -> Iterator[Retrained]:
    """Runs of a group that were retrained under masks, with the options that they were trained with."""
    for run in data.runs(group):
        if run.get("first_stage"):
            procedure = read_record(Path(run["run"], TRAIN), "train record")["spec"]["procedure"]
            if procedure["id"] == MASKING:
                yield Retrained(run, procedure["options"])


def predictions(run: str, checkpoint: str) -> Predictions:
    """Uncalibrated predictions of a run, found by its folder, on the clean test split."""
    data = run_logits(run, checkpoint)
    return check_probabilities(softmax(data.logits.astype(np.float64), axis=1), data.label)
