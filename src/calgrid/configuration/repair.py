"""Search for missing and damaged results, because Snakemake compares only times of files."""

import contextlib
import functools
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from calgrid.configuration.plan import Plan
from calgrid.errors import DataError, StateError
from calgrid.progress import log
from calgrid.storage.atomic import disk_error, write_text
from calgrid.storage.layout import RunKey, family_unit, logits_files, probe_files
from calgrid.storage.records import (
    AGGREGATE,
    CALIBRATE,
    HIDDEN,
    MODEL,
    ORIGIN,
    PREDICT,
    TRAIN,
    Record,
)
from calgrid.storage.stage import MAKE_HERE, republish

#: threads that verify files
THREADS = 4
#: maximum results that a message lists
NAMED = 5
#: seconds before a progress bar appears
SILENT_SECONDS = 5
#: accepted difference between the clocks of a file server and of this machine
TOLERANCE_SECONDS = 60.0
#: state of a merged run -> why it would have to be computed again
WANTING = {
    "right": "but its fingerprint differs from the plan (other options or source code)",
    "incomplete": "but the study needs files that were not in the archive",
    "damaged": "but one of its files is damaged",
    "missing": "but the study needs this file, which was not in the archive",
    "settled": "but the study needs its network, and archives contain no networks",
}


@dataclass(frozen=True)
class Stage:
    """Files that one job writes to ``root``; ``target`` is its output in Snakemake, ``record`` is
    below ``root``.
    """

    target: str
    root: Path
    record: str
    #: targets of the jobs whose files are inputs
    needs: tuple[str, ...] = ()
    #: of the stage, if a second link to its files (for data, to its record) is kept below
    #: ``.calgrid``
    name: str = ""
    fingerprint: str = ""
    #: files that the user may delete
    optional: frozenset[str] = frozenset()
    #: files that the record must list
    wanted: frozenset[str] = frozenset()

    @functools.cached_property
    def is_merged(self) -> bool:
        """Whether the run was merged from an archive."""
        return (self.root / ORIGIN).exists()

    @property
    def _spared(self) -> frozenset[str]:
        """Files that may be missing; archives contain no networks."""
        return frozenset({MODEL}) if self.is_merged and self.record == TRAIN else self.optional

    def examine(self, now: float) -> tuple[str, list[str]]:
        """Verify the files, restore them from their second links where possible, and correct times
        in the future.

        Returns
        -------
        state : ``settled`` (valid, with the planned fingerprint), ``right`` (valid), ``incomplete``
            (valid, but without files that the study needs, such as those of a new shift),
            ``missing`` or ``damaged``.
        clamped : files whose time was in the future and is now ``now``.
        """
        clamped = clamp_future_mtimes(
            [Path(self.target), *self._files()], now
        )  # before verification stores times
        if self._is_right() or (
            self.name
            and republish(self.root, self.name, self.fingerprint, self.record, self._spared)
            and self._is_right()
        ):
            return "settled" if self.is_current() else "right", clamped
        if self._is_right(complete=False):
            return "incomplete", clamped
        there = (self.root / self.record).exists() or Path(self.target).exists()
        return "damaged" if there else "missing", clamped

    def _files(self) -> list[Path]:
        with contextlib.suppress(DataError):
            return [
                self.root / name
                for name in (self.record, *Record.read(self.root, self.record).files)
            ]
        return [self.root / self.record]

    def lacks_optional(self) -> bool:
        """Whether an optional file is missing."""
        return any(not (self.root / name).exists() for name in self._spared)

    def _is_right(self, complete: bool = True) -> bool:
        try:
            record = Record.read(self.root, self.record)
        except DataError:
            return False
        self._drop_copies()
        return (not complete or self.wanted <= set(record.files)) and set(
            record.damaged()
        ) <= self._spared

    def is_current(self) -> bool:
        """Whether the record, which must exist, has the planned fingerprint."""
        found = Record.read(self.root, self.record).content.get("fingerprint")
        return (
            found == self.fingerprint
            or (self.root / HIDDEN / self.name / self.fingerprint / self.record).exists()
        )

    def _drop_copies(self) -> None:
        """Delete the second links of optional files that the user deleted."""
        for name in self.optional:
            if not (self.root / name).exists():
                with contextlib.suppress(OSError):
                    (self.root / HIDDEN / self.name / self.fingerprint / name).unlink()


class Repairs(NamedTuple):
    """Targets of the jobs that must rerun, whose results are valid and current, and whose runs are
    from an archive.
    """

    again: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()
    merged: frozenset[str] = frozenset()


def find_repairs(plan: Plan) -> Repairs:
    """Find results that are damaged, lack files, or are missing although other results were
    computed from them.

    Every file that changed since its last verification is read. Times in the future, from a clock
    that was ahead, are set to the present: otherwise Snakemake would rerun all dependent jobs in
    each call until that time has come. Raises StateError if a run that was merged from an archive
    would have to be computed again.
    """
    stages, now = list(planned_stages(plan)), time.time()
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda stage: stage.examine(now), stages)
        found = tqdm(found, "verify results", len(stages), leave=False, delay=SILENT_SECONDS)
        examined = list(zip(stages, found, strict=True))
    states = [(stage, state) for stage, (state, _) in examined]
    if clamped := [path for _, (_, paths) in examined for path in paths]:
        log(
            f"Warning: the times of {len(clamped)} files, such as {clamped[0]}, were in the future "
            f"(a clock was ahead) "
            "and are set to the present; results that now look older than their inputs are "
            "computed once more."
        )
    merged = {stage.target for stage, _ in states if stage.is_merged}
    made = [
        stage
        for stage, state in states
        if state not in ("missing", "incomplete") and stage.target not in merged
    ]
    used = {need for stage in made for need in stage.needs}
    incomplete = [stage.target for stage, state in states if state == "incomplete"]
    again = dict.fromkeys(
        stage.target
        for stage, state in states
        if state in ("damaged", "incomplete") or (state == "missing" and stage.target in used)
    )
    settled = {stage.target for stage, state in states if state == "settled"} - set(again)
    # a deleted model is trained again if a job needs it, for example the training of a second stage
    deleted = {
        stage.target for stage, state in states if state != "missing" and stage.lacks_optional()
    }
    while needed := {
        need
        for stage, _ in states
        if stage.target not in settled
        for need in stage.needs
        if need in deleted
    }:
        again |= dict.fromkeys(sorted(needed))
        settled -= needed
        deleted -= needed
    refused = [
        (stage.target, state) for stage, state in states if stage.is_merged and state != "settled"
    ]
    refused += [
        (target, "settled") for target in again if target in merged
    ]  # the cause comes first
    for target, state in refused:
        raise StateError(f"{target} was merged from an archive, {WANTING[state]}: {MAKE_HERE}.")
    for what, targets in (
        ("Damaged or missing results", [target for target in again if target not in incomplete]),
        ("Results without files that the study needs, such as those of new shifts,", incomplete),
    ):
        named, more = targets[:NAMED], len(targets) - NAMED
        if named:
            log(f"{what} are computed again: {', '.join(named)}{f' and {more} more' * (more > 0)}.")
    if again:
        path = Path(plan.study.layout.repairs)  # newer than all results, and an input of these jobs
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, "\n".join([*again, ""]))
        except OSError as error:
            raise disk_error(error, path.parent) from error
    return Repairs(frozenset(again), frozenset(settled), frozenset(merged))


def clamp_future_mtimes(paths: Iterable[Path], now: float) -> list[str]:
    """Set modification times in the future to ``now``, and return the paths of these files.

    Missing files, and files whose time cannot be set, are skipped. Use the same ``now`` for inputs
    and outputs of a job: with equal times Snakemake does not rerun it.
    """
    clamped = []
    for path in paths:
        try:
            if path.stat().st_mtime > now + TOLERANCE_SECONDS:
                os.utime(path, (now, now))
                clamped.append(str(path))
        except OSError:
            continue
    return clamped


def planned_stages(plan: Plan) -> Iterator[Stage]:
    """Yield all stages of a study; inputs come first."""
    study, layout = plan.study, plan.study.layout
    for unit in study.data_units():
        base = study.datasets.base(unit)
        path = Path(layout.data(unit))
        needs = (layout.data(base),) if base else ()
        yield Stage(str(path), path.parent, path.name, needs, "data", plan.data(unit))
        yield Stage(str(path), path.parent, "prepare.json")
    for key in study.external:
        fingerprint = plan.external(key)["fingerprint"]
        yield Stage(
            layout.record(key, "predict"),
            Path(layout.run(key)),
            PREDICT,
            (),
            "predict",
            fingerprint,
        )
    for key in study.trained:
        yield _training(plan, key)
        if key in study.evaluations:
            yield from _after_training(plan, key)
    for key in study.evaluations:
        part = Path(layout.part(key))
        fingerprint = plan.calibrate(key)["fingerprint"]
        needs = (layout.record(key, "predict"),)
        yield Stage(f"{part}/{CALIBRATE}", part, CALIBRATE, needs, "calibrate", fingerprint)
    yield from _totals(plan)


def _training(plan: Plan, key: RunKey) -> Stage:
    layout, first = plan.study.layout, plan.study.trained[key].first_stage
    needs = (layout.data(key.dataset), *([layout.record(first, "train")] if first else []))
    optional = frozenset() if plan.study.config["keep_models"] else frozenset({MODEL})
    fingerprint = plan.train(key)["fingerprint"]
    return Stage(
        layout.record(key, "train"),
        Path(layout.run(key)),
        TRAIN,
        needs,
        "train",
        fingerprint,
        optional,
    )


def _after_training(plan: Plan, key: RunKey) -> Iterator[Stage]:
    """Predictions and probes of a run."""
    layout = plan.study.layout
    root, needs = Path(layout.run(key)), (layout.record(key, "train"), layout.data(key.dataset))
    families = plan.study.families(key)
    shifted = [layout.data(family_unit(family)) for family in families]
    fingerprint = plan.predict(key)["fingerprint"]
    wanted = frozenset(logits_files(plan.study.trained[key].checkpoints, families))
    record = layout.record(key, "predict")
    yield Stage(record, root, PREDICT, (*needs, *shifted), "predict", fingerprint, wanted=wanted)
    for name in plan.study.evaluations[key].probes:
        (_, record), fingerprint = probe_files(name), plan.probe(key, name)["fingerprint"]
        yield Stage(f"{root}/{record}", root, record, needs, f"probe_{name}", fingerprint)


def _totals(plan: Plan) -> Iterator[Stage]:
    """Stages that combine all runs."""
    layout = plan.study.layout
    root = Path(layout.aggregate(""))
    # of runs that the configuration gained since, nothing is missing yet
    known = set()
    with contextlib.suppress(DataError):
        known = {run["part"] for run in Record.read(root, "manifest.json").content["runs"]}
    paths = map(layout.part, plan.study.evaluations)
    parts = tuple(f"{part}/{CALIBRATE}" for part in paths if part in known)
    manifest, totals = (layout.aggregate(name) for name in ("manifest.json", "metrics.parquet"))
    yield Stage(manifest, root, "manifest.json")
    yield Stage(totals, root, AGGREGATE, (manifest, *parts))
    shown = [layout.aggregate(name) for name in ("tables", "figures")]
    for target in shown:
        yield Stage(target, root, f"{HIDDEN}/{Path(target).stem}.json", (totals,))
    yield Stage(layout.aggregate("report.html"), root, f"{HIDDEN}/report.json", (totals, *shown))
