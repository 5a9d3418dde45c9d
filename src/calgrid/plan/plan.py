"""All jobs of a study: specifications (:mod:`calgrid.storage.specs`), fingerprints, folders.

A fingerprint covers the options, the code and the user's files that determine a result, and names
its folder. :mod:`calgrid.plan.pending` finds the jobs to run.
"""

import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, cast

from calgrid.components import copies, fingerprint, plugins, registry
from calgrid.components.options import Options
from calgrid.errors import ConfigError
from calgrid.plan.kinds import DAY, DECODE_THREADS, KINDS, Need, kind
from calgrid.storage import specs
from calgrid.storage.manifest import (
    Manifest,
    ManifestPaper,
    ManifestRun,
    MeasuredProbe,
    PlanFile,
    PlannedInputs,
)
from calgrid.storage.records import (
    HIDDEN,
    HISTORY,
    ID_LENGTH,
    MADE_FROM,
    MANIFEST,
    MODEL,
    OOD_GROUPS,
    OOD_PREFIX,
    PLUGINS,
    PREDICT,
    PREPARE,
    PROBE_TABLE,
    RUN_PATH,
    SPLITS,
    STUDY_STAGES,
    TRAIN_SPLIT,
    RunKey,
    image_set_of,
    sharing_rows,
)
from calgrid.storage.schema import DRAWN, METRICS
from calgrid.storage.sources import source_digest
from calgrid.study.datasets import PLANNED_FACTS
from calgrid.study.model import Scoring
from calgrid.study.papers import (
    DECLARED,
    PUBLISHED,
    line_of,
    own_protocols,
    paper_folder,
)
from calgrid.study.protocols import described, training_options
from calgrid.study.runs import Ensemble, ExternalRun, Run
from calgrid.study.slow_checks import check_external
from calgrid.study.study import Study
from calgrid.training.protocol import TrainingProtocol

#: logits are missed by their record alone
LOGITS = {"logits": "logits/"}
#: keys of a configuration that do not affect results
OF_THE_MACHINE = {"device", "keep_models"}


@dataclass(frozen=True)
class Job(Generic[specs.Spec]):
    """A job for one folder, or a stage for files of the study.

    Attributes
    ----------
    kind : a key of :data:`calgrid.plan.kinds.KINDS`.
    about : path of its run, or its data set or shift family, or the study.
    folder : folder of its result, whose name ends in the start of the fingerprint; of a stage, the
        study's folder.
    log : its log, as the rules name it; '' of a stage.
    spec : specification, with its fingerprint; of a stage, nothing else.
    code : digest of its code (:func:`calgrid.components.fingerprint.modules_of`).
    files : path -> SHA-256 of each file or folder of the user that it reads.
    module : module whose ``run`` makes it.
    above : jobs directly upstream.
    reads : files of upstream results, or the user's files of an import, in the order of the job.
    """

    kind: str
    about: str
    folder: str
    log: str
    spec: specs.Spec
    code: str
    module: str
    files: Mapping[str, str] = field(default_factory=dict)
    above: "tuple[Job[Any], ...]" = ()
    reads: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Fingerprint of everything that determines the result."""
        return self.spec["fingerprint"]

    @property
    def id(self) -> str:
        """End of the folder's name."""
        return self.fingerprint[:ID_LENGTH]

    @property
    def is_stage(self) -> bool:
        """Whether the job makes files of the study."""
        return self.kind in MADE_FROM

    @property
    def record(self) -> str:
        """Name of the record in its folder."""
        return KINDS[self.kind].record or f"{HIDDEN}/{self.kind}-{self.id}.json"

    @property
    def result(self) -> str:
        """Path of the record."""
        return f"{self.folder}/{self.record}"

    @property
    def files_of_result(self) -> list[str]:
        """Record and required files of the result."""
        return [f"{self.folder}/{name}" for name in (self.record, *KINDS[self.kind].files.values())]


class Plan:
    """Jobs of a study, cached."""

    def __init__(self, study: Study) -> None:
        self.study = study

    # Memory is at least twice the largest peak of the kind of job in benchmarks/full_size.md, which
    # includes 200 MB for Snakemake on the node. Peaks of large trainings, predictions and probes
    # were not measured: they are the sizes of weights, images and activations.
    @kind(
        "data",
        Need(1500, 120),
        Need(4000, 480, DECODE_THREADS),
        record=PREPARE,
        files={"manifest": MANIFEST},
        read=MANIFEST,
        place="data/{image_set}",
        log="data/{image_set}",
        rule="prepare_data",
        environment="data",
    )
    @functools.cache
    def data(self, image_set: str, val_seed: int | None = None) -> Job[specs.DataSpec]:
        """Job of a data set, with a draw of validation images, or of a shift family.

        Facts of a configured data set follow from what its fingerprint covers.
        """
        datasets = self.study.datasets
        definition, of = datasets.definition(image_set), datasets.base(image_set)
        base = None if of is None else self.data(of)
        description = datasets.describe(image_set)
        modules = [description.module, "calgrid.datasets.preparation"]
        content = {
            "image_set": image_set,
            "base": None if base is None else base.fingerprint,
            **definition,
        }
        spec: specs.DataSpec = {
            "image_set": image_set,
            "base": None if base is None else base.folder,
            "configured": None,
            "fingerprint": "",
        }
        if val_seed is not None:
            content["val_seed"] = spec["val_seed"] = val_seed
        sources = definition.get("sources", {})
        files = {str(self.study.data_root / name): sha256 for name, sha256 in sources.items()}
        above = () if base is None else (base,)
        job = self._job(
            "data",
            image_set,
            {"image_set": image_set},
            spec,
            modules,
            content=content,
            files=files,
            above=above,
        )
        if definition:
            info = description.info
            configured = {
                "image_set": image_set,
                **definition,
                "info": {name: info[name] for name in PLANNED_FACTS if name in info},
                "fingerprint": job.fingerprint,
            }
            spec["configured"] = cast(specs.ConfiguredData, configured)
        return job

    @kind(
        "train",
        Need(4000, DAY // 2, gpus=1),
        Need(16_000, DAY, DECODE_THREADS, gpus=1),
        files={"history": HISTORY},
        removable={"model": MODEL},
        read=MODEL,
        environment="train",
    )
    @functools.cache
    def train(self, key: RunKey) -> Job[specs.TrainSpec]:
        """Training of a run, shared by runs that differ only in tests."""
        key = self.study.training[key]
        run = self.study.trained[key]
        method, modules = run.method, ["calgrid.jobs.published"]
        above: list[Job[Any]] = [self._data_of(key)]
        files = {}
        spec: specs.TrainSpec = {
            "key": _key(key),
            "protocol": training_options(run.protocol),
            "procedure": {"id": method.procedure, "options": dict(method.procedure_options)},
            "data": above[0].fingerprint,
            "first_stage": None,
            "fingerprint": "",
        }
        if run.first_stage is not None:
            above.append(first := self.train(run.first_stage))
            spec["first_stage"] = {
                "fingerprint": first.fingerprint,
                "checkpoint": self.study.trained[run.first_stage].checkpoints[0],
            }
        if isinstance(run.protocol, TrainingProtocol):
            spec["loss"] = {"id": method.loss, "options": dict(method.loss_options)}
            job = "distributed" if run.gpus > 1 else "train"
            modules = [f"calgrid.jobs.{job}", registry.describe("loss", method.loss).module]
        if run.checkpoint is not None:
            spec["checkpoint"] = run.checkpoint
            if "source" in run.checkpoint:
                path = self.study.data_root / run.checkpoint["name"]
                files[str(path)] = run.checkpoint["source"]
        module = modules[0]
        modules += _network_modules(run)
        return self._job(
            "train",
            key.path,
            key.wildcards,
            spec,
            modules,
            module=module,
            files=files,
            above=above,
        )

    def _data_of(self, key: RunKey) -> Job[specs.DataSpec]:
        """Job of the data set of a trained run."""
        return self.data(key.dataset, self.study.val_seed(key))

    @kind(
        "predict",
        Need(3000, 240, gpus=1),
        Need(10_000, 480, DECODE_THREADS, gpus=1),
        removable=LOGITS,
        environment="train",
    )
    @functools.cache
    def predict(self, key: RunKey) -> Job[specs.PredictSpec]:
        """Prediction of a trained run."""
        tested = self._of_test(key)
        run, families = self.study.trained[key], self.study.families(key)
        prepared = [self.data(image_set_of(name)) for name in families]
        shifts = {name: job.fingerprint for name, job in zip(families, prepared, strict=True)}
        constants = self._test_constants(key, [key.dataset, *map(image_set_of, families)])
        modules = ["calgrid.jobs.predict", *_network_modules(run)]
        shared = {**tested, **run.protocol.model_dump(include={"export_features", "test_views"})}
        # each file of logits has its own fingerprint: it can be reused from a prediction with other
        # shift families
        files = {}
        trained = [TRAIN_SPLIT] if run.protocol.export_features == TRAIN_SPLIT else []
        for name in (*SPLITS, *trained, *shifts):
            dataset = image_set_of(name) if name.startswith(OOD_PREFIX) else key.dataset
            images = {
                "name": name,
                "images": shifts.get(name),
                "constants": None if name in ("val", *trained) else constants.get(dataset),
            }
            files[name] = fingerprint.of_job({**shared, **images}, modules)
        spec = cast(specs.PredictSpec, {**shared, "shifts": shifts, "files": files})
        spec["test_normalisation"] = constants
        above: list[Job[Any]] = [self.train(key), self._data_of(key), *prepared]
        return self._job("predict", key.path, key.wildcards, spec, modules, above=above)

    @kind(
        "probe",
        Need(3000, 120, gpus=1),
        Need(10_000, 240, DECODE_THREADS, gpus=1),
        files={"table": PROBE_TABLE},
        place=f"runs/{RUN_PATH}/probe_{{probe}}",
        log=f"probe_{{probe}}/{RUN_PATH}",
        environment="probe",
    )
    @functools.cache
    def probe(self, key: RunKey, name: str) -> Job[specs.ProbeSpec]:
        """Measurement of a trained run by a probe."""
        probe = self.study.evaluations[key].probes[name]
        spec: specs.ProbeSpec = {
            **self._of_test(key),
            "test_normalisation": self._test_constants(key, [key.dataset]),
            "probe": probe,
        }
        module = registry.describe("probe", probe["id"]).module
        network = _network_modules(self.study.trained[key])
        modules = ["calgrid.jobs.probe", module, *network]
        above: list[Job[Any]] = [self.train(key), self._data_of(key)]
        wildcards = {**key.wildcards, "probe": name}
        return self._job("probe", key.path, wildcards, spec, modules, above=above)

    def _of_test(self, key: RunKey) -> specs.TestSpec:
        """Shared specification of predictions and probes of a run."""
        return {
            "key": _key(key),
            "checkpoints": list(self.study.trained[key].checkpoints),
            "run_fingerprint": self.train(key).fingerprint,
            "test_normalisation": {},
            "fingerprint": "",
        }

    def _test_constants(self, key: RunKey, tested: Iterable[str]) -> dict[str, specs.Normalisation]:
        """Constants of another data set for the test images of some of the tested data sets."""
        constants: dict[str, specs.Normalisation] = {}
        for dataset, of in self.study.trained[key].protocol.test_normalisation.items():
            if dataset in tested:
                info = self.study.datasets.describe(of).info
                constants[dataset] = {"mean": tuple(info["mean"]), "std": tuple(info["std"])}
        return constants

    @kind(
        "import",
        Need(2100, 30),
        Need(8000, 30),
        module="calgrid.jobs.import_logits",
        record=PREDICT,
        removable=LOGITS,
        rule="import_external",
        environment="calibrate",
    )
    @functools.cache
    def external(self, key: RunKey) -> Job[specs.ExternalSpec]:
        """Import of external logits."""
        reads = tuple(map(str, self.study.external_files(key)))
        files = {path: self._digest(Path(path)) for path in reads}
        spec: specs.ExternalSpec = {
            "key": _key(key),
            "external": self.study.external[key].external,
            "sources": list(files.values()),
            "fingerprint": "",
        }
        return self._job(
            "import",
            key.path,
            key.wildcards,
            spec,
            [KINDS["import"].module],
            files=files,
            reads=reads,
        )

    @kind(
        "ensemble",
        Need(2100, 30),
        Need(13_000, 60),
        record=PREDICT,
        removable=LOGITS,
        environment="calibrate",
    )
    @functools.cache
    def ensemble(self, key: RunKey) -> Job[specs.EnsembleSpec]:
        """Pooling of the members of an ensemble."""
        made = self.study.ensembles[key]
        seeds = self.study.evaluations[key].calibrator_seeds
        calibrator = None if made.calibrator is None else self._fitted(made.calibrator, seeds)
        modules = ["calgrid.jobs.ensemble"]
        if calibrator is not None:
            modules.append(registry.describe("calibrator", calibrator["id"]).module)
        spec: specs.EnsembleSpec = {
            "key": _key(key),
            "members": [
                {"seed": member.seed, "logits": self._logits(member)} for member in made.members
            ],
            "checkpoints": list(made.checkpoints),
            "families": list(self.study.evaluations[key].families),
            "pool": made.pool,
            "calibrator": calibrator,
            "disjoint_validation": made.disjoint_validation,
            "fingerprint": "",
        }
        above = list(map(self.predicted, made.members))
        return self._job(
            "ensemble", key.path, key.wildcards, spec, modules, content={**spec}, above=above
        )

    def predicted(self, key: RunKey) -> Job[Any]:
        """Job that makes the logits of a run: prediction, import or pooling."""
        if key in self.study.ensembles:
            return self.ensemble(key)
        if key in self.study.external:
            return self.external(key)
        return self.predict(key)

    def _logits(self, key: RunKey) -> dict[str, str]:
        """Fingerprint of each file of logits of a run that is evaluated."""
        if key in self.study.trained:
            return self.predict(key).spec["files"]
        families = self.study.evaluations[key].families
        return dict.fromkeys((*SPLITS, *families), self.predicted(key).fingerprint)

    def run_fingerprint(self, key: RunKey) -> str:
        """Fingerprint of a run in the tables of results."""
        made = self.train(key) if key in self.study.trained else self.predicted(key)
        return made.fingerprint

    @property
    def _metric_modules(self) -> list[str]:
        return [registry.describe("metric", name).module for name in self.study.own_metrics]

    @kind(
        "calibrate",
        Need(2000, 120),
        Need(13_000, DAY // 2, 2),
        files={"metrics": METRICS},
        environment="calibrate",
        in_processes=True,
    )
    @functools.cache
    def calibrate(self, key: RunKey) -> Job[specs.CalibrateSpec]:
        """Calibration and scoring of a run."""
        run, wanted = self.study.runs[key], self.study.evaluations[key]
        statistics, seeds = self.study.config.statistics, wanted.calibrator_seeds
        label_counts: specs.LabelCounts | None = None
        files = {}
        if (counts := self.study.label_counts(key)) is not None:
            files[str(counts)] = self._digest(counts)
            label_counts = {"file": str(counts), "sha256": files[str(counts)]}
        spec: specs.CalibrateSpec = {
            "key": _key(key),
            "checkpoints": list(run.checkpoints),
            "families": list(wanted.families),
            "some_classes": list(filter(self.study.datasets.has_some_classes, wanted.families)),
            "ood_groups": self._ood_groups(key),
            "fit_on": list(wanted.fit_on),
            "draws": list(seeds) if DRAWN & {*wanted.fit_on} else [],
            "calibrators": [self._fitted(entry, seeds) for entry in wanted.calibrators.values()],
            "statistics": statistics.model_dump(
                include=set(Scoring.model_fields), exclude_none=True
            ),
            "run_fingerprint": self.run_fingerprint(key),
            "logits": self._logits(key),
            "label_counts": label_counts,
            "disjoint_validation": run.disjoint_validation,
            "fingerprint": "",
        }
        modules = ["calgrid.jobs.calibrate", *self._metric_modules]
        for entry in spec["calibrators"]:
            modules.append(registry.describe("calibrator", entry["id"]).module)
        above = [self.predicted(key)]
        return self._job(
            "calibrate",
            key.path,
            key.wildcards,
            spec,
            modules,
            content={**spec},
            files=files,
            above=above,
        )

    def _ood_groups(self, key: RunKey) -> dict[str, list[str]]:
        """Scored out-of-distribution sets that are near to the data set of a run, and far."""
        families = self.study.evaluations[key].families
        if not families:  # of logits made elsewhere, whose data set may be unknown
            return {}
        info = self.study.datasets.describe(key.dataset).info
        groups = {}
        for group in OOD_GROUPS:
            declared = info.get(group, ())
            groups[group] = [name for name in families if name in declared]
        return groups

    def _job(
        self,
        kind: str,
        about: str,
        wildcards: Mapping[str, Any],
        spec: specs.Spec,
        modules: Iterable[str],
        *,
        content: Options | None = None,
        module: str = "",
        files: Mapping[str, str] = MappingProxyType({}),
        above: Iterable[Job[Any]] = (),
        reads: tuple[str, ...] = (),
    ) -> Job[specs.Spec]:
        """Job of a data set or run; the wildcards name its folder and log, as in its rule. Sets the
        fingerprint of its specification: of the modules, and of ``content``, by default the other
        keys and the upstream fingerprints.
        """
        declared, roots, above = KINDS[kind], tuple(sorted(set(modules))), tuple(above)
        content = dict(content or {**spec, "above": [job.fingerprint for job in above]})
        content.pop("fingerprint", None)
        digest = spec["fingerprint"] = fingerprint.of_job(content, roots)
        results, id = self.study.folder.parent, digest[:ID_LENGTH]
        return Job(
            kind,
            about,
            f"{results}/{declared.place.format_map(wildcards)}-{id}",
            f"{results}/logs/{declared.log.format_map(wildcards)}-{id}.log",
            spec,
            fingerprint.code_digest(roots),
            module or declared.module,
            files,
            above,
            reads or tuple(f"{job.folder}/{KINDS[job.kind].read or job.record}" for job in above),
        )

    def _fitted(self, entry: specs.Calibrator, seeds: Iterable[int]) -> specs.FittedCalibrator:
        """A calibrator with its seeds, and the fingerprint of its code and options."""
        options = json.dumps(entry["options"], sort_keys=True)
        module = registry.describe("calibrator", entry["id"]).module
        return {
            **entry,
            "seeds": list(seeds) if entry["stochastic"] else list(seeds)[:1],
            "fingerprint": fingerprint.of_job(
                {"name": entry["name"], "options": options}, [module]
            ),
        }

    @functools.cache
    def _digest(self, path: Path) -> str:
        return source_digest(None, str(path))

    @functools.cache
    def manifest(self) -> Manifest:
        """Input of aggregation and report: runs with their fingerprints, papers, and the
        configuration.
        """
        config = self.study.config.model_dump(exclude_none=True, exclude=OF_THE_MACHINE)
        imported = {key.protocol for key in self.study.external}
        papers: list[ManifestPaper] = []
        for name in self.study.config.papers:
            protocols = own_protocols(self.study.home, name, self.study.config)
            published = str(paper_folder(self.study.home, name) / PUBLISHED)
            own = [each for each in protocols if each not in imported]
            papers.append({"name": name, "published": published, "own_protocols": own})
        paths = [*map(str, self.study.published()), *(paper["published"] for paper in papers)]
        digests = {path: self._digest(Path(path)) for path in paths}
        content = {
            "published": list(digests),
            "published_sha256": digests,
            "papers": papers,
            "protocols": self._described(imported),
            "lines": line_of(self.study.config),
            "runs": list(map(self._manifest_run, self.study.evaluations)),
            "folders": [job.folder for job in self.jobs],
            "configuration": config,
        }
        digest = fingerprint.of_job(content, self._stage_modules("aggregate"))
        given = self.study.config.model_dump(exclude_unset=True)
        return cast(Manifest, {**content, "given": given, "fingerprint": digest})

    def _described(self, imported: Iterable[str]) -> dict[str, str]:
        """Protocol -> description in words; unknown for ``imported`` logits."""
        said = {}
        for name in dict.fromkeys(key.protocol for key in self.study.trained):
            said[name] = described(self.study.protocols.get(name, "protocols"))
        elsewhere = "logits that were not made by this study"
        for name in sorted(imported):
            said[name] = f"{said[name]}; and {elsewhere}" if name in said else elsewhere
        return said

    def _warning(self, key: RunKey) -> str:
        """Warning shown with all results of a run; usually empty."""
        datasets = self.study.datasets
        said = [datasets.facts(key.dataset).get("warning", "")]
        restricted = filter(datasets.has_some_classes, self.study.evaluations[key].families)
        for family in restricted:
            said.append(
                f"{family} is scored among the classes that it has, so that its numbers do not "
                "compare with those of the clean images"
            )
        return "; ".join(filter(None, said))

    def _manifest_run(self, key: RunKey) -> ManifestRun:
        made, wanted = self.study.runs[key], self.study.evaluations[key]
        members = made.members if isinstance(made, Ensemble) else (key,)
        external = any(each in self.study.external for each in members)
        calibrated = self.calibrate(key)
        run: ManifestRun = {
            "key": _key(key),
            "train": None,
            "predict": self.predicted(key).folder,
            "calibrate": calibrated.folder,
            "first_stage": None,
            "fingerprint": calibrated.fingerprint,
            "external": external,
            "families": calibrated.spec["families"],
            "ood_groups": calibrated.spec["ood_groups"],
            "sees_validation": made.sees_validation,
            "draws_validation": made.draws_validation,
            "warning": self._warning(key),
        }
        if groups := self.study.datasets.facts(key.dataset).get("class_groups"):
            run["class_groups"] = groups
        if isinstance(made, ExternalRun):
            run["bank"] = "bank" in made.external
        if isinstance(made, Run):
            run["train"] = self.train(key).folder
            if (first := made.first_stage) is not None:
                run["first_stage"] = {"method": first.method, "train": self.train(first).folder}
        if isinstance(made, Ensemble) and not external:
            stages = [*members, *(self.study.trained[member].first_stage for member in members)]
            run["members"] = [self.train(stage).folder for stage in stages if stage is not None]
        if further := self.further(key):
            run["further"] = [job.folder for job in further]
        if wanted.probes:
            run["probes"] = []
        for job in (self.probe(key, name) for name in wanted.probes):
            made_of = {"fingerprint": job.fingerprint, "folder": job.folder}
            run["probes"].append(cast(MeasuredProbe, {**job.spec["probe"], **made_of}))
        return run

    @functools.cached_property
    def jobs(self) -> list[Job[Any]]:
        """All jobs of data sets and runs, in topological order: upstream jobs first."""
        base = self.study.datasets.base
        prepared = sorted(self.study.prepared(), key=lambda each: bool(base(each[0])))
        jobs: list[Job[Any]] = [self.data(image_set, seed) for image_set, seed in prepared]
        jobs += map(self.train, dict.fromkeys(self.study.training.values()))
        for key in self.study.evaluations:
            jobs += [self.predicted(key), self.calibrate(key), *self.further(key)]
        return jobs

    def further(self, key: RunKey) -> list[Job[Any]]:
        """Jobs of a run beside its predictions and scores: probes."""
        return [self.probe(key, name) for name in self.study.evaluations[key].probes]

    def counts(self) -> str:
        """Runs and jobs of the study in a sentence, the same in all commands."""
        jobs, runs = Counter(job.kind for job in self.jobs), len(self.study.evaluations)
        jobs.update(STUDY_STAGES)
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in jobs.items())
        return f"{runs:,} run{'s' * (runs != 1)}, {jobs.total():,} jobs ({kinds})"

    @property
    def path(self) -> str:
        """The file of the plan, in the folder of the study."""
        id = self.manifest()["fingerprint"][:ID_LENGTH]
        return f"{self.study.folder}/{HIDDEN}/plan-{id}.json"

    def file(self) -> PlanFile:
        """Content of the plan file, from which a job reads its specification and inputs."""
        inputs: dict[str, PlannedInputs] = {}
        for job in (*self.jobs, *self.stages):
            inputs[job.kind if job.is_stage else job.folder] = {
                "code": job.code,
                "files": dict(job.files),
                "root": "" if job.is_stage else str(self.study.data_root),
                "plugins": self._copy(job.code),
                "module": job.module,
                "in_processes": KINDS[job.kind].in_processes,
                "reads": list(job.reads),
            }
        code = {digest: fingerprint.modules_of(digest) for digest in self._codes()}
        known = check_external(self.study) if self.study.trained else {}
        rows: dict[str, dict[str, str]] = {}
        for key, split in itertools.product(self.study.trained, SPLITS):
            if (shared := sharing_rows(key, split)) in known:
                _, identity = known[shared]
                rows.setdefault(self.train(key).folder, {})[split] = identity
        return {
            "manifest": self.manifest(),
            "jobs": {job.folder: job.spec for job in self.jobs},
            "inputs": inputs,
            "code": code,
            "sources": fingerprint.sources(),
            "rows": rows,
        }

    def _copy(self, code: str) -> str:
        """The copy of plugins for a job with this code; '' without plugins."""
        if not plugins.in_use():
            return ""
        name = copies.name_of(fingerprint.modules_of(code))
        return f"{self.study.folder.parent}/{PLUGINS}/{name}"

    def copy_plugins(self) -> None:
        """Copy imported files of plugins; StateError if one was edited after planning."""
        for code in self._codes() if plugins.in_use() else ():
            copies.publish(Path(self._copy(code)), fingerprint.modules_of(code))

    def _codes(self) -> set[str]:
        """Digests of the code of all jobs and stages."""
        return {job.code for job in (*self.jobs, *self.stages)}

    @functools.cached_property
    def stages(self) -> list[Job[Any]]:
        """All stages of the study, in topological order: upstream stages first."""
        return list(map(self.stage, STUDY_STAGES))

    # of at least ``resources.MANY_RUNS`` runs, an aggregation is large
    @kind("aggregate", Need(1000, 60), Need(4000, 60, 4), record="", in_processes=True)
    @kind("tables", Need(1200, 30), record="", module="calgrid.papers.tables")
    @kind("figures", Need(1200, 30), record="", module="calgrid.papers.figures")
    @kind("report", Need(1200, 30), record="", module="calgrid.papers.report")
    @functools.cache
    def stage(self, name: str) -> Job[Any]:
        """Job of files of the study: ``aggregate``, ``tables``, ``figures``, ``report``."""
        manifest, modules, folder = self.manifest(), self._stage_modules(name), self.study.folder
        if name == "aggregate":
            files = manifest["published_sha256"]
            above = tuple(job for job in self.jobs if job.kind != "data")
            digest = manifest["fingerprint"]
        else:
            paths: list[Path] = []
            if name == "report":  # its templates are no modules
                paths += sorted((plugins.PACKAGE_ROOT / "report").glob("*.j2"))
            for paper in self.study.config.papers:
                paths += [paper_folder(self.study.home, paper) / file for file in DECLARED]
            digests = {str(path): self._digest(path) for path in paths}
            files = {**manifest["published_sha256"], **digests}
            above = tuple(map(self.stage, MADE_FROM[name]))
            inputs = [stage.fingerprint for stage in above]
            content = {"stage": name, "inputs": inputs, "files": list(digests.values())}
            digest = fingerprint.of_job(content, modules)
        spec = {"fingerprint": digest}
        code, module = fingerprint.code_digest(modules), KINDS[name].module
        return Job(name, folder.name, str(folder), "", spec, code, module, files, above)

    def _stage_modules(self, name: str) -> tuple[str, ...]:
        """Modules whose code determines a stage of the study."""
        modules = [KINDS[name].module, *self._metric_modules]
        if name in ("figures", "report"):  # they read what plugins say of their components
            for code in {job.code for job in self.jobs}:
                named = [name for name in fingerprint.modules_of(code) if "/" not in name]
                modules += [name for name in named if not name.startswith(f"{plugins.PACKAGE}.")]
        return tuple(sorted(set(modules)))


def _key(key: RunKey) -> specs.Key:
    return cast(specs.Key, key._asdict())


def _network_modules(run: Run) -> list[str]:
    procedure = registry.describe("procedure", run.method.procedure)
    return [procedure.module, registry.describe("backbone", run.key.backbone).module]


def matching_runs(runs: Iterable[RunKey], pattern: str) -> list[RunKey]:
    """Runs of a method (``ce``), or whose path is or ends in ``pattern`` (``ce/seed1``).

    Raises
    ------
    ConfigError : there are none.
    """
    runs, end = list(runs), pattern.strip("/")
    keys = [key for key in runs if end == key.method or f"/{key.path}".endswith(f"/{end}")]
    if not keys:
        known = ", ".join(sorted({key.method for key in runs}))
        raise ConfigError(
            f"The study has no run '{pattern}'; give a method ({known}), or the path of a run."
        )
    return keys
