"""Results of jobs: complete and from one writer, or absent.

A job works in ``<folder>.partial``, with its resume state, which survives a kill. Its record is
written last and lists the SHA-256 of all files and of all inputs; then the folder is renamed to
``<folder>``. The name of a folder contains a fingerprint of the options, the code and the files of
users. A folder with a record of the same inputs is never changed: another process that wants the
same result reuses it. A job compares its inputs with the plan, and upstream results with their
content as read, before and after, so that the name of a result always matches its inputs.

The files of a study (metrics, tables, figures, report) have names without fingerprints and are
replaced; their record, below ``<study>/.calgrid``, has the fingerprint.
"""

import contextlib
import importlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calgrid.components import copies, fingerprint
from calgrid.errors import CalgridError, DataError, StateError, refuse
from calgrid.storage.atomic import disk_error, flush, read_json, write_json
from calgrid.storage.locks import OwnerLock
from calgrid.storage.manifest import PlanFile
from calgrid.storage.records import (
    FILES,
    HIDDEN,
    INPUTS,
    MADE_FROM,
    Facts,
    Record,
    Results,
    listed,
    listing,
    record_of,
    sha256_of,
    verified,
    write_record,
)
from calgrid.storage.sources import source_digest

#: Unix time at which a user forced jobs; results completed earlier are recomputed
FORCED = "CALGRID_FORCED"
#: seconds; longer computations are cached in the working folder, for a killed job to resume from
KEPT_SECONDS = 1.0
#: inputs of the resume state in a working folder
INPUTS_FILE = "inputs.json"

Produce = Callable[[Path], Facts]


@dataclass(frozen=True)
class Call:
    """Call of a job, from its plan.

    Attributes
    ----------
    spec : specification (:mod:`calgrid.storage.specs`); of a stage, the manifest of the study.
    out : folder of the result; of a stage, its record.
    reads : files of upstream results; of an import, the user's files.
    files : files and folders of users, as planned: path -> SHA-256.
    code : modules and data files of plugins, as planned: name -> digest.
    sources : digests of the bytes of these files.
    root : folder of the user's data, below which records name ``files``; '' of a stage.
    plugins : copy of plugins, named by a digest of its content; '' without one.
    module : module that makes the result.
    """

    spec: Any
    out: Path
    reads: tuple[Path, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    root: str = ""
    plugins: str = ""
    module: str = ""
    threads: int = 1
    device: str = "auto"
    resume_every: float = 60.0

    @classmethod
    def planned(cls, plan: PlanFile, kind: str, out: Path, **options: Any) -> "Call":
        """Call of a job or stage of a plan; ``options`` are the machine's: threads, device, seconds
        between resume states.
        """
        is_stage = kind in MADE_FROM
        told = plan["inputs"][kind if is_stage else str(out)]
        return cls(
            plan["manifest"] if is_stage else plan["jobs"][str(out)],
            out,
            tuple(map(Path, told["reads"])),
            told["files"],
            plan["code"][told["code"]],
            plan["sources"],
            told["root"],
            told["plugins"],
            told["module"],
            **options,
        )

    def make(self) -> None:
        """Make the result, in this process."""
        importlib.import_module(self.module).run(self)

    def digests(self) -> Results:
        """SHA-256 of the files read by the job, each verified if a record lists it.

        Raises
        ------
        DataError or StateError : it is missing or damaged.
        """
        found: dict[Path, dict[str, str]] = {}
        for path in self.reads:
            file = verified(path.parent, record_of(path.parent), path.name, path.stem)
            found.setdefault(path.parent, {})[path.name] = sha256_of(file)
        return found

    def check(self, results: Results | None = None) -> None:
        """Raise StateError or ConfigError if code or the user's files differ from the plan, or
        upstream ``results`` from their content as read.
        """
        for path, planned in self.files.items():
            if source_digest(None, path) != planned:
                raise StateError(f"{path} was changed after the study was planned; run again.")
        for folder, files in (results or {}).items():
            found = listing(folder)
            for name, sha256 in files.items():
                if found.get(name, sha256) != sha256:
                    raise StateError(f"{folder / name} was made anew while it was read; run again.")
        changed = fingerprint.changed(self.code, self.sources)
        refuse(
            (changed, f"{', '.join(changed)} was edited after the study was planned; run again."),
            (
                self.plugins and not copies.is_intact(Path(self.plugins)),
                f"The copy of plugins {self.plugins} was changed; run again.",
            ),
            error=StateError,
        )

    def inputs(self, folder: Path, results: Results) -> Facts:
        """Inputs for the record of a result, with names of folders relative to its own."""
        read = {os.path.relpath(above, folder): dict(files) for above, files in results.items()}
        files = {
            os.path.relpath(path, self.root) if self.root else path: sha256
            for path, sha256 in self.files.items()
        }
        return {
            "results": read,
            "files": files,
            "code": dict(self.code),
            "plugins": Path(self.plugins).name,
        }


def make_result(
    call: Call,
    record: str,
    outputs: Sequence[str],
    produce: Produce,
    results: Results,
    optional: Sequence[str] = (),
) -> bool:
    """Make the missing folder of a job's result; return whether ``produce`` ran.

    Parameters
    ----------
    call : its folder ``out``, whose name identifies its content, and its fingerprint, a hash of
        options, code and files of users.
    record : name of the record in the folder.
    outputs : paths below the folder that ``produce`` must write.
    produce : called with the working folder, which may have resume state of an interrupted call
        from the same inputs. Returns the content of the record.
    results : SHA-256 of the upstream files that ``produce`` reads, compared with the files on disk,
        and the other inputs of the call with the plan, before and after.
    optional : further paths that ``produce`` may write.

    Raises
    ------
    StateError : a live process makes the same folder, the disk is full, an output was not written,
        or an input was changed.
    """
    folder, fingerprint = call.out, call.spec["fingerprint"]
    partial = folder.with_name(f"{folder.name}.partial")
    read = call.inputs(folder, results)
    with OwnerLock(folder.with_name(f"{folder.name}.lock"), f"result {folder}") as lock:
        try:
            call.check(results)
            if _holds(folder, record, read, fingerprint) and not _is_forced(folder / record):
                return False
            # a working folder with its record lacks only the renaming
            fresh = not _holds(partial, record, read, fingerprint)
            if fresh:
                _begin(partial, record, read)
                content = {"fingerprint": fingerprint, **produce(partial), INPUTS: read}
                lock.check()
                try:
                    call.check(results)
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


def replace_files(call: Call, outputs: Sequence[str], produce: Produce, results: Results) -> bool:
    """Replace files or folders of a study by the output of ``produce``, unless made from the same
    inputs; return whether ``produce`` ran.

    Parameters
    ----------
    call : its record ``out``, ``<study>/.calgrid/<name>-<id>.json``; those of other versions are
        removed.
    outputs : files or folders below the study that ``produce`` must write.
    produce : called with an empty working folder. Returns the content of the record.
    results : as in :func:`make_result`.
    """
    record = call.out
    study, name = record.parents[1], record.stem.rpartition("-")[0]
    partial = record.with_name(f"{name}.partial")
    read = call.inputs(study, results)
    with OwnerLock(record.with_name(f"{name}.lock"), f"result {name} of {study}") as lock:
        try:
            call.check(results)
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
            call.check(results)
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


def write_part(call: Call, name: str, write: Callable[[Path, Any, Path], object]) -> None:
    """Write tables, figures or report of a study into its folder by ``write(study, manifest,
    file or folder)``.
    """
    study = call.out.parents[1]

    def produce(folder: Path) -> Facts:
        if not Path(name).suffix:
            (folder / name).mkdir()
        write(study, call.spec, folder / name)
        return {}

    read = listing(study, MADE_FROM[Path(name).stem])
    replace_files(call, [name], produce, {study: read})


def _holds(root: Path, name: str, read: Facts, fingerprint: str | None = None) -> bool:
    """Whether a record below ``root`` and all its files are intact, with these results and files as
    inputs and, if given, this fingerprint. Fingerprints cover code by behaviour, not by names of
    modules.
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
    # a job may know the checksums of its large files
    files = {**content.get(FILES, {}), **listed(folder, written)}
    write_record(folder / record, {**content, FILES: files})


def _rename(source: Path, target: Path) -> None:
    """Rename a file or folder, replacing an existing one (such as an empty folder of Snakemake)."""
    if target.is_dir() and not target.is_symlink():
        old = target.with_name(f"{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        source.rename(target)
        shutil.rmtree(old)
    else:
        source.replace(target)
