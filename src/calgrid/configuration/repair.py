"""Finds missing and damaged results, whose jobs must run again; Snakemake compares modification times only."""

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
from calgrid.storage.records import AGGREGATE, CALIBRATE, HIDDEN, MODEL, ORIGIN, PREDICT, TRAIN, Record
from calgrid.storage.stage import MAKE_HERE, republish

#: threads that read files changed since their last verification
THREADS = 4
#: number of results named in a message
NAMED = 5
SILENT_SECONDS = 5
#: tolerated clock difference of a file server
TOLERANCE_SECONDS = 60.0
#: state of a merged run, which no job may change -> why it would have to be computed again
WANTING = {
    "right": "but the study plans another fingerprint, of other options or source code",
    "damaged": "but one of its files is damaged, or is needed and was not in the archive",
    "missing": "but the study needs this file, which was not in the archive",
    "settled": "but the study needs its network, which is in no archive",
}


@dataclass(frozen=True)
class Stage:
    """Files that one job writes.

    Attributes
    ----------
    target : one of the files, which identifies the job for Snakemake.
    root, record : folder of the files, and path of their record below it.
    needs : targets of the jobs that produce the inputs.
    name, fingerprint : of the stage, if hard links to its files (or, for data, to the record) are kept below
        ``.calgrid``; else empty.
    optional : files that the user may delete.
    wanted : files that the record must list.
    """

    target: str
    root: Path
    record: str
    needs: tuple[str, ...] = ()
    name: str = ""
    fingerprint: str = ""
    optional: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()

    @functools.cached_property
    def is_merged(self) -> bool:
        """Whether the stage belongs to a run that was merged from an archive; archives contain no networks."""
        return (self.root / ORIGIN).exists()

    @property
    def _spared(self) -> frozenset[str]:
        """Files that may be missing."""
        return frozenset({MODEL}) if self.is_merged and self.record == TRAIN else self.optional

    def examine(self, now: float) -> tuple[str, list[str]]:
        """Return the stage's state, and the files whose modification times were in the future and are now ``now``.

        The state is ``settled`` (correct, with the planned fingerprint), ``right`` (correct, with another one),
        ``missing`` or ``damaged``. Damaged files are restored from the links below ``.calgrid`` if possible.
        """
        clamped = clamp_future_mtimes([Path(self.target), *self._files()], now)  # before the times are recorded
        if self._is_right() or (
            self.name
            and republish(self.root, self.name, self.fingerprint, self.record, self._spared)
            and self._is_right()
        ):
            return "settled" if self.is_current() else "right", clamped
        there = (self.root / self.record).exists() or Path(self.target).exists()
        return "damaged" if there else "missing", clamped

    def _files(self) -> list[Path]:
        """The record and all files that it lists."""
        with contextlib.suppress(DataError):
            return [self.root / name for name in (self.record, *Record.read(self.root, self.record).files)]
        return [self.root / self.record]

    def lacks_optional(self) -> bool:
        """Whether a file that the user may delete is missing."""
        return any(not (self.root / name).exists() for name in self._spared)

    def _is_right(self) -> bool:
        try:
            record = Record.read(self.root, self.record)
        except DataError:
            return False
        self._drop_copies()
        return self.wanted <= set(record.files) and set(record.damaged()) <= self._spared

    def is_current(self) -> bool:
        """Whether the record has the planned fingerprint. Raises DataError: there is no record."""
        found = Record.read(self.root, self.record).content.get("fingerprint")
        return found == self.fingerprint or (self.root / HIDDEN / self.name / self.fingerprint / self.record).exists()

    def _drop_copies(self) -> None:
        """Delete the hidden links to files that the user has deleted, to free the disk."""
        for name in self.optional:
            if not (self.root / name).exists():
                with contextlib.suppress(OSError):
                    (self.root / HIDDEN / self.name / self.fingerprint / name).unlink()


class Repairs(NamedTuple):
    """Targets of jobs that must run ``again``, and of jobs whose results are correct and current (``settled``).

    ``merged`` are targets of runs from an archive, whose inputs may be missing.
    """

    again: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()
    merged: frozenset[str] = frozenset()


def find_repairs(plan: Plan) -> Repairs:
    """Find damaged results of a study, and missing ones that existing results depend on.

    Results that no job has produced yet are not reported. Files that changed since their last verification are read.
    Modification times in the future, caused by a wrong clock, are all set to the current time: otherwise the outputs of
    such files would look outdated, and Snakemake would recompute them in each call until that time has passed.

    Raises StateError: a run that was merged from an archive would have to be computed again.
    """
    stages, now = list(planned_stages(plan)), time.time()
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda stage: stage.examine(now), stages)
        # the bar appears only if verification takes long; most calls take no time
        found = tqdm(found, "verify results", len(stages), leave=False, delay=SILENT_SECONDS)
        examined = list(zip(stages, found, strict=True))
    states = [(stage, state) for stage, (state, _) in examined]
    if clamped := [path for _, (_, paths) in examined for path in paths]:
        log(
            f"Warning: the times of {len(clamped)} files, such as {clamped[0]}, were in the future because of a wrong "
            "clock; they are set to the current time, and outputs that are older now are computed again."
        )
    merged = {stage.target for stage, _ in states if stage.is_merged}
    made = [stage for stage, state in states if state != "missing" and stage.target not in merged]
    used = {need for stage in made for need in stage.needs}
    again = dict.fromkeys(
        stage.target for stage, state in states if state == "damaged" or (state == "missing" and stage.target in used)
    )
    settled = {stage.target for stage, state in states if state == "settled"} - set(again)
    # a deleted model is trained again only if a job needs it, for example a second stage
    deleted = {stage.target for stage, state in states if state != "missing" and stage.lacks_optional()}
    while needed := {
        need for stage, _ in states if stage.target not in settled for need in stage.needs if need in deleted
    }:
        again |= dict.fromkeys(sorted(needed))
        settled -= needed
        deleted -= needed
    refused = [(stage.target, state) for stage, state in states if stage.is_merged and state != "settled"]
    refused += [(target, "settled") for target in again if target in merged]  # after its causes
    for target, state in refused:
        raise StateError(f"{target} was merged from an archive, {WANTING[state]}: {MAKE_HERE}.")
    if again:
        named, more = list(again)[:NAMED], len(again) - NAMED
        log(f"Damaged or missing results are computed again: {', '.join(named)}{f' and {more} more' * (more > 0)}.")
        _write_list(Path(plan.study.layout.repairs), again)
    return Repairs(frozenset(again), frozenset(settled), frozenset(merged))


def clamp_future_mtimes(paths: Iterable[Path], now: float) -> list[str]:
    """Set modification times in the future to ``now``; return the names of the changed files.

    Files that do not exist, or whose time cannot be set, are skipped. ``now`` must be the same for all files of a
    study: then inputs and outputs written under the same wrong clock get equal times, and nothing is recomputed.
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


def _write_list(path: Path, targets: Iterable[str]) -> None:
    """Write a file that is newer than all results; the jobs of these targets have it as an input."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "\n".join([*targets, ""]))
    except OSError as error:
        raise disk_error(error, path.parent) from error


def planned_stages(plan: Plan) -> Iterator[Stage]:
    """Yield the stages of a study in the order of their dependencies."""
    study, layout = plan.study, plan.study.layout
    for unit in study.data_units():
        base = study.datasets.base(unit)
        path = Path(layout.data(unit))
        needs = (layout.data(base),) if base else ()
        yield Stage(str(path), path.parent, path.name, needs, "data", plan.data(unit))
        yield Stage(str(path), path.parent, "prepare.json")
    for key in study.external:
        fingerprint = plan.external(key)["fingerprint"]
        yield Stage(layout.record(key, "predict"), Path(layout.run(key)), PREDICT, (), "predict", fingerprint)
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
    return Stage(layout.record(key, "train"), Path(layout.run(key)), TRAIN, needs, "train", fingerprint, optional)


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
    """Stages that use all runs together."""
    layout = plan.study.layout
    root = Path(layout.aggregate(""))
    parts = tuple(f"{layout.part(key)}/{CALIBRATE}" for key in plan.study.evaluations)
    manifest, totals = (layout.aggregate(name) for name in ("manifest.json", "metrics.parquet"))
    yield Stage(manifest, root, "manifest.json")
    yield Stage(totals, root, AGGREGATE, (manifest, *parts))
    shown = [layout.aggregate(name) for name in ("tables", "figures")]
    for target in shown:
        yield Stage(target, root, f"{HIDDEN}/{Path(target).stem}.json", (totals,))
    yield Stage(layout.aggregate("report.html"), root, f"{HIDDEN}/report.json", (totals, *shown))
