"""All jobs of a study: specifications (:mod:`calgrid.specs`), fingerprints, folders of results.

A fingerprint covers everything that determines a result and names its folder, so a job runs if
there is no such folder.
"""

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, cast

from calgrid import specs
from calgrid.components import fingerprint, registry
from calgrid.components.plugins import PACKAGE_ROOT
from calgrid.configuration.datasets import PLANNED_FACTS
from calgrid.configuration.manifest import (
    Manifest,
    ManifestPaper,
    ManifestRun,
    MeasuredProbe,
    Paper,
    Tuning,
)
from calgrid.configuration.papers import (
    PaperModules,
    figure_files,
    line_of,
    own_protocols,
    paper_modules,
)
from calgrid.configuration.protocols import described, training_options
from calgrid.configuration.runs import Ensemble, ExternalRun, Run
from calgrid.configuration.slow_checks import rows_of_banks
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError
from calgrid.storage import sources
from calgrid.storage.layout import (
    ID_LENGTH,
    MANIFEST,
    OOD_PREFIX,
    PROBE_TABLE,
    SPLITS,
    RunKey,
    image_set_of,
    probe_job,
    sharing_rows,
)
from calgrid.storage.records import CALIBRATE, HISTORY, PREDICT, PREPARE, PROBE, TRAIN, sha256_of
from calgrid.storage.schema import DRAWN, METRICS
from calgrid.training.protocol import TrainingProtocol

#: keys of the statistics that affect the scores of a run
SCORING_KEYS = {"bins", "bootstrap", "level", "seed", "metrics", "conformal"}
#: keys of a configuration that do not affect results
OF_THE_MACHINE = {"device", "keep_models"}
#: external files of at most so many bytes are read when a study is planned
READ_BYTES = 2**24
#: rule -> record and further files of its result that are missed if they are deleted
RESULT_FILES = {
    "data": (PREPARE, MANIFEST),
    "train": (TRAIN, HISTORY),
    "predict": (PREDICT,),
    "import": (PREDICT,),
    "ensemble": (PREDICT,),
    "calibrate": (CALIBRATE, METRICS),
    "probe": (PROBE, PROBE_TABLE),
}
REPORT_MODULES = {
    "aggregate": "calgrid.jobs.aggregate",
    "tables": "calgrid.reporting.tables",
    "figures": "calgrid.reporting.figures",
    "report": "calgrid.reporting.html",
}


@dataclass(frozen=True)
class Job(Generic[specs.Spec]):
    """A job that makes one folder.

    Attributes
    ----------
    rule : a key of :data:`RESULT_FILES`.
    about : path of its run, or its data set or shift family.
    folder : folder of its result, whose name ends in the start of the fingerprint.
    log : its log, as the rules name it.
    spec : specification, with its fingerprint.
    """

    rule: str
    about: str
    folder: str
    log: str
    spec: specs.Spec

    @property
    def fingerprint(self) -> str:
        """Fingerprint of all that determines the result."""
        return self.spec["fingerprint"]

    @property
    def id(self) -> str:
        """End of the folder's name."""
        return self.fingerprint[:ID_LENGTH]

    @property
    def record(self) -> str:
        """Name of the record in its folder."""
        return RESULT_FILES[self.rule][0]

    @property
    def result(self) -> str:
        """Path of the record."""
        return f"{self.folder}/{self.record}"


class Plan:
    """Jobs of a study, cached."""

    def __init__(self, study: Study) -> None:
        self.study = study

    @functools.cache
    def data(self, image_set: str, val_seed: int | None = None) -> Job[specs.DataSpec]:
        """Job of a data set, with a draw of validation images, or of a shift family.

        Facts of a configured data set follow from what its fingerprint covers.
        """
        datasets, layout = self.study.datasets, self.study.layout
        definition, of = datasets.definition(image_set), datasets.base(image_set)
        base = None if of is None else self.data(of)
        description = datasets.describe(image_set)
        modules = tuple(sorted([description.module, "calgrid.datasets.preparation"]))
        content = {
            "image_set": image_set,
            "base": None if base is None else base.fingerprint,
            **definition,
        }
        spec: specs.DataSpec = {
            "image_set": image_set,
            "base": None if base is None else base.folder,
            "configured": None,
            "code": fingerprint.code_digest(modules),
            "fingerprint": "",
        }
        if val_seed is not None:
            content["val_seed"] = spec["val_seed"] = val_seed
        digest = spec["fingerprint"] = fingerprint.of_job(content, modules)
        if definition:
            info = description.info
            configured = {
                "image_set": image_set,
                **definition,
                "info": {name: info[name] for name in PLANNED_FACTS if name in info},
                "fingerprint": digest,
            }
            spec["configured"] = cast(specs.ConfiguredData, configured)
        folder, log = layout.data(image_set, digest), layout.log("data", image_set, digest)
        return Job("data", image_set, folder, log, spec)

    @functools.cache
    def train(self, key: RunKey) -> Job[specs.TrainSpec]:
        """Training of a run, which runs that only test differently share."""
        key = self.study.training[key]
        run = self.study.trained[key]
        method, modules = run.method, ["calgrid.jobs.published"]
        spec: specs.TrainSpec = {
            "key": _key(key),
            "protocol": training_options(run.protocol),
            "procedure": {"id": method.procedure, "options": dict(method.procedure_options)},
            "data": self.data(key.dataset, self.study.val_seed(key)).fingerprint,
            "first_stage": None,
            "fingerprint": "",
        }
        if run.first_stage is not None:
            spec["first_stage"] = {
                "fingerprint": self.train(run.first_stage).fingerprint,
                "checkpoint": self.study.trained[run.first_stage].checkpoints[0],
            }
        if isinstance(run.protocol, TrainingProtocol):
            spec["loss"] = {"id": method.loss, "options": dict(method.loss_options)}
            job = "distributed" if run.gpus > 1 else "train"
            modules = [f"calgrid.jobs.{job}", registry.describe("loss", method.loss).module]
        if run.checkpoint is not None:
            spec["checkpoint"] = run.checkpoint
        return self._job("train", key, spec, [*modules, *_network_modules(run)])

    @functools.cache
    def predict(self, key: RunKey) -> Job[specs.PredictSpec]:
        """Prediction of a trained run."""
        tested = self._of_test(key)
        run, families = self.study.trained[key], self.study.families(key)
        shifts = {name: self.data(image_set_of(name)).fingerprint for name in families}
        constants = self._test_constants(key, [key.dataset, *map(image_set_of, families)])
        modules = ["calgrid.jobs.predict", *_network_modules(run)]
        shared = {**tested, **run.protocol.model_dump(include={"export_features", "test_views"})}
        # a file of logits has a fingerprint of its own, so that it can be taken from a prediction
        # with other shift families
        files = {}
        for name in (*SPLITS, *shifts):
            dataset = image_set_of(name) if name.startswith(OOD_PREFIX) else key.dataset
            images = {
                "name": name,
                "images": shifts.get(name),
                "constants": None if name == "val" else constants.get(dataset),
            }
            files[name] = fingerprint.of_job({**shared, **images}, modules)
        spec = cast(specs.PredictSpec, {**shared, "shifts": shifts, "files": files})
        spec["test_normalisation"] = constants
        return self._job("predict", key, spec, modules)

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
        return self._job("probe", key, spec, modules, probe_job(name))

    def _of_test(self, key: RunKey) -> specs.TestSpec:
        """What predictions and probes of a run share."""
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

    @functools.cache
    def external(self, key: RunKey) -> Job[specs.ExternalSpec]:
        """Import of external logits."""
        spec: specs.ExternalSpec = {
            "key": _key(key),
            "external": self.study.external[key].external,
            "sources": list(map(self._source, self.study.external_files(key))),
            "fingerprint": "",
        }
        return self._job("import", key, spec, ["calgrid.jobs.import_logits"])

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
        return self._job("ensemble", key, spec, modules)

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

    @functools.cache
    def _calibrator(self, name: str, id: str, options: str) -> str:
        """Fingerprint of the code and the options (JSON) of a calibrator."""
        return fingerprint.of_job(
            {"name": name, "options": options}, [registry.describe("calibrator", id).module]
        )

    @property
    def _metric_modules(self) -> list[str]:
        return [registry.describe("metric", name).module for name in self.study.own_metrics]

    @functools.cache
    def calibrate(self, key: RunKey) -> Job[specs.CalibrateSpec]:
        """Calibration and scoring of a run."""
        run, wanted = self.study.runs[key], self.study.evaluations[key]
        statistics, seeds = self.study.config.statistics, wanted.calibrator_seeds
        label_counts: specs.LabelCounts | None = None
        if (counts := self.study.label_counts(key)) is not None:
            label_counts = {"file": str(counts), "sha256": self._file_digest(counts)}
        spec: specs.CalibrateSpec = {
            "key": _key(key),
            "checkpoints": list(run.checkpoints),
            "families": list(wanted.families),
            "fit_on": list(wanted.fit_on),
            "draws": list(seeds) if DRAWN & {*wanted.fit_on} else [],
            "calibrators": [self._fitted(entry, seeds) for entry in wanted.calibrators.values()],
            "statistics": statistics.model_dump(include=SCORING_KEYS, exclude_none=True),
            "run_fingerprint": self.run_fingerprint(key),
            "logits": self._logits(key),
            "label_counts": label_counts,
            "disjoint_validation": run.disjoint_validation,
            "diagnostics": self._diagnostics,
            "fingerprint": "",
        }
        modules = ["calgrid.jobs.calibrate", *self._diagnostics, *self._metric_modules]
        return self._job("calibrate", key, spec, modules)

    def _job(
        self,
        rule: str,
        key: RunKey,
        spec: specs.Spec,
        modules: Iterable[str],
        name: str | None = None,
    ) -> Job[specs.Spec]:
        """Job of a run; sets code digest and fingerprint of its specification, from the other keys
        and the modules. Folder and log have the ``name`` of a probe, or else that of the rule.
        """
        modules = tuple(sorted(set(modules)))
        content = {option: value for option, value in spec.items() if option != "fingerprint"}
        digest = spec["fingerprint"] = fingerprint.of_job(content, modules)
        code: Any = {"code": fingerprint.code_digest(modules)}
        spec.update(code)
        layout, name = self.study.layout, name or rule
        # logits are in such a folder wherever they come from
        made = "predict" if rule in ("import", "ensemble") else name
        folder, log = layout.result(key, made, digest), layout.log(name, key.path, digest)
        return Job(rule, key.path, folder, log, spec)

    @functools.cached_property
    def paper_modules(self) -> PaperModules:
        """Modules of papers, which any study uses."""
        return paper_modules(self.study.home)

    @property
    def _diagnostics(self) -> list[str]:
        return list(self.paper_modules.diagnostics)

    def _fitted(self, entry: specs.Calibrator, seeds: Iterable[int]) -> specs.FittedCalibrator:
        options = json.dumps(entry["options"], sort_keys=True)
        return {
            **entry,
            "seeds": list(seeds) if entry["stochastic"] else list(seeds)[:1],
            "fingerprint": self._calibrator(entry["name"], entry["id"], options),
        }

    @functools.cache
    def _source(self, path: Path) -> str:
        """Identity of a file of external logits: large ones are not read completely."""
        if path.is_file() and path.stat().st_size <= READ_BYTES:
            return self._file_digest(path)
        return sources.identity(None, str(path))

    @functools.cache
    def _file_digest(self, path: Path) -> str:
        return sha256_of(path)

    @functools.cache
    def manifest(self) -> Manifest:
        """Input of aggregation and report: runs with their fingerprints, papers, and the
        configuration.
        """
        config = self.study.config.model_dump(exclude_none=True, exclude=OF_THE_MACHINE)
        papers = list(map(self._manifest_paper, self.study.papers))
        published = list(map(str, self.study.published()))
        published += [paper["published"] for paper in papers]
        content = {
            "study": self.study.layout.study,
            "statistics": dict(config["statistics"]),
            "published": list(dict.fromkeys(published)),
            "papers": papers,
            "protocols": self._described(),
            "lines": line_of(self.study.config),
            "tuning": self._tuning(),
            "diagnostics": self._diagnostics,
            "runs": list(map(self._manifest_run, self.study.evaluations)),
            "folders": [job.folder for job in self.jobs],
            "configuration": config,
        }
        digest = fingerprint.digest({"content": content, "code": self._code("aggregate")})
        return cast(Manifest, {**content, "fingerprint": digest})

    def _manifest_paper(self, paper: Paper) -> ManifestPaper:
        found = own_protocols(self.study.home, paper["name"], self.study.config)
        return {
            **paper,
            "sha256": self._file_digest(Path(paper["published"])),
            "own_protocols": [name for name in found if name not in self._imported],
        }

    @property
    def _imported(self) -> set[str]:
        """Protocols that name logits made elsewhere."""
        return {key.protocol for key in self.study.external}

    def _described(self) -> dict[str, str]:
        """Protocol -> what it does, in words; of logits made elsewhere that is not known."""
        said = {}
        for name in dict.fromkeys(key.protocol for key in self.study.trained):
            said[name] = described(self.study.protocols.get(name, "protocols"))
        elsewhere = "logits that were not made by this study"
        for name in sorted(self._imported):
            said[name] = f"{said[name]}; and {elsewhere}" if name in said else elsewhere
        return said

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
            "families": list(wanted.families),
            "sees_validation": made.sees_validation,
            "draws_validation": made.draws_validation,
            "warning": self.study.datasets.warning(key.dataset),
        }
        if isinstance(made, ExternalRun):
            run["bank"] = "bank" in made.external
        if isinstance(made, Run):
            run["train"] = self.train(key).folder
            if (first := made.first_stage) is not None:
                run["first_stage"] = {"method": first.method, "train": self.train(first).folder}
        if isinstance(made, Ensemble) and not external:
            stages = [*members, *(self.study.trained[member].first_stage for member in members)]
            run["members"] = [self.train(stage).folder for stage in stages if stage is not None]
        if wanted.probes:
            run["probes"] = []
            for name in wanted.probes:
                job = self.probe(key, name)
                probe: MeasuredProbe = {
                    **job.spec["probe"],
                    "fingerprint": job.fingerprint,
                    "folder": job.folder,
                }
                run["probes"].append(probe)
        return run

    @functools.cached_property
    def jobs(self) -> list[Job[Any]]:
        """All jobs of data sets and runs; a job comes after those whose results it reads."""
        base = self.study.datasets.base
        prepared = sorted(self.study.prepared(), key=lambda each: bool(base(each[0])))
        jobs: list[Job[Any]] = [self.data(image_set, seed) for image_set, seed in prepared]
        jobs += map(self.train, dict.fromkeys(self.study.training.values()))
        for key, evaluation in self.study.evaluations.items():
            jobs += [self.predicted(key), self.calibrate(key)]
            jobs += [self.probe(key, name) for name in evaluation.probes]
        return jobs

    def matching_runs(self, pattern: str) -> list[RunKey]:
        """Runs of a method (``ce``), or whose path is or ends in ``pattern`` (``ce/seed1``).

        Raises
        ------
        ConfigError : there are none.
        """
        end = pattern.strip("/")
        runs = self.study.runs
        keys = [key for key in runs if end == key.method or f"/{key.path}".endswith(f"/{end}")]
        if not keys:
            known = ", ".join(sorted({key.method for key in runs}))
            raise ConfigError(
                f"The study has no run '{pattern}'; give a method ({known}), or the path of a run."
            )
        return keys

    def file(self) -> dict[str, Any]:
        """Content of the plan file, from which a job reads its specification by its folder.

        ``code`` has the digests of the modules of each code digest that a specification names.
        ``rows`` has the identities of val and test of runs of banks, by the folders of the
        trainings whose networks are compared with them.
        """
        specifications, code = {}, {}
        for job in self.jobs:
            specifications[job.folder] = dict(job.spec)
            digest = job.spec["code"]
            code[digest] = fingerprint.modules_of(digest)
        return {
            "manifest": self.manifest(),
            "jobs": specifications,
            "code": code,
            "rows": self._rows_of_banks(),
        }

    def _rows_of_banks(self) -> dict[str, dict[str, str]]:
        known = rows_of_banks(self.study)
        found: dict[str, dict[str, str]] = {}
        for key in self.study.trained:
            for split in SPLITS:
                if (shared := sharing_rows(key, split)) in known:
                    _, identity = known[shared]
                    found.setdefault(self.train(key).folder, {})[split] = identity
        return found

    def _tuning(self) -> Tuning | None:
        tuning = self.study.config.tuning
        if tuning is None:
            return None
        candidates = {}
        for name, listed in tuning.methods.items():
            candidates[name] = [[candidate.protocol, candidate.method] for candidate in listed]
        return {"metric": tuning.metric, "protocol": tuning.protocol, "candidates": candidates}

    def summary_fingerprint(self, name: str) -> str:
        """Fingerprint of files of the study: ``plan``, ``aggregate``, ``tables``, ``figures``,
        ``report``.
        """
        if name in ("plan", "aggregate"):
            return self.manifest()["fingerprint"]
        made_from = ("tables", "figures") if name == "report" else ("aggregate",)
        inputs = list(map(self.summary_fingerprint, made_from))
        return fingerprint.digest({"inputs": inputs, "code": self._code(name)})

    def _code(self, name: str) -> str:
        """Digest of the code of files of the study."""
        files: list[Path] = []
        modules = [REPORT_MODULES[name], *self._metric_modules]
        if name == "aggregate":
            modules += self._diagnostics
        elif name == "report":  # its templates are no modules
            files = sorted((PACKAGE_ROOT / "reporting").glob("*.j2"))
        else:  # tables and figures import modules of papers by name
            files = figure_files(self.study.home)
            modules += [*self.paper_modules.figures, *self.paper_modules.tables]
        digests = [fingerprint.digest(path.read_text(encoding="utf-8")) for path in files]
        return fingerprint.of_job({"stage": name, "files": digests}, modules)


def _key(key: RunKey) -> specs.Key:
    return cast(specs.Key, key._asdict())


def _network_modules(run: Run) -> list[str]:
    procedure = registry.describe("procedure", run.method.procedure)
    return [procedure.module, registry.describe("backbone", run.key.backbone).module]
