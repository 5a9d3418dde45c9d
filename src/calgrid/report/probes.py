"""Results of probes on the networks of a study, and its runs that were retrained under masks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from calgrid.report.study import Group, StudyData
from calgrid.storage.manifest import FirstStageRun
from calgrid.storage.schema import PROBES
from calgrid.storage.specs import Key

#: the procedure that retrains a head under masks
MASKING = "maccal"


def probed(data: StudyData, group: Group, id: str, options: Sequence[str] = ()) -> pd.DataFrame:
    """Results of a probe at the checkpoint of a group, for all methods and seeds, methods in the
    order of the study.

    Returns the table of the probe with the columns method, seed and ``name``: the method, followed
    by the name of the variant if the group has several variants of the probe.

    Parameters
    ----------
    id : identifier of the probe. options : names of its options to add as columns.
    """
    probes = {}
    for run in data.runs(group):
        for probe in run.get("probes", ()):
            if probe["id"] == id:
                probes[probe["name"]] = probe
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
    table = pd.concat(parts)
    order = table["method"].map(data.methods.index).to_numpy()
    return table.iloc[order.argsort(kind="stable")].reset_index(drop=True)


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
