"""What each job of a study is told: specifications and fingerprints, as strings for the rules of the workflow."""

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from calgrid import fingerprint, registry
from calgrid.configuration.datasets import FACTS, SHIFT_FACTS, VARIANT_FACTS
from calgrid.configuration.protocols import trains
from calgrid.configuration.runs import EXTERNAL, RunKey, family_unit
from calgrid.configuration.study import Study
from calgrid.configuration.tuning import candidates
from calgrid.configuration.weights import FOCAL_CALIBRATION, checkpoint_file
from calgrid.errors import ConfigError, unknown_id

#: keys of a protocol that matter after training only
EXPORT_KEYS = ("export_features", "test_normalisation")
#: keys of the statistics that matter when a run is scored; paired_resamples need not be there
SCORING_KEYS = ("bins", "bootstrap", "level", "seed", "paired_resamples")
#: keys of a configuration that change no result
OF_THE_MACHINE = ("device", "keep_models")
REPORT_MODULES = {
    "aggregate": ("calgrid.stages.aggregate",),
    "tables": ("calgrid.reporting.tables",),
    "figures": ("calgrid.reporting.figures",),
    "report": ("calgrid.reporting.html",),
}


class Plan:
    """Specifications and fingerprints of all jobs of a study; every method is cheap and cached."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._train: dict[RunKey, dict[str, Any]] = {}

    @functools.cached_property
    def statistics(self) -> Mapping[str, Any]:
        """The ``statistics`` block of the configuration."""
        return self.study.config["statistics"]

    @functools.cache  # noqa: B019  (a plan lives as long as its process)
    def data(self, unit: str) -> str:
        """Fingerprint of a prepared data set or shift family."""
        base = self.study.datasets.base(unit)
        settings = {"unit": unit, "base": self.data(base) if base else None, **self.study.data_settings(unit)}
        return fingerprint.of_stage(settings, [self.study.datasets.spec(unit).module, "calgrid.datasets._prepared"])

    @functools.cache  # noqa: B019
    def data_spec(self, unit: str) -> Mapping[str, Any]:
        """Specification of a configured data set; nothing for a registered one, whose file says all."""
        settings = self.study.data_settings(unit)
        if not settings:
            return {}
        info = self.study.datasets.spec(unit).info
        facts = {
            name: info[name] for name in ("role", "image_shape", *SHIFT_FACTS, *FACTS, *VARIANT_FACTS) if name in info
        }
        return {"unit": unit, **settings, "info": facts, "fingerprint": self.data(unit)}

    def train(self, key: RunKey) -> Mapping[str, Any]:
        """Specification of a training run; its ``fingerprint`` covers everything that determines the weights."""
        if key not in self._train:
            self._train[key] = self._train_spec(key)
        return self._train[key]

    def _train_spec(self, key: RunKey) -> dict[str, Any]:
        run = self.study.runs[key]
        if run.method is None:
            raise ConfigError(f"Run {key.path} is external: it is not trained here.")
        method = run.method
        first = None
        if run.first_stage is not None:
            stage_one = self.study.runs[run.first_stage]
            first = {
                "fingerprint": self.train(run.first_stage)["fingerprint"],
                "checkpoint": stage_one.checkpoints[0],
            }
        spec = {
            "key": key._asdict(),
            "protocol": {k: v for k, v in run.protocol.items() if k not in EXPORT_KEYS},
            "procedure": {"id": method.procedure, "options": dict(method.procedure_options)},
            "data": self.data(key.dataset),
            "first_stage": first,
        }
        if trains(run.protocol):
            spec["loss"] = {"id": method.loss, "options": dict(method.loss_options)}
        if run.protocol["weights"] == FOCAL_CALIBRATION:
            spec["checkpoint"] = checkpoint_file(key.dataset, key.backbone, method, key.path)
        return {**spec, "fingerprint": fingerprint.of_stage(spec, self._training_modules(key))}

    def _training_modules(self, key: RunKey) -> list[str]:
        run = self.study.runs[key]
        method = run.method
        own = ["calgrid.stages.train", registry.spec("loss", method.loss).module]
        return [
            *(own if trains(run.protocol) else ["calgrid.stages.published"]),
            registry.spec("procedure", method.procedure).module,
            registry.spec("backbone", key.backbone).module,
        ]

    @functools.cache  # noqa: B019
    def predict(self, key: RunKey) -> Mapping[str, Any]:
        """Specification of a prediction.

        It names all shift families that exist for the data set, whichever the study wants, so that studies with
        different ones agree.
        """
        run, training = self.study.runs[key], self.train(key)
        families = self.study.datasets.families(key.dataset)
        spec = {
            "key": key._asdict(),
            "checkpoints": list(run.checkpoints),
            "export_features": run.protocol["export_features"],
            "run_fingerprint": training["fingerprint"],
            "families": {family: self.data(family_unit(family)) for family in families},
            **self._test_constants(key),
        }
        modules = [
            "calgrid.stages.predict",
            registry.spec("procedure", run.method.procedure).module,
            registry.spec("backbone", key.backbone).module,
        ]
        return {**spec, "fingerprint": fingerprint.of_stage(spec, modules)}

    @functools.cache  # noqa: B019
    def probe(self, key: RunKey, name: str) -> Mapping[str, Any]:
        """Specification of a probe of a run."""
        probes = self.study.evaluations[key].probes if key in self.study.evaluations else {}
        if name not in probes:
            raise unknown_id("probe", name, probes or {"(none)"}, key.path)
        run = self.study.runs[key]
        spec = {
            "key": key._asdict(),
            "probe": probes[name],
            "checkpoints": list(run.checkpoints),
            "run_fingerprint": self.train(key)["fingerprint"],
            **self._test_constants(key),
        }
        modules = [
            "calgrid.stages.probe",
            registry.spec("probe", probes[name]["id"]).module,
            registry.spec("procedure", run.method.procedure).module,
            registry.spec("backbone", key.backbone).module,
        ]
        return {**spec, "fingerprint": fingerprint.of_stage(spec, modules)}

    def _test_constants(self, key: RunKey) -> dict[str, dict[str, list[float]]]:
        """Mean and deviation by which test images are normalised where the protocol says other ones; else nothing."""
        of = self.study.runs[key].protocol["test_normalisation"].get(key.dataset)
        if of is None:
            return {}
        info = self.study.datasets.spec(of).info
        return {"test_normalisation": {name: list(info[name]) for name in ("mean", "std")}}

    @functools.cache  # noqa: B019
    def external(self, key: RunKey) -> Mapping[str, Any]:
        """Specification of an import of logits made elsewhere."""
        external = self.study.runs[key].external
        if external is None:
            raise ConfigError(f"Run {key.path} is trained here: it is not imported.")
        config = {k: v for k, v in external.items() if k not in ("calibrators", "calibrator_seeds")}
        spec = {"key": key._asdict(), "external": config}
        return {**spec, "fingerprint": fingerprint.of_stage(spec, ["calgrid.stages.external"])}

    def logits_fingerprint(self, key: RunKey) -> str:
        """Fingerprint that the run's logits files must carry."""
        return (self.external if key.protocol == EXTERNAL else self.predict)(key)["fingerprint"]

    def run_fingerprint(self, key: RunKey) -> str:
        """Fingerprint by which a number is traced to the run's records."""
        return (self.external if key.protocol == EXTERNAL else self.train)(key)["fingerprint"]

    @functools.cache  # noqa: B019
    def calibrator(self, name: str, id: str, options: str) -> str:
        """Fingerprint of a calibrator's code and options (JSON)."""
        return fingerprint.of_stage({"name": name, "options": options}, [registry.spec("calibrator", id).module])

    @functools.cache  # noqa: B019
    def calibrate(self, key: RunKey) -> Mapping[str, Any]:
        """Specification of the calibration and scoring of a run in this study."""
        if key not in self.study.evaluations:
            raise ConfigError(f"Run {key.path} is only a first stage: name its method in a grid to calibrate it.")
        run, wanted = self.study.runs[key], self.study.evaluations[key]
        calibrators = [
            {
                **{k: entry[k] for k in ("name", "id", "options", "stochastic", "needs")},
                "seeds": wanted.calibrator_seeds if entry["stochastic"] else wanted.calibrator_seeds[:1],
                "fingerprint": self.calibrator(
                    entry["name"], entry["id"], json.dumps(entry["options"], sort_keys=True)
                ),
            }
            for entry in wanted.calibrators.values()
        ]
        spec = {
            "key": key._asdict(),
            "checkpoints": list(run.checkpoints),
            "families": wanted.families,
            "fit_on": wanted.fit_on,
            "draws": wanted.calibrator_seeds if "same_shift" in wanted.fit_on else [],
            "calibrators": calibrators,
            "statistics": {k: self.statistics[k] for k in SCORING_KEYS if k in self.statistics},
            "run_fingerprint": self.run_fingerprint(key),
            "logits_fingerprint": self.logits_fingerprint(key),
            "label_counts": self._label_counts(key),
            "disjoint_validation": run.protocol.get("disjoint_validation", False),
        }
        return {**spec, "fingerprint": fingerprint.of_stage(spec, ["calgrid.stages.calibrate"])}

    def _label_counts(self, key: RunKey) -> dict[str, str] | None:
        """File with the label counts of a run's test split and what it holds now; None where there is none."""
        path = self.study.label_counts(key)
        return None if path is None else {"file": str(path), "sha256": self._file_digest(path)}

    @functools.cache  # noqa: B019
    def _file_digest(self, path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def sees_validation(self, key: RunKey) -> bool:
        """Does the loss of a run, or that of its first stage, look at validation data during training?"""
        run = self.study.runs[key]
        own = run.method is not None and registry.spec("loss", run.method.loss).info.get("sees_validation", False)
        return bool(own) or (run.first_stage is not None and self.sees_validation(run.first_stage))

    def manifest(self) -> dict[str, Any]:
        """Everything that aggregation and the report need: parts with their fingerprints, and the configuration."""
        layout = self.study.layout
        runs = [
            {
                "key": key._asdict(),
                "run": layout.run(key),
                "first_stage": self._first_stage(key),
                "part": layout.part(key),
                "fingerprint": self.calibrate(key)["fingerprint"],
                "external": key.protocol == EXTERNAL,
                "families": self.study.evaluations[key].families,
                "sees_validation": self.sees_validation(key),
                "warning": self.study.datasets.warning(key.dataset),
                **self._probes(key),
            }
            for key in self.study.evaluations
        ]
        published = [str(self.study.home / path) for path in self.study.config["published"]]
        published += [paper["published"] for paper in self.study.papers]
        content = {
            "study": self.study.layout.study,
            "statistics": dict(self.statistics),
            "published": list(dict.fromkeys(published)),
            "papers": [{**each, "sha256": self._file_digest(Path(each["published"]))} for each in self.study.papers],
            "lines": {protocol: line for line, each in self.study.config["lines"].items() for protocol in each},
            "tuning": self._tuning(),
            "runs": runs,
            "configuration": {k: v for k, v in self.study.config.items() if k not in OF_THE_MACHINE},
        }
        return {**content, "fingerprint": fingerprint.digest({"content": content, "code": self.stage("aggregate")})}

    def _tuning(self) -> dict[str, Any] | None:
        """What the table of tuned methods needs; None where nothing is tuned."""
        settings = self.study.config["tuning"]
        if settings is None:
            return None
        lists = {name: [list(each) for each in found] for name, found in candidates(settings).items()}
        return {"metric": settings["metric"], "protocol": settings["protocol"], "candidates": lists}

    def _probes(self, key: RunKey) -> dict[str, list[dict[str, Any]]]:
        """Probes of a run with the fingerprints of their tables; nothing where there are none."""
        probes = self.study.evaluations[key].probes
        named = [{**each, "fingerprint": self.probe(key, each["name"])["fingerprint"]} for each in probes.values()]
        return {"probes": named} if named else {}

    def _first_stage(self, key: RunKey) -> dict[str, str] | None:
        """Method and folder of the run that a second stage starts from."""
        first = self.study.runs[key].first_stage
        return None if first is None else {"method": first.method, "run": self.study.layout.run(first)}

    def stage(self, name: str) -> str:
        """Fingerprint of a stage after calibration: ``aggregate``, ``tables``, ``figures``, ``report``."""
        return fingerprint.of_stage({"stage": name, "files": _resource_digests(name)}, REPORT_MODULES[name])


def _resource_digests(stage: str) -> Iterable[str]:
    """Digests of files beside the code that shape a stage's output (the report's template)."""
    if stage != "report":
        return []
    folder = fingerprint.PACKAGE_ROOT / "reporting"
    return [fingerprint.digest(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.j2"))]


def as_json(spec: Mapping[str, Any]) -> str:
    """One-line JSON of a specification, for a command line."""
    return json.dumps(spec, sort_keys=True, separators=(",", ":"))
