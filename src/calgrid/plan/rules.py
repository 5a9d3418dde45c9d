"""Inputs, parameters and resources of the rules of the workflow.

Times of results say nothing, so the rules mark their inputs as ``ancient``. What must run follows
from content (:mod:`calgrid.plan.pending`); :meth:`Jobs.changed` tells Snakemake. Functions
take the wildcards of a job.
"""

import contextlib
import functools
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from calgrid import optional
from calgrid.components import plugins
from calgrid.errors import ConfigError, StateError
from calgrid.plan.kinds import KINDS, Kind
from calgrid.plan.pending import Must, pending
from calgrid.plan.plan import Job, Plan
from calgrid.plan.resources import Resources, gpu_here
from calgrid.storage import provenance
from calgrid.storage.atomic import FULL
from calgrid.storage.records import HIDDEN, MEND, MODEL, STUDY_STAGES, RunKey, run_key
from calgrid.storage.schema import FITS, MARGINS, STUDY_FILES

#: a file of this moment
NOW = Path(".snakemake/outdated")
#: room that a call needs in the folder for temporary files
TEMPORARY_BYTES = 2**20


def check_temporary_folder() -> None:
    """Raise StateError if there is no room for temporary files, which Snakemake's scheduler writes
    before each job.
    """
    variable = "TMP" if "TMP" in os.environ else "TMPDIR"
    folder = os.environ.get(variable, "/tmp")  # noqa: S108  (what the scheduler takes)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(TEMPORARY_BYTES))
    except OSError as error:
        if error.errno in FULL:
            raise StateError(
                f"The disk of the folder for temporary files, {folder}, is full; free some space, "
                f"or set the variable {variable} to another folder."
            ) from None


class Jobs:
    """Interface of a study for the rules.

    Parameters
    ----------
    local : whether jobs run on this machine, so that ``device: cuda`` needs a GPU here.
    """

    def __init__(self, plan: Plan, local: bool) -> None:
        study = plan.study
        self.home, self.folder, self.plan = study.home, study.folder, plan
        self.device: str = study.config.device
        if local and self.device == "cuda" and not gpu_here():
            raise ConfigError(
                "device: 'cuda' needs a GPU and this machine has none; use device: cpu or auto."
            )
        self._settings: Callable[[], Any] | None = None
        self._unforced: Mapping[str, Must] = {}
        #: GPUs of a training or prediction job
        self.gpus = 0 if self.device == "cpu" or (local and not gpu_here()) else 1
        self.resources = Resources(study, self.gpus)

    def check_installed(self, conda: bool) -> None:
        """Raise MissingLibraryError if a library of the jobs is missing; ``conda``: they run in
        environments of rules.

        These do not contain calgrid, so ``conda`` without a checkout raises ConfigError.
        """
        if conda and not (self.home / "src").is_dir():
            raise ConfigError(
                "Conda environments do not contain calgrid; call snakemake from a checkout, or "
                "without --sdm conda."
            )
        if not conda:
            for extra in ("workflow", *(["train"] if self.plan.study.trained else [])):
                optional.require(extra)

    def export_environment(self) -> None:
        """Set the environment variables of all jobs, here and on a cluster.

        Jobs run the code of this folder, if it is a checkout, in the environment of Snakemake (an
        active conda environment of a rule comes first in PATH). The device is an environment
        variable because results do not depend on it.
        """
        paths = {"PYTHONPATH": self.home / "src", "PATH": Path(sys.executable).parent}
        for variable, folder in paths.items():
            if folder.is_dir():  # an installed package has no `src`
                earlier = os.environ.get(variable)
                os.environ[variable] = os.pathsep.join(filter(None, [str(folder), earlier]))
        os.environ["PYTHONSAFEPATH"] = "1"  # a module of the working directory counts nowhere
        os.environ["CALGRID_DEVICE"] = self.device
        plugins.export()
        os.environ.setdefault(provenance.COMMIT_VARIABLE, provenance.commit())

    @functools.cached_property
    def wildcard_constraints(self) -> dict[str, str]:
        """Regular expressions of the values that occur, escaped because of the plus in
        ``tst+mbls``.
        """
        study = self.plan.study
        fields: dict[str, set[str]] = {"probe": set(), "image_set": {*study.image_sets()}}
        for name in RunKey._fields:
            fields[name] = {str(key.wildcards[name]) for key in study.runs}
        for evaluation in study.evaluations.values():
            fields["probe"].update(evaluation.probes)
        constraints = {name: alternatives(values) for name, values in fields.items()}
        return {"id": "[0-9a-f]+", **constraints}

    def ids(self, kind: Kind) -> str:
        """Regular expression of the ids of a kind's jobs.

        Kinds may share names of folders (imports and ensembles have names of predictions), so that
        only ids distinguish them. The first of such kinds has all ids except the others': a list of
        the ids of all predictions would slow down large grids.
        """
        _, *listed = (name for name, each in KINDS.items() if each.place == kind.place)
        if kind.name in listed:
            return alternatives(job.id for job in self.plan.jobs if job.kind == kind.name)
        theirs = alternatives(job.id for job in self.plan.jobs if job.kind in listed)
        return f"(?!{theirs})[0-9a-f]+"

    @functools.cached_property
    def _jobs(self) -> dict[str, Job[Any]]:
        return {job.id: job for job in self.plan.jobs}

    def reads(self, wildcards: Any) -> list[str]:
        """Input files of a job, in the order of its arguments."""
        return list(self._jobs[wildcards.id].reads)

    @functools.cached_property
    def _priorities(self) -> dict[RunKey, int]:
        runs = sorted(self.plan.study.runs, key=lambda key: key.seed)
        return {key: len(runs) - number for number, key in enumerate(runs)}

    def priority(self, wildcards: Any) -> int:
        """Priority of the jobs of a run: seeds ascending, each in the order of the grids; data come
        before all runs.
        """
        if hasattr(wildcards, "image_set"):
            return len(self._priorities) + 1
        return self._priorities[run_key(wildcards)]

    def results_of_runs(self) -> list[str]:
        """Files of the results of all runs, without models and logits."""
        runs = (job for job in self.plan.jobs if job.kind != "data")
        return [name for job in runs for name in job.files_of_result]

    def prepared(self, _: Any) -> list[str]:
        """Files of prepared data that exist, or that a pending result needs."""
        files = []
        for job in self.plan.jobs:
            if job.kind == "data" and (Path(job.result).exists() or job.result in self._pending):
                files += job.files_of_result
        return files

    def models(self, all: bool = False) -> list[str]:
        """Required models: none if the user may delete them; with ``all``, every model."""
        trained = [job for job in self.plan.jobs if job.kind == "train"]
        keep = all or self.plan.study.config.keep_models
        return [f"{job.folder}/{MODEL}" for job in trained] if keep else []

    def _result_files(self) -> list[Path]:
        """Files of all results in the rules, including models."""
        files = [name for job in self.plan.jobs for name in job.files_of_result]
        return list(map(Path, [*files, *self.models(all=True)]))

    # files of the study ------------------------------------------------------------------------

    def record(self, name: str) -> str:
        """Record of files of the study, named by a fingerprint of their inputs."""
        return self.plan.stage(name).result

    def aggregated_files(self) -> list[str]:
        """Files of the study beside the record of their aggregation."""
        return [f"{self.folder}/{name}" for name in (*STUDY_FILES, FITS, MARGINS)]

    # what must run ------------------------------------------------------------------------------

    def compare_inputs(self, settings: Callable[[], Any]) -> None:
        """Find the pending results, for :meth:`changed`.

        ``settings`` returns Snakemake's options of the call, which are known only later.

        Raises
        ------
        StateError : a stale result is in a folder that is not writable.
        """
        self._settings = settings
        self._unforced = pending(self.plan)
        there = [record for record, must in self._unforced.items() if must.there]
        self._check_writable(Path(record).parent for record in there)

    @functools.cached_property
    def _pending(self) -> Mapping[str, Must]:
        """Records of pending results; none in the processes of jobs."""
        if self._settings is None:
            return {}
        settings = self._settings()
        names = [*settings.forcerun, *(settings.targets if settings.forcetargets else [])]
        forced = set()
        for job in self.plan.jobs:
            inside = any(name.startswith(f"{job.folder}/") for name in names)
            if settings.forceall or inside or KINDS[job.kind].rule in names:
                forced.add(job.result)
        for stage in self.plan.stages:
            if settings.forceall or not {stage.kind, stage.result}.isdisjoint(names):
                forced.add(stage.result)
        return pending(self.plan, forced) if forced else self._unforced

    def changed(self, kind: str) -> Callable[[Any], list[str]]:
        """Input function of a rule: inputs that make Snakemake run a pending job.

        These are the upstream records to be rebuilt, and a file with the current mtime, because
        records may have the mtimes of a backup. Snakemake itself finds missing files.
        """

        def of_job(wildcards: Any) -> list[str]:
            record = self.record(kind) if kind in STUDY_STAGES else self._jobs[wildcards.id].result
            must = self._pending.get(record, Must("", False, []))
            return [*must.above, *(self._now if must.there else [])]

        return of_job

    @functools.cached_property
    def _now(self) -> list[str]:
        """A file with the current mtime; Snakemake's own, because a dry run changes no results."""
        try:
            NOW.parent.mkdir(exist_ok=True)
            # Snakemake compares the content of small known files
            NOW.write_text(str(time.time()))
        except OSError:  # the working folder of somebody else, where nothing can run
            return []
        return [str(NOW)]

    def check_writable(self) -> None:
        """Raise StateError if the folder of a pending result or log is not writable."""
        folders = {self.folder / HIDDEN}
        for job in self.plan.jobs:
            if not Path(job.result).is_file():
                folders |= {Path(job.folder).parent, Path(job.log).parent}
        self._check_writable(folders)

    def _check_writable(self, folders: Iterable[Path]) -> None:
        for folder in sorted(set(folders)):
            existing = next(filter(Path.exists, (folder, *folder.absolute().parents)))
            if not os.access(existing, os.W_OK):
                raise StateError(
                    f"The folder {existing} is not writable; give another folder as 'results', or "
                    "change its permissions."
                )

    def check_files(self) -> None:
        """Raise StateError if a folder has the path of a record, a model or another file of a
        result: Snakemake would take it for the file.
        """
        records = [stage.result for stage in self.plan.stages]
        for path in [*self._result_files(), *map(Path, records)]:
            if path.is_dir():
                what = "model" if path.name == MODEL else "file"
                raise StateError(f"The {what} {path} is a folder; {MEND}.")

    def bring_times_to_now(self) -> None:
        """Set mtimes of results in the future to now.

        Snakemake refuses the output of a job if an input is newer, and a forced job replaces what
        was complete before the call.
        """
        now = time.time()
        paths = self._result_files()
        paths += self.folder.rglob("*")
        for path in paths:
            # missing files are made later, and files of another user stay unchanged
            with contextlib.suppress(OSError):
                if path.stat().st_mtime > now:
                    os.utime(path, (now, now))


def alternatives(values: Iterable[str]) -> str:
    """Regular expression that matches only the given strings."""
    return "|".join(re.escape(value) for value in sorted(values)) or "$^"
