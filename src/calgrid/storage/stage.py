"""Stages: the outputs of a stage are published together, complete and from one writer, or not at
all.

A stage works in ``<root>/.calgrid/<stage>/<fingerprint>.partial`` (with its resume state, which
survives a kill). The folder is renamed to ``<fingerprint>`` when it is complete; then its outputs
are linked into ``<root>``. The record of a stage is written last and lists the SHA-256 of its
outputs and inputs: a stage that is complete with the same inputs is published again instead of
being recomputed.
"""

import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from calgrid.errors import DataError, StateError
from calgrid.storage.atomic import disk_error, flush
from calgrid.storage.locks import OwnerLock
from calgrid.storage.records import (
    FILES,
    HIDDEN,
    INPUTS,
    ORIGIN,
    Record,
    listed,
    sha256_of,
    write_record,
)

#: set by the workflow if a user forces jobs: complete stages are recomputed
FORCED = "CALGRID_FORCED"
#: end of every message about a merged run
MAKE_HERE = "move its folder away to train it here"


def planned_at() -> float:
    """Return the Unix time at which the grid of this process was planned, which the Snakefile
    passes to all jobs.
    """
    return float(os.environ.get("CALGRID_PLANNED_AT", "nan"))


def run_stage(
    root: Path,
    stage: str,
    fingerprint: str,
    outputs: Sequence[str],
    produce: Callable[[Path], Mapping[str, Any]],
    *,
    record: str,
    inputs: Mapping[str, str] | None = None,
    optional: Sequence[str] = (),
) -> bool:
    """Run ``produce`` under an owner lock and publish its outputs with a record.

    Returns True if ``produce`` ran, False if complete files were published again. Raises
    StateError: a live process writes the same stage, the disk is full, no output was written, the
    run was merged.

    Parameters
    ----------
    root : folder in which the outputs appear, for example a run's folder.
    stage : name of the stage ("train"); one writer per stage and root.
    fingerprint : hash of all that determines the outputs; resume state of another fingerprint is
        kept until success.
    outputs : paths that ``produce`` must write, relative to its working folder; published relative
        to ``root``.
    produce : called with the working folder, which may have resume state of an interrupted call.
        Returns the content of the record.
    record : path of the record, relative to ``root``.
    inputs : SHA-256 of what ``produce`` reads, by name. Within a grid, a stage that is complete
        with the same inputs is published again, unless the user forces it. None: only if it was
        completed since the grid was planned.
    optional : further paths that ``produce`` may have written; published when it did, else removed
        from ``root``.
    """
    root = Path(root)
    if (root / ORIGIN).exists():
        raise StateError(
            f"The run {root} was merged from an archive, and no job changes it: {MAKE_HERE}."
        )
    base = root / HIDDEN / stage
    called = time.time()
    with OwnerLock(base.with_suffix(".lock"), f"{stage} stage of {root}") as lock:
        done, partial = base / fingerprint, base / f"{fingerprint}.partial"
        # another study may have needed fewer files of the same stage
        complete = _complete_record(done, record, outputs)
        fresh = complete is None or not _is_current(complete, inputs, called)
        try:
            if fresh:
                partial.mkdir(parents=True, exist_ok=True)
                if (
                    _complete_record(partial, record, outputs) is None
                ):  # complete if killed just before the rename
                    (partial / record).unlink(missing_ok=True)
                    facts = produce(partial)
                    lock.check()
                    _write_record(partial, record, facts, inputs, outputs, optional)
                lock.check()
                _complete(partial, done, record)
            _publish(done, root, (*outputs, record), optional)
        except OSError as error:
            raise disk_error(error, root) from error
        for other in base.iterdir():
            if other != done:
                shutil.rmtree(other, ignore_errors=True)
    return fresh


def _publish(done: Path, root: Path, names: Sequence[str], optional: Sequence[str]) -> None:
    for name in names:
        _link(done / name, root / name)
    for name in optional:
        if (done / name).is_file():
            _link(done / name, root / name)
        else:
            (root / name).unlink(missing_ok=True)


def _complete_record(folder: Path, record: str, outputs: Sequence[str]) -> Record | None:
    """Record of a folder with all outputs intact, else None."""
    try:
        found = Record.read(folder, record)
    except DataError:
        return None
    return found if set(outputs) <= set(found.files) and not found.damaged(remember=False) else None


def _is_current(complete: Record, inputs: Mapping[str, str] | None, called: float) -> bool:
    """Whether a complete stage has these inputs and may be reused (within a grid, not forced).

    Also if another process completed it after this grid was planned (outside a grid: after this
    call).
    """
    planned, known = planned_at(), complete.content.get(INPUTS)
    if (
        inputs is not None
        and known == dict(inputs)
        and FORCED not in os.environ
        and not math.isnan(planned)
    ):
        return True
    return (complete.root / complete.name).stat().st_mtime > (
        called if math.isnan(planned) else planned
    )


def _write_record(
    folder: Path,
    record: str,
    facts: Mapping[str, Any],
    inputs: Mapping[str, str] | None,
    outputs: Sequence[str],
    optional: Sequence[str],
) -> None:
    missing = [name for name in outputs if not (folder / name).is_file()]
    if missing:
        raise StateError(
            f"The stage in {folder} did not write {', '.join(missing)}: please report this."
        )
    written = [*outputs, *(name for name in optional if (folder / name).is_file())]
    for name in written:
        flush(folder / name)
    content = {
        **facts,
        FILES: listed(folder, written),
        INPUTS: None if inputs is None else dict(inputs),
    }
    write_record(folder / record, content)  # after this a kill loses nothing


def _complete(partial: Path, done: Path, record: str) -> None:
    """Remove the resume state and give the folder its final name."""
    kept = {partial / record, *(partial / name for name in Record.read(partial, record).files)}
    for path in partial.rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()
    shutil.rmtree(done, ignore_errors=True)
    partial.rename(done)


def republish(
    root: Path, stage: str, fingerprint: str, record: str, without: Collection[str] = ()
) -> bool:
    """Restore missing or damaged files of a complete stage in ``root`` by links; return whether all
    are right now.

    Files ``without`` may be missing, and are not linked.
    """
    done = root / HIDDEN / stage / fingerprint
    try:
        complete = Record.read(done, record)
        published = Record(root, record, complete.content)
        _link(done / record, root / record)
        for name in set(published.damaged()) - set(without):
            if sha256_of(done / name) == complete.sha256(name):
                _link(done / name, root / name)
        return not set(published.damaged()) - set(without)
    except (OSError, DataError, StateError):
        return False


def keep_record(root: Path, stage: str, fingerprint: str, record: str) -> None:
    """Keep a second link only to the record, for :func:`republish`, because copies of the files may
    be too large.
    """
    shutil.rmtree(root / HIDDEN / stage, ignore_errors=True)
    _link(root / record, root / HIDDEN / stage / fingerprint / record)


def _link(source: Path, target: Path) -> None:
    """Make ``target`` a hard link to ``source``, atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.link")
    try:
        temporary.unlink(missing_ok=True)
        try:
            os.link(source, temporary)
        except OSError:  # a file system without hard links
            shutil.copyfile(source, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(
            missing_ok=True
        )  # a rename onto another link of the same file does nothing
