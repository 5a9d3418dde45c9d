"""Inputs, parameters and resources of the rules of the workflow.

Most are functions of wildcards that return strings or lists of paths: Snakemake detects a changed
parameter only if its function takes no other argument and returns a string.
"""

import functools
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from calgrid import optional as extras
from calgrid.components import plugins
from calgrid.configuration.plan import Plan, as_json
from calgrid.configuration.repair import Repairs, find_repairs
from calgrid.configuration.resources import Resources
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError
from calgrid.specs import JobSpec
from calgrid.storage import provenance
from calgrid.storage.layout import RunKey, family_unit, probe_files, run_key
from calgrid.storage.records import MODEL, ORIGIN

#: device files of the GPU drivers; importing torch would take seconds
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def gpu_here() -> bool:
    """Whether this machine has a GPU."""
    return any(Path(path).exists() for path in GPU_DEVICES)


class Jobs:
    """A study as the rules use it.

    Parameters
    ----------
    local : whether jobs run on this machine, so that ``device: cuda`` needs a GPU here.
    repairs : whether to look for damaged results and rerun their jobs.
    """

    def __init__(
        self, config: Mapping[str, Any], home: Path, local: bool, repairs: bool = False
    ) -> None:
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
                extras.require(extra)

    def check_merged(self) -> None:
        """Raise StateError if a run that was merged from an archive would have to be computed
        again.
        """
        if any(Path(self.layout.run(key), ORIGIN).exists() for key in self.plan.study.trained):
            self._repairs  # noqa: B018  (examines all results)

    def export_environment(self) -> None:
        """Set the environment variables of all jobs, here and on a cluster.

        Jobs run the code of this checkout, if it is one, in the environment that Snakemake was
        started from (an active conda environment of a rule comes first in PATH). The moment of
        planning prevents that a stage which another process completed later is computed twice. The
        device is an environment variable because parameters of rules would cause reruns.
        """
        paths = {"PYTHONPATH": self.home / "src", "PATH": Path(sys.executable).parent}
        for variable, folder in paths.items():
            if folder.is_dir():  # an installed package has no `src`
                os.environ[variable] = os.pathsep.join(
                    filter(None, [str(folder), os.environ.get(variable)])
                )
        os.environ.setdefault("CALGRID_PLANNED_AT", str(time.time()))
        os.environ["CALGRID_DEVICE"] = self.device
        plugins.export()
        os.environ.setdefault(provenance.COMMIT_VARIABLE, provenance.commit())

    @functools.cached_property
    def _repairs(self) -> Repairs:
        """Damaged results, found when Snakemake first evaluates the inputs of a job."""
        return find_repairs(self.plan) if self._repairing else Repairs()

    def repair_trigger(self, output: str) -> Callable[[Any], list[str]]:
        """Input function that returns a file newer than all results if the output of a job must be
        repaired.

        Snakemake does not check the content of files, nor whether files exist that an existing
        target depends on.
        """
        return lambda wildcards: (
            [self.layout.repairs] * (output.format_map(vars(wildcards)) in self._repairs.again)
        )

    def _unless_spared(self, manifests: Iterable[str], target: str) -> list[str]:
        """Input files of a job, without those that are repaired if its results are valid and
        current.

        Snakemake would rerun all jobs that depend on a repaired file, and ``ancient`` would also
        hide other changes. Runs from an archive have no inputs.
        """
        if target in self._repairs.merged:
            return []
        spared = self._repairs.again if target in self._repairs.settled else frozenset()
        return [manifest for manifest in manifests if manifest not in spared]

    @property
    def wildcard_constraints(self) -> dict[str, str]:
        """Regular expressions of the values that occur, escaped because of the plus in
        ``tst+mbls``.
        """
        fields = {name: {str(getattr(key, name)) for key in self.runs} for name in RunKey._fields}
        fields["backbone"] = {key.backbone_folder for key in self.runs}
        fields["probe"] = {
            name for evaluation in self.evaluations.values() for name in evaluation.probes
        }
        return {
            **{name: alternatives(values) for name, values in fields.items()},
            "unit": alternatives(self.units),
        }

    @property
    def trained_protocols(self) -> str:
        """Regular expression of the protocols of trained runs."""
        return alternatives({key.protocol for key in self.plan.study.trained})

    def data_base(self, wildcards: Any) -> list[str]:
        """Manifest of the data set that a shift family corrupts."""
        base = self.plan.study.datasets.base(wildcards.unit)
        return self._unless_spared(
            [self.layout.data(base)] if base else [], self.layout.data(wildcards.unit)
        )

    def data_options(self, wildcards: Any) -> str:
        """Other options of ``calgrid data``."""
        spec, base = (
            self.plan.data_spec(wildcards.unit),
            self.plan.study.datasets.base(wildcards.unit),
        )
        return _options(
            base=base and str(Path(self.layout.data(base)).parent),
            spec=spec and as_json(spec),
            data_root=self.data_root,
        )

    def spec(
        self, stage: Literal["train", "predict", "external", "calibrate"]
    ) -> Callable[[Any], str]:
        """Function that returns the specification of a stage of a run."""
        of_run: Callable[[RunKey], JobSpec] = getattr(self.plan, stage)
        return lambda wildcards: as_json(of_run(run_key(wildcards)))

    def data(self, wildcards: Any) -> list[str]:
        """Manifest of the data set that a run is trained on."""
        target = self.layout.record(run_key(wildcards), "train")
        return self._unless_spared([self.layout.data(wildcards.dataset)], target)

    def first_stage(self, wildcards: Any) -> list[str]:
        """Record of the first stage of a run."""
        key = run_key(wildcards)
        first = self.plan.study.trained[key].first_stage
        needed = [self.layout.record(first, "train")] if first else []
        return self._unless_spared(needed, self.layout.record(key, "train"))

    def train_options(self, wildcards: Any) -> str:
        """Other options of ``calgrid train``."""
        key = run_key(wildcards)
        first = self.plan.study.trained[key].first_stage
        return _options(
            first_stage=first and f"{self.layout.run(first)}/{MODEL}",
            data_root=self.data_root if "checkpoint" in self.plan.train(key) else None,
        )

    def predict_data(self, wildcards: Any) -> list[str]:
        """Manifests of the data set and the shift families of a run."""
        key = run_key(wildcards)
        units = [key.dataset, *map(family_unit, self.families(key))]
        return self._unless_spared(map(self.layout.data, units), self.layout.record(key, "predict"))

    def predict_families(self, wildcards: Any) -> str:
        """Shift families of the evaluation of a run."""
        return shlex.join(self.families(run_key(wildcards)))

    def probe_data(self, wildcards: Any) -> list[str]:
        """Manifest of the data set that a probe reads."""
        target = f"{self.layout.run(run_key(wildcards))}/{probe_files(wildcards.probe)[1]}"
        return self._unless_spared([self.layout.data(wildcards.dataset)], target)

    def probe_spec(self, wildcards: Any) -> str:
        """Specification of a probe of a run."""
        return as_json(self.plan.probe(run_key(wildcards), wildcards.probe))

    def probes(self) -> list[str]:
        """Records of all probes of the study."""
        wanted = [
            (key, name)
            for key, evaluation in self.evaluations.items()
            for name in evaluation.probes
        ]
        return [f"{self.layout.run(key)}/{probe_files(name)[1]}" for key, name in wanted]

    def external_files(self, wildcards: Any) -> list[str]:
        """Files of an external run."""
        return list(map(str, self.plan.study.external_files(run_key(wildcards))))

    def parts(self) -> list[str]:
        """Files with the metrics of all runs."""
        return [f"{self.layout.part(key)}/metrics.parquet" for key in self.evaluations]

    def records(self) -> list[str]:
        """Records of all trained runs and their probes."""
        trained = [key for key in self.evaluations if key in self.plan.study.trained]
        return [
            *(self.layout.record(key, stage) for key in trained for stage in ("train", "predict")),
            *self.probes(),
        ]


def _options(**values: str | None) -> str:
    """Options of a command, without those that have no value."""
    given = {name.replace("_", "-"): value for name, value in values.items() if value}
    return " ".join(f"--{name} {shlex.quote(value)}" for name, value in given.items())


def alternatives(values: Iterable[str]) -> str:
    """Regular expression that matches only the given strings."""
    return "|".join(re.escape(value) for value in sorted(values)) or "$^"
