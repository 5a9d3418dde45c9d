"""All jobs of a study: specifications (:mod:`calgrid.specs`), fingerprints, folders of results.

A fingerprint covers everything that determines a result and names its folder, so a job runs if
there is no such folder.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

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
from calgrid.storage.records import (
    CALIBRATE,
    HISTORY,
    PREDICT,
    PREPARE,
    PROBE,
    TRAIN,
    sha256_of,
)
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
    "aggregate": ("calgrid.jobs.aggregate",),
    "tables": ("calgrid.reporting.tables",),
    "figures": ("calgrid.reporting.figures",),
    "report": ("calgrid.reporting.html",),
}


@dataclass(frozen=True)
class Job:
    """A job that makes one folder.

    Attributes
    ----------
    rule : a key of :data:`RESULT_FILES`.
    about : path of its run, or its data set or shift family.
    folder : folder of its result, whose name ends in the start of the fingerprint.
    spec : specification, with its fingerprint.
    """

    rule: str
    about: str
    folder: str
    spec: Mapping[str, Any]

    @property
    def id(self) -> str:
        """End of the folder's name."""
        return str(self.spec["fingerprint"])[:ID_LENGTH]

    @property
    def record(self) -> str:
        """Name of the record in its folder."""
        return RESULT_FILES[self.rule][0]

    @property
    def result(self) -> str:
        """Path of the record."""
        return f"{self.folder}/{self.record}"


class Plan:
    """Jobs of a study with their specifications and fingerprints, cached."""

    def __init__(self, study: Study) -> None:
        self.study = study

    @functools.cache
    def data_spec(self, image_set: str, val_seed: int | None = None) -> specs.DataSpec:
        """Specification of a data set, with a draw of validation images, or shift family.

        Facts of a configured data set follow from what its fingerprint covers.
        """
        datasets = self.study.datasets
        base, definition = datasets.base(image_set), datasets.definition(image_set)
        description = datasets.describe(image_set)
        modules = tuple(sorted([description.module, "calgrid.datasets.preparation"]))
        content = {
            "image_set": image_set,
            "base": self.data_spec(base)["fingerprint"] if base else None,
            **definition,
        }
        spec: specs.DataSpec = {
            "image_set": image_set,
            "base": self.data_folder(base) if base else None,
            "configured": None,
            "code": fingerprint.code_digest(modules),
            "fingerprint": "",
        }
        if val_seed is not None:
            content["val_seed"] = spec["val_seed"] = val_seed
        spec["fingerprint"] = fingerprint.of_job(content, modules)
        if definition:
            info = description.info
            configured = {
                "image_set": image_set,
                **definition,
                "info": {name: info[name] for name in PLANNED_FACTS if name in info},
                "fingerprint": spec["fingerprint"],
            }
            spec["configured"] = cast(specs.ConfiguredData, configured)
        return spec

    def data_folder(self, image_set: str, val_seed: int | None = None) -> str:
        """Folder of a prepared data set or shift family; see :meth:`data_spec`."""
        digest = self.data_spec(image_set, val_seed)["fingerprint"]
        return self.study.layout.data(image_set, digest)

    @functools.cache
    def train(self, key: RunKey) -> specs.TrainSpec:
        """Specification of the training of a run, which runs that only test differently share."""
        key = self.study.training[key]
        run = self.study.trained[key]
        method, modules = run.method, ["calgrid.jobs.published"]
        spec: specs.TrainSpec = {
            "key": _key(key),
            "protocol": training_options(run.protocol),
            "procedure": {"id": method.procedure, "options": dict(method.procedure_options)},
            "data": self.data_spec(key.dataset, self.study.val_seed(key))["fingerprint"],
            "first_stage": None,
            "fingerprint": "",
        }
        if run.first_stage is not None:
            spec["first_stage"] = {
                "fingerprint": self.train(run.first_stage)["fingerprint"],
                "checkpoint": self.study.trained[run.first_stage].checkpoints[0],
            }
        if isinstance(run.protocol, TrainingProtocol):
            spec["loss"] = {"id": method.loss, "options": dict(method.loss_options)}
            job = "distributed" if run.gpus > 1 else "train"
            modules = [f"calgrid.jobs.{job}", registry.describe("loss", method.loss).module]
        if run.checkpoint is not None:
            spec["checkpoint"] = run.checkpoint
        return _sealed(spec, [*modules, *_network_modules(run)])

    @functools.cache
    def predict(self, key: RunKey) -> specs.PredictSpec:
        """Specification of a prediction."""
        tested = self._of_test(key)
        run, families = self.study.trained[key], self.study.families(key)
        shifts = {name: self.data_spec(image_set_of(name))["fingerprint"] for name in families}
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
        return _sealed(spec, modules)

    @functools.cache
    def probe(self, key: RunKey, name: str) -> specs.ProbeSpec:
        """Specification of a probe of a run."""
        probe = self.study.evaluations[key].probes[name]
        spec: specs.ProbeSpec = {
            **self._of_test(key),
            "test_normalisation": self._test_constants(key, [key.dataset]),
            "probe": probe,
        }
        module = registry.describe("probe", probe["id"]).module
        network = _network_modules(self.study.trained[key])
        return _sealed(spec, ["calgrid.jobs.probe", module, *network])

    def _of_test(self, key: RunKey) -> specs.TestSpec:
        """What predictions and probes of a run share."""
        train, run = self.train(key), self.study.trained[key]
        return {
            "key": _key(key),
            "checkpoints": list(run.checkpoints),
            "run_fingerprint": train["fingerprint"],
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
    def external(self, key: RunKey) -> specs.ExternalSpec:
        """Specification of an import of external logits."""
        spec: specs.ExternalSpec = {
            "key": _key(key),
            "external": self.study.external[key].external,
            "sources": [self._source(path) for path in self.study.external_files(key)],
            "fingerprint": "",
        }
        return _sealed(spec, ["calgrid.jobs.import_logits"])

    @functools.cache
    def ensemble(self, key: RunKey) -> specs.EnsembleSpec:
        """Specification of an ensemble."""
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
        return _sealed(spec, modules)

    def _logits(self, key: RunKey) -> dict[str, str]:
        """Fingerprint of each file of logits of a run that is evaluated."""
        if key in self.study.trained:
            return self.predict(key)["files"]
        _, spec = self._predicted(key)
        families = self.study.evaluations[key].families
        return dict.fromkeys((*SPLITS, *families), spec["fingerprint"])

    def run_fingerprint(self, key: RunKey) -> str:
        """Fingerprint of a run in the tables of results."""
        if key in self.study.trained:
            return self.train(key)["fingerprint"]
        return self._predicted(key)[1]["fingerprint"]

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
    def calibrate(self, key: RunKey) -> specs.CalibrateSpec:
        """Specification of the calibration and scoring of a run."""
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
        return _sealed(spec, modules)

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
        papers = [self._manifest_paper(paper) for paper in self.study.papers]
        published = [str(path) for path in self.study.published()]
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
        run: ManifestRun = {
            "key": _key(key),
            "train": None,
            "predict": self.predict_folder(key),
            "calibrate": self.calibrate_folder(key),
            "first_stage": None,
            "fingerprint": self.calibrate(key)["fingerprint"],
            "external": external,
            "families": list(wanted.families),
            "sees_validation": made.sees_validation,
            "draws_validation": made.draws_validation,
            "warning": self.study.datasets.warning(key.dataset),
        }
        if isinstance(made, ExternalRun):
            run["bank"] = "bank" in made.external
        if isinstance(made, Run):
            run["train"] = self.train_folder(key)
            if (first := made.first_stage) is not None:
                run["first_stage"] = {"method": first.method, "train": self.train_folder(first)}
        if isinstance(made, Ensemble) and not external:
            stages = [*members, *(self.study.trained[member].first_stage for member in members)]
            run["members"] = [self.train_folder(stage) for stage in stages if stage is not None]
        if wanted.probes:
            run["probes"] = []
            for name in wanted.probes:
                spec, folder = self.probe(key, name), self.probe_folder(key, name)
                probe = {**spec["probe"], "fingerprint": spec["fingerprint"], "folder": folder}
                run["probes"].append(cast(MeasuredProbe, probe))
        return run

    # folders and jobs ------------------------------------------------------------------------

    def train_folder(self, key: RunKey) -> str:
        """Folder of the trained network of a run."""
        trained = self.study.training[key]
        return self.study.layout.result(trained, "train", self.train(key)["fingerprint"])

    def predict_folder(self, key: RunKey) -> str:
        """Folder of the logits of a run."""
        _, spec = self._predicted(key)
        return self.study.layout.result(key, "predict", spec["fingerprint"])

    def _predicted(
        self, key: RunKey
    ) -> tuple[str, specs.EnsembleSpec | specs.ExternalSpec | specs.PredictSpec]:
        """Rule that makes the logits of a run, and its specification."""
        if key in self.study.ensembles:
            return "ensemble", self.ensemble(key)
        if key in self.study.external:
            return "import", self.external(key)
        return "predict", self.predict(key)

    def calibrate_folder(self, key: RunKey) -> str:
        """Folder of the calibrated metrics of a run."""
        return self.study.layout.result(key, "calibrate", self.calibrate(key)["fingerprint"])

    def probe_folder(self, key: RunKey, name: str) -> str:
        """Folder of the measurement of a run by a probe."""
        fingerprint_of_probe = self.probe(key, name)["fingerprint"]
        return self.study.layout.result(key, probe_job(name), fingerprint_of_probe)

    @functools.cached_property
    def jobs(self) -> list[Job]:
        """All jobs of data sets and runs; a job comes after those whose results it reads."""
        base = self.study.datasets.base
        jobs = []
        for image_set, seed in sorted(self.study.prepared(), key=lambda each: bool(base(each[0]))):
            folder, data = self.data_folder(image_set, seed), self.data_spec(image_set, seed)
            jobs.append(Job("data", image_set, folder, data))
        for key in dict.fromkeys(self.study.training.values()):
            jobs.append(Job("train", key.path, self.train_folder(key), self.train(key)))
        for key, evaluation in self.study.evaluations.items():
            rule, spec = self._predicted(key)
            jobs.append(Job(rule, key.path, self.predict_folder(key), spec))
            folder = self.calibrate_folder(key)
            jobs.append(Job("calibrate", key.path, folder, self.calibrate(key)))
            for name in evaluation.probes:
                folder = self.probe_folder(key, name)
                jobs.append(Job("probe", key.path, folder, self.probe(key, name)))
        return jobs

    def log(self, job: Job) -> str:
        """Log of a job, as the rules name it."""
        folder = job.rule
        if job.rule == "probe":
            folder = probe_job(job.spec["probe"]["name"])
        return self.study.layout.log(folder, job.about, job.spec["fingerprint"])

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
        specifications = {job.folder: dict(job.spec) for job in self.jobs}
        digests = {spec["code"] for spec in specifications.values()}
        code = {digest: fingerprint.modules_of(digest) for digest in sorted(digests)}
        return {
            "manifest": self.manifest(),
            "jobs": specifications,
            "code": code,
            "rows": self._rows_of_banks(),
        }

    def _rows_of_banks(self) -> dict[str, dict[str, str]]:
        known = self.study.rows_of_banks()
        found: dict[str, dict[str, str]] = {}
        for key in self.study.trained:
            for split in SPLITS:
                if (identity := known.get(sharing_rows(key, split))) is not None:
                    found.setdefault(self.train_folder(key), {})[split] = identity
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
        inputs: list[str] = []
        if name in ("plan", "aggregate"):
            return self.manifest()["fingerprint"]
        if name in ("tables", "figures"):
            inputs = [self.summary_fingerprint("aggregate")]
        if name == "report":
            inputs = [self.summary_fingerprint(part) for part in ("tables", "figures")]
        return fingerprint.digest({"inputs": inputs, "code": self._code(name)})

    def _code(self, name: str) -> str:
        """Digest of the code of files of the study."""
        files: list[Path] = []
        modules = [*REPORT_MODULES[name], *self._metric_modules]
        if name == "aggregate":
            modules += self._diagnostics
        elif name == "report":  # its templates are no modules
            files = sorted((PACKAGE_ROOT / "reporting").glob("*.j2"))
        elif name in ("tables", "figures"):  # they import modules of papers by name
            files = figure_files(self.study.home)
            modules += [*self.paper_modules.figures, *self.paper_modules.tables]
        digests = [fingerprint.digest(path.read_text(encoding="utf-8")) for path in files]
        return fingerprint.of_job({"stage": name, "files": digests}, modules)


def _key(key: RunKey) -> specs.Key:
    return cast(specs.Key, key._asdict())


def _network_modules(run: Run) -> list[str]:
    components = (("procedure", run.method.procedure), ("backbone", run.key.backbone))
    return [registry.describe(kind, id).module for kind, id in components]


def _sealed(spec: specs.Spec, modules: Iterable[str]) -> specs.Spec:
    """Set code digest and fingerprint of a specification, from its other keys and its modules."""
    modules = tuple(sorted(set(modules)))
    content = {name: value for name, value in spec.items() if name != "fingerprint"}
    spec["fingerprint"] = fingerprint.of_job(content, modules)
    code: Any = {"code": fingerprint.code_digest(modules)}
    spec.update(code)
    return spec
