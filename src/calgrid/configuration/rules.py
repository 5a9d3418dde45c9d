"""What the rules of the workflow ask: functions of wildcards that return strings or lists of paths.

Snakemake notices a changed parameter only if its function takes wildcards alone and returns a string.
"""

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calgrid.configuration.plan import Plan, as_json
from calgrid.configuration.repair import Repairs, find_repairs
from calgrid.configuration.resources import Resources, run_key
from calgrid.configuration.runs import EXTERNAL, RunKey, backbone_of, family_unit
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError
from calgrid.progress import log
from calgrid.storage import provenance
from calgrid.storage.clock import mend_future
from calgrid.storage.stage import FORCED

#: device files of the GPU drivers: looked at because asking torch takes seconds
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def gpu_here() -> bool:
    """Has this machine a GPU?"""
    return any(Path(path).exists() for path in GPU_DEVICES)


@dataclass(frozen=True)
class PredictGroup:
    """Runs whose predictions have the same output files: one rule of the workflow each.

    ``methods`` is a regular expression.
    """

    protocol: str
    dataset: str
    checkpoints: tuple[str, ...]
    families: tuple[str, ...]
    methods: str

    @property
    def name(self) -> str:
        """Name of the rule."""
        return "_".join(["predict", self.protocol, self.dataset, *self.checkpoints]).replace("-", "_")


class RuleBook:
    """The study as the rules see it.

    Parameters
    ----------
    config : configuration as Snakemake has merged it.
    home : folder of the workflow.
    local : jobs run on this machine (so that a GPU that is asked for must be here).
    """

    def __init__(self, config: Mapping[str, Any], home: Path, local: bool) -> None:
        self.home = home
        self.layout = (study := Study(config, home)).layout
        self.plan = Plan(study)
        self._base = study.datasets.base
        self.runs, self.evaluations, self.families = study.runs, study.evaluations, study.families
        self.data_root: str | None = study.config["data_root"]
        self.device: str = study.config["device"]
        self.results, self.study = self.layout.results, self.layout.study
        self._external_path = study.external_path
        self.units = study.data_units()
        self._repairs, self._forced = Repairs(), False
        if local and self.device == "cuda" and not gpu_here():
            raise ConfigError("device: 'cuda' was asked for but this machine has no GPU; use device: cpu or auto.")
        #: GPUs that a training or prediction job asks for
        self.gpus = 0 if self.device == "cpu" or (local and not gpu_here()) else 1
        #: memory and time of the jobs
        self.needs = Resources(study, self.gpus)

    def export_environment(self) -> None:
        """Set what all jobs inherit, here and through a cluster's scheduler.

        Jobs run exactly this checkout, in the environment that Snakemake was started from (or in the rule's conda
        environment, whose folder comes first in PATH when it is active). A stage that another process completed
        after the moment of planning is not computed twice. The device is no part of a fingerprint, so it cannot be a
        parameter of a rule.
        """
        paths = {"PYTHONPATH": self.home / "src", "PATH": Path(sys.executable).parent}
        for variable, folder in paths.items():
            os.environ[variable] = os.pathsep.join(filter(None, [str(folder), os.environ.get(variable)]))
        os.environ.setdefault("CALGRID_PLANNED_AT", str(time.time()))
        os.environ["CALGRID_DEVICE"] = self.device
        os.environ.setdefault(provenance.COMMIT_VARIABLE, provenance.commit())

    def mend_times(self) -> None:
        """Correct times in the future of all files that jobs of the study make and read."""
        predicted = [path for group in self.predict_groups() for path in self.predict_outputs(group)]
        names = {Path(pattern).relative_to(self.results).parts[6:] for pattern in predicted}
        kept = [("model.safetensors",), ("history.parquet",), ("train.json",), *sorted(names)]
        runs = (f"{self.layout.run(key)}/{'/'.join(name)}" for key in self.runs for name in kept)
        records = (f"{self.layout.part(key)}/calibrate.json" for key in self.evaluations)
        mended = mend_future([*map(self.layout.data, self.units), *runs, *self.parts(), *records])
        if mended:
            log(
                f"Warning: the times of {len(mended)} files, such as {mended[0]}, lay in the future, because a clock "
                "was ahead, and are now the present one; what was made of them and looks older now is made once more."
            )

    def repair(self, forced: bool) -> frozenset[str]:
        """Return the targets of jobs whose results are damaged, or missing under what is made of them.

        Parameters
        ----------
        forced : the user forces jobs: they, and what is made of theirs, compute again what is complete.
        """
        self._repairs, self._forced = find_repairs(self.plan), forced
        if forced:
            os.environ[FORCED] = "1"
        return self._repairs.again

    def is_settled(self, outputs: Iterable[str]) -> bool:
        """Were the outputs of a job right and current when the grid was planned?"""
        return not self._repairs.settled.isdisjoint(map(str, outputs))

    def _unless_spared(self, manifests: Iterable[str], target: str) -> list[str]:
        """Manifests that a job reads; but where all it wrote is right, not those that are only made again as they were.

        Snakemake would run every job behind them, and ``ancient`` would also hide what else has changed for those.
        """
        spared = self._repairs.again if self.is_settled([target]) and not self._forced else frozenset()
        return [manifest for manifest in manifests if manifest not in spared]

    @property
    def wildcard_constraints(self) -> dict[str, str]:
        """Exactly the values that occur, escaped: ``tst+mbls`` and ``timm+...`` hold special characters."""
        fields = {name: {str(getattr(key, name)) for key in self.runs} for name in RunKey._fields}
        fields["backbone"] = {key.backbone_folder for key in self.runs}
        fields["probe"] = {name for evaluation in self.evaluations.values() for name in evaluation.probes}
        return {**{name: alternatives(values) for name, values in fields.items()}, "unit": alternatives(self.units)}

    @staticmethod
    def key(wildcards: Any) -> RunKey:
        """Run that a job's wildcards name."""
        return run_key(wildcards)

    # data -----------------------------------------------------------------------------------------------------------

    def data_base(self, wildcards: Any) -> list[str]:
        """Manifest of the data set that a shift family corrupts."""
        base = self._base(wildcards.unit)
        return self._unless_spared([self.layout.data(base)] if base else [], self.layout.data(wildcards.unit))

    def data_options(self, wildcards: Any) -> str:
        """Further options of ``calgrid data``."""
        base, spec = self._base(wildcards.unit), self.plan.data_spec(wildcards.unit)
        options = [f"--base {shlex.quote(str(Path(self.layout.data(base)).parent))}"] if base else []
        options += [f"--spec {shlex.quote(as_json(spec))}"] if spec else []
        options += [f"--data-root {shlex.quote(self.data_root)}"] if self.data_root else []
        return " ".join(options)

    def data_fingerprint(self, wildcards: Any) -> str:
        """Fingerprint of a prepared data set."""
        return self.plan.data(wildcards.unit)

    # train ----------------------------------------------------------------------------------------------------------

    def data(self, wildcards: Any) -> list[str]:
        """Manifest of the data set that a run is trained on."""
        target = self.layout.record(self.key(wildcards), "train")
        return self._unless_spared([self.layout.data(wildcards.dataset)], target)

    def first_stage(self, wildcards: Any) -> list[str]:
        """Checkpoint that a second stage starts from."""
        first = self.runs[self.key(wildcards)].first_stage
        return [f"{self.layout.run(first)}/model.safetensors"] if first else []

    def train_spec(self, wildcards: Any) -> str:
        """Resolved run, with its fingerprint."""
        return as_json(self.plan.train(self.key(wildcards)))

    def train_options(self, wildcards: Any) -> str:
        """Further options of ``calgrid train``."""
        fetched = "checkpoint" in self.plan.train(self.key(wildcards))
        return f"--data-root {shlex.quote(self.data_root)}" if fetched and self.data_root else ""

    # predict --------------------------------------------------------------------------------------------------------

    def predict_groups(self) -> list[PredictGroup]:
        """Groups of runs with the same logits files."""
        members: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
        for key, run in self.runs.items():
            if run.external is None:
                members.setdefault((key.protocol, key.dataset, run.checkpoints), set()).add(key.method)
        return [
            PredictGroup(protocol, dataset, checkpoints, tuple(self.families(protocol, dataset)), alternatives(methods))
            for (protocol, dataset, checkpoints), methods in members.items()
        ]

    def predict_outputs(self, group: PredictGroup) -> list[str]:
        """Patterns of the files that the group's rule writes."""
        run = (
            f"{self.results}/runs/{group.protocol}/{group.dataset}/{{backbone}}/{{method,{group.methods}}}/seed{{seed}}"
        )
        names = [f"logits/{c}/{name}.parquet" for c in group.checkpoints for name in ("val", "test", *group.families)]
        return [f"{run}/{name}" for name in ("predict.json", *names)]

    def predict_data(self, group: PredictGroup) -> Callable[[Any], list[str]]:
        """Function that returns the manifests of a run's data set and of the prepared shift families."""
        manifests = [self.layout.data(unit) for unit in (group.dataset, *map(family_unit, group.families))]
        return lambda wildcards: self._unless_spared(
            manifests, self.layout.record(self._member(group, wildcards), "predict")
        )

    def run_folder(self, group: PredictGroup) -> Callable[[Any], str]:
        """Function that returns the folder of a run of the group."""
        return lambda wildcards: self.layout.run(self._member(group, wildcards))

    def data_folder(self, group: PredictGroup) -> Callable[[Any], str]:
        """Function that returns the folder of the group's prepared data set."""
        return lambda wildcards: str(Path(self.layout.data(group.dataset)).parent)

    @staticmethod
    def _member(group: PredictGroup, wildcards: Any) -> RunKey:
        backbone = backbone_of(wildcards.backbone)
        return RunKey(group.protocol, group.dataset, backbone, wildcards.method, int(wildcards.seed))

    def predict_spec(self, group: PredictGroup) -> Callable[[Any], str]:
        """Function that returns the resolved prediction of a run of the group."""
        return lambda wildcards: as_json(self.plan.predict(self._member(group, wildcards)))

    # probe ----------------------------------------------------------------------------------------------------------

    def probe_folder(self, wildcards: Any) -> str:
        """Folder of a run."""
        return self.layout.run(self.key(wildcards))

    def probe_data(self, wildcards: Any) -> list[str]:
        """Manifest of the data set that a probe reads."""
        target = self.layout.probe(self.key(wildcards), wildcards.probe, "json")
        return self._unless_spared([self.layout.data(wildcards.dataset)], target)

    def probe_spec(self, wildcards: Any) -> str:
        """Resolved probe of a run."""
        return as_json(self.plan.probe(self.key(wildcards), wildcards.probe))

    def probes(self, suffix: str = "parquet") -> list[str]:
        """Tables of all probes of the study, or with the suffix ``json`` their records."""
        wanted = [(key, name) for key, evaluation in self.evaluations.items() for name in evaluation.probes]
        return [self.layout.probe(key, name, suffix) for key, name in wanted]

    # external -------------------------------------------------------------------------------------------------------

    def has_external(self) -> bool:
        """Does the study bring logits from elsewhere?"""
        return any(run.external is not None for run in self.runs.values())

    def _external_key(self, wildcards: Any) -> RunKey:
        backbone = backbone_of(wildcards.backbone)
        return RunKey(EXTERNAL, wildcards.dataset, backbone, wildcards.method, int(wildcards.seed))

    def external_files(self, wildcards: Any) -> list[str]:
        """Files of an external run: val (where there is one), test, and the last layer (where it is given)."""
        external = self.runs[self._external_key(wildcards)].external
        return [str(self._external_path(external[role])) for role in ("val", "test", "head") if role in external]

    def external_spec(self, wildcards: Any) -> str:
        """Resolved import."""
        return as_json(self.plan.external(self._external_key(wildcards)))

    # calibrate and after --------------------------------------------------------------------------------------------

    def logits(self, wildcards: Any) -> list[str]:
        """All logits files that the calibration of a run reads."""
        key = self.key(wildcards)
        names = ["val", "test", *self.evaluations[key].families]
        return [self.layout.logits(key, checkpoint, n) for checkpoint in self.runs[key].checkpoints for n in names]

    def calibrate_spec(self, wildcards: Any) -> str:
        """Resolved calibration."""
        return as_json(self.plan.calibrate(self.key(wildcards)))

    def parts(self) -> list[str]:
        """Metrics files of all runs of the study."""
        return [f"{self.layout.part(key)}/metrics.parquet" for key in self.evaluations]

    def records(self) -> list[str]:
        """Records of all trained runs of the study and of their probes."""
        trained = [self.layout.run(key) for key in self.evaluations if key.protocol != EXTERNAL]
        records = [f"{run}/{name}" for run in trained for name in ("train.json", "predict.json")]
        return [*records, *self.probes("json")]

    def stage_fingerprint(self, name: str) -> str:
        """Fingerprint of the code of a stage after calibration."""
        return self.plan.stage(name)


def alternatives(values: Iterable[str]) -> str:
    """Regular expression that matches exactly the given strings."""
    return "|".join(re.escape(value) for value in sorted(values)) or "$^"
