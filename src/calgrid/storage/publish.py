"""Results of jobs: complete and from one writer, or not there at all.

A job works in ``<folder>.partial``, with its resume state, which survives a kill. Its record is
written last and lists the SHA-256 of all files and of all inputs; then the folder is renamed to
``<folder>``. The name of a folder contains a fingerprint of the options, the code and the files of
users. A folder with a record of the same inputs is never changed: another process that wants the
same result takes it.

The files of a study (metrics, tables, figures, report) have names without fingerprints and are
replaced; their record, below ``<study>/.calgrid``, has the fingerprint.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from calgrid.errors import CalgridError, DataError, StateError
from calgrid.storage.atomic import disk_error, flush, read_json, write_json
from calgrid.storage.inputs import NOTHING, Inputs
from calgrid.storage.locks import OwnerLock
from calgrid.storage.records import (
    FILES,
    HIDDEN,
    INPUTS,
    Facts,
    Record,
    listed,
    write_record,
)

#: Unix time at which a user forced jobs; results that were completed before it are computed again
FORCED = "CALGRID_FORCED"
#: seconds; what a job computed in more is stored in its working folder, so that a killed job
#: continues from it
KEPT_SECONDS = 1.0
#: what the resume state in a working folder was made from
INPUTS_FILE = "inputs.json"

Produce = Callable[[Path], Facts]


def make_result(
    folder: Path,
    record: str,
    fingerprint: str,
    outputs: Sequence[str],
    produce: Produce,
    *,
    inputs: Inputs = NOTHING,
    optional: Sequence[str] = (),
) -> bool:
    """Make the folder of a job's result, unless it is there; return whether ``produce`` ran.

    Parameters
    ----------
    folder : folder of the result; its name identifies its content.
    record : name of the record in it.
    fingerprint : hash of options, code and files of users.
    outputs : paths below ``folder`` that ``produce`` must write.
    produce : called with the working folder, which may have resume state of an interrupted call
        from the same inputs. Returns the content of the record.
    inputs : what ``produce`` reads; compared with the plan before and after.
    optional : further paths that ``produce`` may write.

    Raises
    ------
    StateError : a live process makes the same folder, the disk is full, an output was not written,
        or an input was changed.
    """
    folder = Path(folder)
    partial = folder.with_name(f"{folder.name}.partial")
    read = inputs.recorded(folder)
    with OwnerLock(folder.with_name(f"{folder.name}.lock"), f"result {folder}") as lock:
        try:
            inputs.check()
            if _holds(folder, record, read, fingerprint) and not _is_forced(folder / record):
                return False
            # a working folder with its record lacks only the renaming
            fresh = not _holds(partial, record, read, fingerprint)
            if fresh:
                _begin(partial, record, read)
                content = {"fingerprint": fingerprint, **produce(partial), INPUTS: read}
                lock.check()
                try:
                    inputs.check()
                except CalgridError:  # nothing may continue from it
                    shutil.rmtree(partial)
                    raise
                _write_record(partial, record, content, outputs, optional)
            lock.check()
            # resume state is all that the record does not list
            kept = {partial / name for name in (record, *Record.read(partial, record).files)}
            for path in partial.rglob("*"):
                if path.is_file() and path not in kept:
                    path.unlink()
            _rename(partial, folder)
        except OSError as error:
            raise disk_error(error, folder) from error
    return fresh


def replace_files(
    record: Path, outputs: Sequence[str], produce: Produce, inputs: Inputs = NOTHING
) -> bool:
    """Replace files or folders of a study by those that ``produce`` writes, unless they are made
    from the same inputs; return whether ``produce`` ran.

    Parameters
    ----------
    record : ``<study>/.calgrid/<name>-<id>.json``; records of other versions are removed.
    outputs : files or folders below the study that ``produce`` must write.
    produce : called with an empty working folder. Returns the content of the record.
    inputs : what ``produce`` reads; compared with the plan before and after.
    """
    study, name = record.parents[1], record.stem.rpartition("-")[0]
    partial = record.with_name(f"{name}.partial")
    read = inputs.recorded(study)
    with OwnerLock(record.with_name(f"{name}.lock"), f"result {name} of {study}") as lock:
        try:
            inputs.check()
            is_alone = list(record.parent.glob(f"{name}-*.json")) == [record]
            current = (
                is_alone and read["results"] and _holds(study, f"{HIDDEN}/{record.name}", read)
            )
            if current and not _is_forced(record):
                return False
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            content = produce(partial)
            lock.check()
            inputs.check()
            for other in record.parent.glob(f"{name}-*.json"):  # the files are of no version now
                other.unlink()
            files: list[str] = []
            for output in outputs:
                _rename(partial / output, study / output)
                path = study / output
                paths = sorted(path.rglob("*")) if path.is_dir() else [path]
                files += [str(below.relative_to(study)) for below in paths if below.is_file()]
            write_record(record, {**content, INPUTS: read, FILES: listed(study, files)})
            shutil.rmtree(partial)
        except OSError as error:
            raise disk_error(error, study) from error
    return True


def _holds(root: Path, name: str, read: Facts, fingerprint: str | None = None) -> bool:
    """Whether an intact record below ``root`` has these results and files as inputs and, if given,
    this fingerprint, and all its files are intact. Code counts in fingerprints, as what it does and
    not by the names of its modules.
    """
    try:
        record = Record.read(root, name)
    except DataError:
        return False
    inputs = record.content.get(INPUTS, {})
    if any(inputs.get(key) != read[key] for key in ("results", "files")):
        return False
    return fingerprint in (None, record.content.get("fingerprint")) and not record.damaged()


def _begin(partial: Path, record: str, read: Facts) -> None:
    """Make the working folder, without resume state from other inputs."""
    state, read = partial / INPUTS_FILE, {**read, "code": {}, "plugins": ""}
    with contextlib.suppress(DataError, OSError):
        if read == read_json(state):
            (partial / record).unlink(missing_ok=True)
            return
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write_json(state, read)


def _is_forced(record: Path) -> bool:
    """Whether the user wants this result to be computed again."""
    forced = os.environ.get(FORCED)
    return forced is not None and record.stat().st_mtime < float(forced)


def _write_record(
    folder: Path,
    record: str,
    content: Facts,
    outputs: Sequence[str],
    optional: Sequence[str],
) -> None:
    missing = [name for name in outputs if not (folder / name).is_file()]
    if missing:
        raise StateError(
            f"The job of {folder} did not write {', '.join(missing)}; please report this."
        )
    written = [*outputs, *(name for name in optional if (folder / name).is_file())]
    for name in written:
        flush(folder / name)
    # a job may know the checksums of large files that it wrote
    files = {**content.get(FILES, {}), **listed(folder, written)}
    write_record(folder / record, {**content, FILES: files})


def _rename(source: Path, target: Path) -> None:
    """Rename a file or folder, replacing what is there (such as an empty folder of Snakemake)."""
    if target.is_dir() and not target.is_symlink():
        old = target.with_name(f"{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        source.rename(target)
        shutil.rmtree(old)
    else:
        source.replace(target)
