"""Inputs, parameters and resources of the jobs, for the rules of the workflow.

Most are functions of wildcards that return strings or lists of paths: Snakemake notices a changed parameter only if its
function takes nothing but wildcards and returns a string.
"""

import functools
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from calgrid import extras, plugins
from calgrid.configuration.plan import Plan, as_json
from calgrid.configuration.repair import Repairs, find_repairs
from calgrid.configuration.resources import Resources
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError
from calgrid.storage import provenance
from calgrid.storage.layout import RunKey, family_unit, probe_files, run_key
from calgrid.storage.records import MODEL, ORIGIN

#: device files of the GPU drivers, checked because importing torch takes seconds
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def gpu_here() -> bool:
    """Whether this machine has a GPU."""
    return any(Path(path).exists() for path in GPU_DEVICES)


class Jobs:
    """The study as the rules see it.

    Parameters
    ----------
    config : configuration as Snakemake has merged it.
    home : folder of the workflow.
    local : jobs run on this machine (``device: cuda`` then needs a GPU here).
    repairs : find damaged results, so that their jobs run again.
    """

    def __init__(self, config: Mapping[str, Any], home: Path, local: bool, repairs: bool = False) -> None:
        self.home = home
        study = Study(config, home)
        self.layout, self.plan = study.layout, Plan(study)
        self.runs, self.evaluations, self.families = study.runs, study.evaluations, study.families
        self.data_root: str | None = study.config["data_root"]
        self.device: str = study.config["device"]
        self.results, self.study = self.layout.results, self.layout.study
        self.units = study.data_units()
        self._repairing = repairs
        if local and self.device == "cuda" and not gpu_here():
            raise ConfigError("device: 'cuda' is configured but this machine has no GPU; use device: cpu or auto.")
        #: GPUs of a training or prediction job
        self.gpus = 0 if self.device == "cpu" or (local and not gpu_here()) else 1
        #: memory and time of the jobs
        self.needs = Resources(study, self.gpus)

    def check_installed(self, conda: bool) -> None:
        """Check that the libraries of the jobs are installed; ``conda``: the rules have conda environments.

        Raises MissingLibraryError: a library of an extra is missing. ConfigError: jobs in conda environments need
        calgrid's source code, and this is not a checkout.
        """
        if conda and not (self.home / "src").is_dir():
            raise ConfigError(
                "Conda environments hold no calgrid: call snakemake from a checkout of it, or without --sdm conda."
            )
        if not conda:
            for extra in ("workflow", *(["train"] if self.plan.study.trained else [])):
                extras.require(extra)

    def check_merged(self) -> None:
        """Raise StateError if a run that was merged from an archive would have to be computed again."""
        if any(Path(self.layout.run(key), ORIGIN).exists() for key in self.plan.study.trained):
            self._repairs  # noqa: B018  (verifies all results)

    def export_environment(self) -> None:
        """Set the environment variables that all jobs inherit, also through a cluster's scheduler.

        Jobs run the code of this checkout, if it is one, in the environment of Snakemake (or in the rule's conda
        environment, whose folder comes first in PATH when it is active). With the time of planning, jobs do not repeat
        a stage that another process has completed since. The device is not part of a fingerprint, so it cannot be a
        parameter of a rule.
        """
        paths = {"PYTHONPATH": self.home / "src", "PATH": Path(sys.executable).parent}
        for variable, folder in paths.items():
            if not folder.is_dir():  # an installed package, which Python finds by itself
                continue
            os.environ[variable] = os.pathsep.join(filter(None, [str(folder), os.environ.get(variable)]))
        os.environ.setdefault("CALGRID_PLANNED_AT", str(time.time()))
        os.environ["CALGRID_DEVICE"] = self.device
        plugins.export()
        os.environ.setdefault(provenance.COMMIT_VARIABLE, provenance.commit())

    @functools.cached_property
    def _repairs(self) -> Repairs:
        """Damaged results, found when Snakemake first asks for the inputs of a job."""
        return find_repairs(self.plan) if self._repairing else Repairs()

    def repair_trigger(self, output: str) -> Callable[[Any], list[str]]:
        """Input function of a job: returns a file newer than all results if the job must run again, else nothing.

        Snakemake compares modification times only: it checks neither the content of files, nor files that are missing
        behind an existing target.
        """
        return lambda wildcards: [self.layout.repairs] * (output.format_map(vars(wildcards)) in self._repairs.again)

    def _unless_spared(self, manifests: Iterable[str], target: str) -> list[str]:
        """Manifests that a job reads, without those that are only restored, if all its outputs are correct.

        Otherwise Snakemake would run all jobs that depend on them; ``ancient`` would hide other changes as well. Inputs
        of runs from an archive are not needed.
        """
        if target in self._repairs.merged:
            return []
        spared = self._repairs.again if target in self._repairs.settled else frozenset()
        return [manifest for manifest in manifests if manifest not in spared]

    @property
    def wildcard_constraints(self) -> dict[str, str]:
        """Exactly the values that occur, escaped: ``tst+mbls`` and ``timm+...`` contain special characters."""
        fields = {name: {str(getattr(key, name)) for key in self.runs} for name in RunKey._fields}
        fields["backbone"] = {key.backbone_folder for key in self.runs}
        fields["probe"] = {name for evaluation in self.evaluations.values() for name in evaluation.probes}
        return {**{name: alternatives(values) for name, values in fields.items()}, "unit": alternatives(self.units)}

    @property
    def trained_protocols(self) -> str:
        """Regular expression of the protocols of runs that are trained, and not imported."""
        return alternatives({key.protocol for key in self.plan.study.trained})

    # data -----------------------------------------------------------------------------------------------------------

    def _base(self, unit: str) -> list[str]:
        base = self.plan.study.datasets.base(unit)
        return [self.layout.data(base)] if base else []

    def data_base(self, wildcards: Any) -> list[str]:
        """Manifest of the data set that a shift family corrupts."""
        return self._unless_spared(self._base(wildcards.unit), self.layout.data(wildcards.unit))

    def data_options(self, wildcards: Any) -> str:
        """Further options of ``calgrid data``."""
        spec = self.plan.data_spec(wildcards.unit)
        options = [f"--base {shlex.quote(str(Path(base).parent))}" for base in self._base(wildcards.unit)]
        options += [f"--spec {shlex.quote(as_json(spec))}"] if spec else []
        options += [f"--data-root {shlex.quote(self.data_root)}"] if self.data_root else []
        return " ".join(options)

    def data_fingerprint(self, wildcards: Any) -> str:
        """Fingerprint of a prepared data set."""
        return self.plan.data(wildcards.unit)

    # train ----------------------------------------------------------------------------------------------------------

    def data(self, wildcards: Any) -> list[str]:
        """Manifest of the data set that a run is trained on."""
        target = self.layout.record(run_key(wildcards), "train")
        return self._unless_spared([self.layout.data(wildcards.dataset)], target)

    def first_stage(self, wildcards: Any) -> list[str]:
        """Record of the run whose checkpoint a second stage starts from."""
        key = run_key(wildcards)
        first = self.plan.study.trained[key].first_stage
        needed = [self.layout.record(first, "train")] if first else []
        return self._unless_spared(needed, self.layout.record(key, "train"))

    def train_spec(self, wildcards: Any) -> str:
        """Resolved run, with its fingerprint."""
        return as_json(self.plan.train(run_key(wildcards)))

    def train_options(self, wildcards: Any) -> str:
        """Further options of ``calgrid train``."""
        first = self.plan.study.trained[run_key(wildcards)].first_stage
        options = [f"--first-stage {shlex.quote(f'{self.layout.run(first)}/{MODEL}')}"] if first else []
        if self.data_root and "checkpoint" in self.plan.train(run_key(wildcards)):
            options += [f"--data-root {shlex.quote(self.data_root)}"]
        return " ".join(options)

    # predict --------------------------------------------------------------------------------------------------------

    def predict_data(self, wildcards: Any) -> list[str]:
        """Manifests of a run's data set and of the prepared shift families."""
        key = run_key(wildcards)
        units = [key.dataset, *map(family_unit, self.families(key))]
        return self._unless_spared(map(self.layout.data, units), self.layout.record(key, "predict"))

    def predict_families(self, wildcards: Any) -> str:
        """Shift families on which the study scores a run."""
        return shlex.join(self.families(run_key(wildcards)))

    def predict_spec(self, wildcards: Any) -> str:
        """Resolved prediction of a run."""
        return as_json(self.plan.predict(run_key(wildcards)))

    # probe ----------------------------------------------------------------------------------------------------------

    def probe_data(self, wildcards: Any) -> list[str]:
        """Manifest of the data set that a probe reads."""
        _, record = probe_files(wildcards.probe)
        target = f"{self.layout.run(run_key(wildcards))}/{record}"
        return self._unless_spared([self.layout.data(wildcards.dataset)], target)

    def probe_spec(self, wildcards: Any) -> str:
        """Resolved probe of a run."""
        return as_json(self.plan.probe(run_key(wildcards), wildcards.probe))

    def probes(self) -> list[str]:
        """Records of all probes of the study."""
        wanted = [(key, name) for key, evaluation in self.evaluations.items() for name in evaluation.probes]
        return [f"{self.layout.run(key)}/{probe_files(name)[1]}" for key, name in wanted]

    # external -------------------------------------------------------------------------------------------------------

    def external_files(self, wildcards: Any) -> list[str]:
        """Files of an external run."""
        return list(map(str, self.plan.study.external_files(run_key(wildcards))))

    def external_spec(self, wildcards: Any) -> str:
        """Resolved import."""
        return as_json(self.plan.external(run_key(wildcards)))

    # calibrate and after --------------------------------------------------------------------------------------------

    def predictions(self, wildcards: Any) -> list[str]:
        """Record of the logits that the calibration of a run reads."""
        return [self.layout.record(run_key(wildcards), "predict")]

    def calibrate_spec(self, wildcards: Any) -> str:
        """Resolved calibration."""
        return as_json(self.plan.calibrate(run_key(wildcards)))

    def parts(self) -> list[str]:
        """Metrics files of all runs of the study."""
        return [f"{self.layout.part(key)}/metrics.parquet" for key in self.evaluations]

    def records(self) -> list[str]:
        """Records of all trained runs of the study and of their probes."""
        trained = [key for key in self.evaluations if key in self.plan.study.trained]
        return [*(self.layout.record(key, stage) for key in trained for stage in ("train", "predict")), *self.probes()]

    def stage_fingerprint(self, name: str) -> str:
        """Fingerprint of the code of a stage after calibration."""
        return self.plan.stage(name)


def alternatives(values: Iterable[str]) -> str:
    """Regular expression that matches exactly the given strings."""
    return "|".join(re.escape(value) for value in sorted(values)) or "$^"
