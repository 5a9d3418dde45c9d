"""Runs that other studies in the same folder of results have made, found in their plans."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from calgrid.components.options import Options
from calgrid.errors import ConfigError, check_ids, located
from calgrid.storage.layout import SPLITS, Layout, RunKey, head_file, logits_file
from calgrid.storage.manifest import below_results, plans
from calgrid.storage.records import PREDICT, Record, read_record
from calgrid.study.model import NamedRun
from calgrid.study.runs import Predicted


@dataclass(frozen=True, kw_only=True)
class MadeRun(Predicted):
    """A finished run of a study; ``files`` are ``val``, ``test`` and, if it is there, ``head`` of a
    tested checkpoint, below the folder of all results.
    """

    files: Mapping[str, str]


def made_run(asked: NamedRun, layout: Layout, where: str) -> MadeRun:
    """The only run that has all the names, by the newest plan of its study.

    Raises
    ------
    ConfigError : there is no such run, several have the names, or the run is not finished.
    """
    if asked.study == layout.study:
        raise ConfigError(f"{where}.study: '{asked.study}' is this study; name another one.")
    planned = plans(Path(layout.results, asked.study))
    if not planned:
        raise ConfigError(
            f"{where}.study: the study '{asked.study}' does not exist in the folder "
            f"'{layout.results}'; run it first, or correct its name."
        )
    with located(where):
        plan = read_record(planned[-1], "plan")
        names, run = _only(asked, plan, where)
        key, checkpoint = RunKey(**run["key"]), names["checkpoint"]
        folder = below_results(plan["manifest"], run["predict"])
        predicted = Path(layout.results, folder)
        if not (predicted / PREDICT).is_file():
            raise ConfigError(
                f"{where}: {key.path} of study '{asked.study}' is not finished; run that study "
                "first."
            )
        made = Record.read(predicted, PREDICT).files
    files = {split: f"{folder}/{logits_file(checkpoint, split)}" for split in SPLITS}
    if head_file(checkpoint) in made:
        files["head"] = f"{folder}/{head_file(checkpoint)}"
    return MadeRun(
        key=key,
        checkpoints=(checkpoint,),
        disjoint_validation=plan["jobs"][run["calibrate"]]["disjoint_validation"],
        sees_validation=run["sees_validation"],
        draws_validation=run["draws_validation"],
        files=files,
    )


def _only(asked: NamedRun, plan: Options, where: str) -> tuple[Options, Options]:
    """Names of the only run that is asked for, with its checkpoint, and its entry in the
    manifest.
    """
    found = []
    for run in plan["manifest"]["runs"]:
        for checkpoint in plan["jobs"][run["calibrate"]]["checkpoints"]:
            found.append(({**run["key"], "checkpoint": checkpoint}, run))
    for name, value in asked.model_dump(exclude={"study"}, exclude_none=True).items():
        known = {names[name] for names, _ in found}
        check_ids(name, [value], known, f"{where}.{name}")
        found = [each for each in found if each[0][name] == value]
    if len(found) > 1:
        first = found[0][0]
        differing = []
        for key in first:
            if any(names[key] != first[key] for names, _ in found):
                differing.append(key)
        raise ConfigError(
            f"{where}: {len(found)} runs of study '{asked.study}' match, which differ in "
            f"{', '.join(differing)}; add what tells yours from the others."
        )
    return found[0]
