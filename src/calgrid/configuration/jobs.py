"""Inputs, parameters and resources of the rules of the workflow.

Inputs of a job are results in folders whose names identify their content, so Snakemake runs a job
only if its own folder is missing. Functions take the wildcards of a job.
"""

import functools
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from calgrid import optional
from calgrid.components import plugins
from calgrid.configuration.plan import Plan
from calgrid.configuration.resources import Resources
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError, StateError
from calgrid.storage import provenance
from calgrid.storage.layout import MANIFEST, PROBE_TABLE, SUMMARIES, RunKey, image_set_of, run_key
from calgrid.storage.records import (
    CALIBRATE,
    HIDDEN,
    HISTORY,
    MODEL,
    PREDICT,
    PREPARE,
    PROBE,
    TRAIN,
    write_record,
)
from calgrid.storage.schema import METRICS

#: device files of the GPU drivers; importing torch would take seconds
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


#: files of the result of each rule that are missed if they are deleted
RESULT_FILES = {
    "data": (PREPARE, MANIFEST),
    "train": (TRAIN, HISTORY),
    "predict": (PREDICT,),
    "import": (PREDICT,),
    "ensemble": (PREDICT,),
    "calibrate": (CALIBRATE, METRICS),
    "probe": (PROBE, PROBE_TABLE),
}


def gpu_here() -> bool:
    """Whether this machine has a GPU."""
    return any(Path(path).exists() for path in GPU_DEVICES)


class Jobs:
    """A study as the rules use it.

    Parameters
    ----------
    local : whether jobs run on this machine, so that ``device: cuda`` needs a GPU here.
    """

    def __init__(self, config: Mapping[str, Any], home: Path, local: bool) -> None:
        self.home = home
        study = Study(config, home)
        self.layout, self.plan = study.layout, Plan(study)
        self.data_root: str | None = study.config.data_root
        self.device: str = study.config.device
        self.results, self.study = self.layout.results, self.layout.study
        if local and self.device == "cuda" and not gpu_here():
            raise ConfigError(
                "device: 'cuda' needs a GPU and this machine has none; use device: cpu or auto."
            )
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

        Jobs run the code of this checkout, if it is one, in the environment that Snakemake was
        started from (an active conda environment of a rule comes first in PATH). The device is an
        environment variable because it does not change what a result is.
        """
        paths = {"PYTHONPATH": self.home / "src", "PATH": Path(sys.executable).parent}
        for variable, folder in paths.items():
            if folder.is_dir():  # an installed package has no `src`
                earlier = os.environ.get(variable)
                os.environ[variable] = os.pathsep.join(filter(None, [str(folder), earlier]))
        os.environ["CALGRID_DEVICE"] = self.device
        plugins.export()
        os.environ.setdefault(provenance.COMMIT_VARIABLE, provenance.commit())

    @functools.cached_property
    def wildcard_constraints(self) -> dict[str, str]:
        """Regular expressions of the values that occur, escaped because of the plus in
        ``tst+mbls``.
        """
        runs, evaluations = self.plan.study.runs, self.plan.study.evaluations.values()
        fields = {name: {str(getattr(key, name)) for key in runs} for name in RunKey._fields}
        fields["backbone"] = {key.backbone_folder for key in runs}
        fields["probe"] = {name for evaluation in evaluations for name in evaluation.probes}
        fields["image_set"] = set(self.plan.study.image_sets())
        constraints = {name: alternatives(values) for name, values in fields.items()}
        return {**constraints, "id": "[0-9a-f]+"}

    @property
    def trained_protocols(self) -> str:
        """Regular expression of the protocols of trained runs."""
        return alternatives({key.protocol for key in self.plan.study.trained})

    @property
    def trained_methods(self) -> str:
        """Regular expression of the methods of trained runs."""
        return alternatives({key.method for key in self.plan.study.trained})

    @property
    def ensembles(self) -> str:
        """Regular expression of the methods of ensembles."""
        return alternatives({key.method for key in self.plan.study.ensembles})

    @property
    def imported(self) -> str:
        """Regular expression of the ids of imported logits."""
        return alternatives(job.id for job in self.plan.jobs if job.rule == "import")

    # inputs of jobs ----------------------------------------------------------------------------

    def _manifest(self, image_set: str, val_seed: int | None = None) -> str:
        return f"{self.plan.data_folder(image_set, val_seed)}/{MANIFEST}"

    def data_base(self, wildcards: Any) -> list[str]:
        """Manifest of the data set that a shift family corrupts."""
        base = self.plan.study.datasets.base(wildcards.image_set)
        return [self._manifest(base)] if base else []

    def data(self, wildcards: Any) -> str:
        """Manifest of the data set of a run."""
        key = run_key(wildcards)
        return self._manifest(key.dataset, self.plan.study.val_seed(key))

    def first_stage(self, wildcards: Any) -> list[str]:
        """Model of the first stage of a run, if it has one."""
        first = self.plan.study.trained[run_key(wildcards)].first_stage
        return [] if first is None else [f"{self.plan.train_folder(first)}/{MODEL}"]

    def model(self, wildcards: Any) -> str:
        """Trained model of a run."""
        return f"{self.plan.train_folder(run_key(wildcards))}/{MODEL}"

    def shifts(self, wildcards: Any) -> list[str]:
        """Manifests of the shift families of a run, in the order of its specification."""
        names = self.plan.predict(run_key(wildcards))["shifts"]
        return [self._manifest(image_set_of(name)) for name in names]

    def external_files(self, wildcards: Any) -> list[str]:
        """Files of an external run."""
        return [str(path) for path in self.plan.study.external_files(run_key(wildcards))]

    def members(self, wildcards: Any) -> list[str]:
        """Records of the logits of the members of an ensemble."""
        members = self.plan.study.ensembles[run_key(wildcards)].members
        return [f"{self.plan.predict_folder(member)}/{PREDICT}" for member in members]

    def logits(self, wildcards: Any) -> str:
        """Record of the logits of a run."""
        return f"{self.plan.predict_folder(run_key(wildcards))}/{PREDICT}"

    def results_of(self, *rules: str) -> list[str]:
        """Files of the results of all jobs of some rules, without models and logits."""
        return [
            f"{job.folder}/{name}"
            for job in self.plan.jobs
            if job.rule in rules
            for name in RESULT_FILES[job.rule]
        ]

    def models(self) -> list[str]:
        """Models that must be there, unless the user may delete them."""
        if not self.plan.study.config.keep_models:
            return []
        folders = dict.fromkeys(map(self.plan.train_folder, self.plan.study.trained))
        return [f"{folder}/{MODEL}" for folder in folders]

    # files of the study ------------------------------------------------------------------------

    def record(self, name: str) -> str:
        """Record of files of the study; its name says from what they were made."""
        return self.layout.summary_record(name, self.plan.summary_fingerprint(name))

    def outdated(self, name: str) -> list[str]:
        """A file of this moment, if files of the study are there without their record.

        As an input it makes Snakemake replace these files, which other options or code made, even
        where a call names only them. Their names have no fingerprint.
        """
        hidden = Path(self.layout.file(HIDDEN))
        if Path(self.record(name)).is_file() or not hidden.is_dir():
            return []
        now = hidden / "outdated"
        try:
            now.touch()
        except OSError:  # results of somebody else, of which this is only a dry run
            return []
        return [str(now)]

    def write_plan(self, path: str) -> None:
        """Write the specifications of all jobs and the manifest of the study."""
        write_record(Path(path), self.plan.file())

    def check_writable(self) -> None:
        """Raise StateError if a folder is not writable in which a result or log is to be made."""
        folders = {Path(self.layout.file(HIDDEN))}
        for job in self.plan.jobs:
            if not Path(job.result).is_file():
                folders |= {Path(job.folder).parent, Path(self.plan.log(job)).parent}
        for folder in sorted(folders):
            existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
            if not os.access(existing, os.W_OK):
                raise StateError(
                    f"The folder {existing} is not writable: give another folder as 'results', or "
                    "change its permissions."
                )

    def drop_ambiguous_records(self) -> None:
        """Delete records of files of the study if there are several, as after a copy from a backup.

        These files are then made again.
        """
        for name in SUMMARIES:
            folder = Path(self.layout.file(HIDDEN))
            records = list(folder.glob(f"{name}-*.json"))
            if len(records) > 1:
                for record in records:
                    record.unlink(missing_ok=True)


def alternatives(values: Iterable[str]) -> str:
    """Regular expression that matches only the given strings."""
    return "|".join(re.escape(value) for value in sorted(values)) or "$^"
