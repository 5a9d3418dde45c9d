"""Specifications (:mod:`calgrid.specs`) and fingerprints of all jobs of a study.

Snakemake reruns a job if its specification changed, so a fingerprint covers everything that
determines the result.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from calgrid import specs
from calgrid.components import fingerprint, registry
from calgrid.components.plugins import PACKAGE_ROOT
from calgrid.configuration.checks import tuning_candidates
from calgrid.configuration.datasets import PLANNED_FACTS
from calgrid.configuration.protocols import FOCAL_CALIBRATION, checkpoint_file, trains
from calgrid.configuration.study import Run, Study
from calgrid.errors import ConfigError, unknown_id
from calgrid.storage.layout import RunKey, family_unit
from calgrid.storage.records import sha256_of
from calgrid.storage.schema import SAME_SHIFT

#: keys of a protocol that do not affect training
EXPORT_KEYS = ("export_features", "test_normalisation")
#: keys of the statistics that affect the scores of a run
SCORING_KEYS = ("bins", "bootstrap", "level", "seed", "paired_resamples", "metrics")
#: keys of a configuration that do not affect results
OF_THE_MACHINE = ("device", "keep_models")
REPORT_MODULES = {
    "aggregate": ("calgrid.jobs.aggregate",),
    "tables": ("calgrid.reporting.tables",),
    "figures": ("calgrid.reporting.figures",),
    "report": ("calgrid.reporting.html",),
}


class Plan:
    """Specifications and fingerprints of all jobs of a study, cached."""

    def __init__(self, study: Study) -> None:
        self.study = study

    @functools.cache  # noqa: B019  (a plan lives as long as its process)
    def data(self, unit: str) -> str:
        """Fingerprint of a prepared data set or shift family."""
        base = self.study.datasets.base(unit)
        settings = {
            "unit": unit,
            "base": self.data(base) if base else None,
            **self.study.datasets.settings(unit),
        }
        return fingerprint.of_stage(
            settings, [self.study.datasets.spec(unit).module, "calgrid.datasets.preparation"]
        )

    @functools.cache  # noqa: B019
    def data_spec(self, unit: str) -> specs.DataSpec | None:
        """Specification of a configured data set; None for a registered one."""
        settings = self.study.datasets.settings(unit)
        if not settings:
            return None
        info = self.study.datasets.spec(unit).info
        return {
            "unit": unit,
            "kind": settings["kind"],
            "options": settings["options"],
            "sources": settings["sources"],
            "info": {name: info[name] for name in PLANNED_FACTS if name in info},
            "fingerprint": self.data(unit),
        }

    @functools.cache  # noqa: B019
    def train(self, key: RunKey) -> specs.TrainSpec:
        """Specification of a training run."""
        if key not in self.study.trained:
            raise ConfigError(f"Run {key.path} is external and cannot be trained.")
        run = self.study.trained[key]
        method, modules = run.method, ["calgrid.jobs.published"]
        spec: specs.TrainSpec = {
            "key": _key(key),
            "protocol": cast(
                specs.Protocol, {k: v for k, v in run.protocol.items() if k not in EXPORT_KEYS}
            ),
            "procedure": {"id": method.procedure, "options": dict(method.procedure_options)},
            "data": self.data(key.dataset),
            "first_stage": self._first_stage(run),
            "fingerprint": "",
        }
        if trains(run.protocol):
            spec["loss"] = {"id": method.loss, "options": dict(method.loss_options)}
            modules = ["calgrid.jobs.train", registry.spec("loss", method.loss).module]
        if run.protocol["weights"] == FOCAL_CALIBRATION:
            spec["checkpoint"] = checkpoint_file(key.dataset, key.backbone, method, key.path)
        return _sealed(spec, [*modules, *_network_modules(run)])

    def _first_stage(self, run: Run) -> specs.FirstStage | None:
        if run.first_stage is None:
            return None
        checkpoint = self.study.trained[run.first_stage].checkpoints[0]
        return {"fingerprint": self.train(run.first_stage)["fingerprint"], "checkpoint": checkpoint}

    @functools.cache  # noqa: B019
    def predict(self, key: RunKey) -> specs.PredictSpec:
        """Specification of a prediction."""
        shared, run = self._of_test(key), self.study.trained[key]
        spec: specs.PredictSpec = {
            **shared,
            "export_features": run.protocol["export_features"],
            "families": {
                each: self.data(family_unit(each))
                for each in self.study.datasets.families(key.dataset)
            },
        }
        return _sealed(spec, ["calgrid.jobs.predict", *_network_modules(run)])

    @functools.cache  # noqa: B019
    def probe(self, key: RunKey, name: str) -> specs.ProbeSpec:
        """Specification of a probe of a run."""
        probes = self.study.evaluations[key].probes if key in self.study.evaluations else {}
        if name not in probes:
            raise unknown_id("probe", name, probes, key.path)
        spec: specs.ProbeSpec = {**self._of_test(key), "probe": probes[name]}
        module = registry.spec("probe", probes[name]["id"]).module
        return _sealed(
            spec, ["calgrid.jobs.probe", module, *_network_modules(self.study.trained[key])]
        )

    def _of_test(self, key: RunKey) -> specs.TestSpec:
        """What predictions and probes of a run share."""
        train, run = self.train(key), self.study.trained[key]
        spec: specs.TestSpec = {
            "key": _key(key),
            "checkpoints": list(run.checkpoints),
            "run_fingerprint": train["fingerprint"],
            "fingerprint": "",
        }
        if of := run.protocol["test_normalisation"].get(
            key.dataset
        ):  # the constants of another data set
            info = self.study.datasets.spec(of).info
            spec["test_normalisation"] = {"mean": tuple(info["mean"]), "std": tuple(info["std"])}
        return spec

    @functools.cache  # noqa: B019
    def external(self, key: RunKey) -> specs.ExternalSpec:
        """Specification of an import of external logits."""
        if key not in self.study.external:
            raise ConfigError(f"Run {key.path} is trained and cannot be imported.")
        spec: specs.ExternalSpec = {
            "key": _key(key),
            "external": self.study.external[key].external,
            "fingerprint": "",
        }
        return _sealed(spec, ["calgrid.jobs.import_logits"])

    def logits_fingerprint(self, key: RunKey) -> str:
        """Fingerprint of the logits files of a run."""
        return (self.external(key) if key in self.study.external else self.predict(key))[
            "fingerprint"
        ]

    def run_fingerprint(self, key: RunKey) -> str:
        """Fingerprint of a run in the tables of results."""
        return (self.external(key) if key in self.study.external else self.train(key))[
            "fingerprint"
        ]

    @functools.cache  # noqa: B019
    def _calibrator(self, name: str, id: str, options: str) -> str:
        """Fingerprint of the code and the options (JSON) of a calibrator."""
        return fingerprint.of_stage(
            {"name": name, "options": options}, [registry.spec("calibrator", id).module]
        )

    @property
    def _metric_modules(self) -> list[str]:
        return [registry.spec("metric", name).module for name in self.study.own_metrics]

    @functools.cache  # noqa: B019
    def calibrate(self, key: RunKey) -> specs.CalibrateSpec:
        """Specification of the calibration and scoring of a run."""
        if key not in self.study.evaluations:
            raise ConfigError(
                f"Run {key.path} is only a first stage; add its method to a grid to calibrate it."
            )
        run, wanted, counts = (
            self.study.runs[key],
            self.study.evaluations[key],
            self.study.label_counts(key),
        )
        statistics: Mapping[str, Any] = self.study.config["statistics"]
        spec: specs.CalibrateSpec = {
            "key": _key(key),
            "checkpoints": list(run.checkpoints),
            "families": list(wanted.families),
            "fit_on": list(wanted.fit_on),
            "draws": list(wanted.calibrator_seeds) if SAME_SHIFT in wanted.fit_on else [],
            "calibrators": [
                self._fitted(each, wanted.calibrator_seeds) for each in wanted.calibrators.values()
            ],
            "statistics": cast(
                specs.ScoringStatistics, {k: statistics[k] for k in SCORING_KEYS if k in statistics}
            ),
            "run_fingerprint": self.run_fingerprint(key),
            "logits_fingerprint": self.logits_fingerprint(key),
            "label_counts": None
            if counts is None
            else {"file": str(counts), "sha256": self._file_digest(counts)},
            "disjoint_validation": isinstance(run, Run) and run.protocol["disjoint_validation"],
            "fingerprint": "",
        }
        return _sealed(spec, ["calgrid.jobs.calibrate", *self._metric_modules])

    def _fitted(self, entry: specs.Calibrator, seeds: Iterable[int]) -> specs.FittedCalibrator:
        options = json.dumps(entry["options"], sort_keys=True)
        return {
            **entry,
            "seeds": list(seeds) if entry["stochastic"] else list(seeds)[:1],
            "fingerprint": self._calibrator(entry["name"], entry["id"], options),
        }

    @functools.cache  # noqa: B019
    def _file_digest(self, path: Path) -> str:
        return sha256_of(path)

    def _sees_validation(self, key: RunKey) -> bool:
        """Whether the loss of a run, or of its first stage, uses validation data during training."""
        if key not in self.study.trained:
            return False
        run = self.study.trained[key]
        own = registry.spec("loss", run.method.loss).info["sees_validation"]
        return own or (run.first_stage is not None and self._sees_validation(run.first_stage))

    def manifest(self) -> specs.Manifest:
        """Input of aggregation and report: runs with their fingerprints, papers, and the
        configuration.
        """
        config, papers = self.study.config, self.study.papers
        published = [*map(str, self.study.published()), *(each["published"] for each in papers)]
        content = {
            "study": self.study.layout.study,
            "statistics": dict(config["statistics"]),
            "published": list(dict.fromkeys(published)),
            "papers": [
                {**each, "sha256": self._file_digest(Path(each["published"]))} for each in papers
            ],
            "lines": {
                protocol: line for line, each in config["lines"].items() for protocol in each
            },
            "tuning": self._tuning(),
            "runs": [self._manifest_run(key) for key in self.study.evaluations],
            "configuration": {k: v for k, v in config.items() if k not in OF_THE_MACHINE},
        }
        digest = fingerprint.digest({"content": content, "code": self.stage("aggregate")})
        return cast(specs.Manifest, {**content, "fingerprint": digest})

    def _manifest_run(self, key: RunKey) -> specs.ManifestRun:
        layout, wanted = self.study.layout, self.study.evaluations[key]
        first = self.study.trained[key].first_stage if key in self.study.trained else None
        run: specs.ManifestRun = {
            "key": _key(key),
            "run": layout.run(key),
            "first_stage": None
            if first is None
            else {"method": first.method, "run": layout.run(first)},
            "part": layout.part(key),
            "fingerprint": self.calibrate(key)["fingerprint"],
            "external": key in self.study.external,
            "families": list(wanted.families),
            "sees_validation": self._sees_validation(key),
            "warning": self.study.datasets.warning(key.dataset),
        }
        if wanted.probes:
            measured = [self.probe(key, name) for name in wanted.probes]
            run["probes"] = [
                {**spec["probe"], "fingerprint": spec["fingerprint"]} for spec in measured
            ]
        return run

    def _tuning(self) -> specs.Tuning | None:
        settings = self.study.config["tuning"]
        if settings is None:
            return None
        lists = {
            name: [list(each) for each in found]
            for name, found in tuning_candidates(settings).items()
        }
        return {"metric": settings["metric"], "protocol": settings["protocol"], "candidates": lists}

    def stage(self, name: str) -> str:
        """Fingerprint of a stage after calibration: ``aggregate``, ``tables``, ``figures``,
        ``report``.
        """
        files = []
        if name == "report":  # its templates are no modules
            templates = sorted((PACKAGE_ROOT / "reporting").glob("*.j2"))
            files = [fingerprint.digest(path.read_text(encoding="utf-8")) for path in templates]
        return fingerprint.of_stage(
            {"stage": name, "files": files}, [*REPORT_MODULES[name], *self._metric_modules]
        )


def _key(key: RunKey) -> specs.Key:
    return cast(specs.Key, key._asdict())


def _network_modules(run: Run) -> list[str]:
    components = (("procedure", run.method.procedure), ("backbone", run.key.backbone))
    return [registry.spec(kind, id).module for kind, id in components]


def _sealed(spec: specs.Spec, modules: Iterable[str]) -> specs.Spec:
    """Set the fingerprint of a specification, from its other keys and the code of modules."""
    settings = {name: value for name, value in spec.items() if name != "fingerprint"}
    spec["fingerprint"] = fingerprint.of_stage(settings, modules)
    return spec


def as_json(spec: specs.JobSpec) -> str:
    """Convert a specification to one line of JSON."""
    return json.dumps(spec, sort_keys=True, separators=(",", ":"))
