"""Published stages: the outputs of a stage appear together, complete, from one writer, or not at all.

A stage works in ``<root>/.calgrid/<stage>/<fingerprint>.partial`` (its resume state lives there too, and survives a
kill), which is renamed to ``<fingerprint>`` when it is complete; then the declared outputs are linked from it into
``<root>``. Snakemake deletes declared outputs before a job and after a failed one, also those that another process
has just written; whoever finds that the same stage was completed after its own grid was planned links the outputs
again instead of computing them twice.
"""

import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from calgrid.errors import StateError
from calgrid.storage.atomic import disk_error, flush, write_text
from calgrid.storage.locks import OwnerLock

HIDDEN = ".calgrid"
#: file that says that all outputs in a folder are written
COMPLETE = "complete"


def planned_at() -> float:
    """Unix time at which the grid of this process was planned; the Snakefile hands it on to all jobs."""
    return float(os.environ.get("CALGRID_PLANNED_AT", "nan"))


def run_stage(
    root: Path,
    stage: str,
    fingerprint: str,
    outputs: Sequence[str],
    produce: Callable[[Path], None],
    optional: Sequence[str] = (),
) -> bool:
    """Run ``produce`` under an owner lock and publish what it wrote.

    Parameters
    ----------
    root : folder in which the outputs appear, for example a run's folder.
    stage : name of the stage ("train"); one writer a stage and root.
    fingerprint : what determines the outputs; resume state of another fingerprint is never touched before success.
    outputs : paths relative to ``root`` that ``produce`` must have written, relative to the folder it is given.
    produce : called with the working folder; may find resume state there from an earlier, interrupted call.
    optional : further paths that ``produce`` may have written; published when it did, else removed from ``root``.

    Returns
    -------
    True if ``produce`` ran, False if another process had completed the same stage since the grid was planned.

    Raises
    ------
    StateError : a live process is writing the same stage, the disk is full, or an output was not written.
    """
    root = Path(root)
    base = root / HIDDEN / stage
    called = time.time()
    with OwnerLock(base.with_suffix(".lock"), f"{stage} stage of {root}") as lock:
        done, partial = base / fingerprint, base / f"{fingerprint}.partial"
        # another study may have wanted fewer files of the same stage
        fresh = not (_is_complete(done, outputs) and _completed_since(done, planned_at(), called))
        try:
            if fresh:
                partial.mkdir(parents=True, exist_ok=True)
                if not _is_complete(partial, outputs):  # it is when a kill came just before the rename
                    (partial / COMPLETE).unlink(missing_ok=True)
                    produce(partial)
                lock.check()
                _complete(partial, done, [*outputs, *(name for name in optional if (partial / name).is_file())])
            for name in outputs:
                _link(done / name, root / name)
            for name in optional:
                if (done / name).is_file():
                    _link(done / name, root / name)
                else:
                    (root / name).unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, root) from error
        for other in base.iterdir():
            if other != done:
                shutil.rmtree(other, ignore_errors=True)
    return fresh


def _is_complete(folder: Path, outputs: Sequence[str]) -> bool:
    return all((folder / name).is_file() for name in (COMPLETE, *outputs))


def _completed_since(done: Path, planned: float, called: float) -> bool:
    """Was the stage completed by somebody else after this grid was planned (or, outside a grid, this call began)?"""
    marker = done / COMPLETE
    since = called if math.isnan(planned) else planned  # NaN: not inside a grid
    return marker.stat().st_mtime > since


def _complete(partial: Path, done: Path, outputs: Sequence[str]) -> None:
    missing = [name for name in outputs if not (partial / name).is_file()]
    if missing:
        raise StateError(f"The stage in {partial} did not write {', '.join(missing)}: please report this.")
    kept = {partial / name for name in (*outputs, COMPLETE)}
    for name in outputs:
        flush(partial / name)
    write_text(partial / COMPLETE, "")  # from here on a kill loses nothing
    for path in partial.rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()  # resume state has done its work
    shutil.rmtree(done, ignore_errors=True)
    partial.rename(done)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.link")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, temporary)
    temporary.replace(target)
