"""A study: the configuration, checked and expanded into runs and what is wanted of each."""

import functools
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calgrid import registry
from calgrid.backbones._catalogue import check_image_size, describe
from calgrid.configuration import tables, tuning
from calgrid.configuration.calibrators import CalibratorBook
from calgrid.configuration.datasets import DatasetBook
from calgrid.configuration.external import check as check_external
from calgrid.configuration.files import check_folders, check_published
from calgrid.configuration.methods import MethodBook, Place
from calgrid.configuration.probes import ProbeBook, check_head
from calgrid.configuration.protocols import ProtocolBook, check_batches, cropped, for_stage, trains
from calgrid.configuration.runs import EXTERNAL, Evaluation, Layout, Run, RunKey, family_unit
from calgrid.configuration.schema import fill_defaults, validate
from calgrid.configuration.weights import FOCAL_CALIBRATION, check_ready, checkpoint_file
from calgrid.conventions import OOD_PREFIX
from calgrid.errors import ConfigError, unknown_id


class Study:
    """A checked configuration.

    Parameters
    ----------
    config : the configuration as read from YAML.
    home : folder of the workflow (holds ``workflow/schemas`` and ``config/protocols``).

    Attributes
    ----------
    runs : every run that must exist, also first stages that the grid does not name; insertion order is stable.
    evaluations : what is wanted of the runs that the study names.
    layout : where files lie.
    papers : the papers whose tables are wanted, see :func:`calgrid.configuration.tables.paper`.
    """

    def __init__(self, config: Mapping[str, Any], home: Path) -> None:
        schemas = Path(home, "workflow", "schemas")
        validate(config, schemas / "config.schema.yaml", "configuration")
        self.config = fill_defaults({"statistics": {}, **config}, schemas / "config.schema.yaml")
        self.home = Path(home)
        self.layout = Layout(self.config["results"].rstrip("/"), self.config["study"])
        self.protocols = ProtocolBook(
            self.home / "config" / "protocols", schemas / "protocol.schema.yaml", self.config.get("protocols", {})
        )
        self.datasets = DatasetBook(self.config.get("datasets", {}))
        overrides = tuple(self.config.get("overrides", ()))
        self.methods = MethodBook(self.config.get("methods", {}), overrides, self.datasets)
        self.calibrators = CalibratorBook(self.config.get("calibrators", {}))
        self.probes = ProbeBook(self.config.get("probes", {}))
        self.runs: dict[RunKey, Run] = {}
        self.evaluations: dict[RunKey, Evaluation] = {}
        check_folders(self.config)
        self.papers = [tables.paper(self.home, name, "papers") for name in self.config["papers"]]
        for number, path in enumerate(self.config["published"]):
            check_published(self.home / path, f"published[{number}]")
        self._check_override_protocols()
        for number, grid in enumerate(self.config.get("grids", ())):
            self._add_grid(grid, f"grids[{number}]")
        for number, grid in enumerate(self.config.get("grids", ())):
            self._check_fit_on(grid, f"grids[{number}]")
        for unit in self.data_units():
            self._check_source(unit)
        for name, entry in self.config.get("external", {}).items():
            check_external(config["external"][name], self.external_path, f"external.{name}")
            self._add_external(name, entry)
        self._check_label_counts()
        self._check_lines()
        if self.config["tuning"] is not None:
            tuning.check(self.config["tuning"], self.evaluations)
        # a baseline that was asked for must be there; the default one may be missing (then nothing is tested)
        if "baseline" in config.get("statistics", {}):
            self._check_compared(self.config["statistics"]["baseline"], "statistics.baseline")
        for number, comparison in enumerate(self.config["statistics"]["comparisons"]):
            self._check_comparison(comparison, f"statistics.comparisons[{number}]")

    def _check_compared(self, method: str, where: str) -> None:
        known = {key.method for key in self.evaluations}
        if method not in known:
            raise unknown_id("method", method, known, where)

    def _check_comparison(self, comparison: Mapping[str, str], where: str) -> None:
        """Both methods must be there, and somewhere with the same seed: else the question has no answer."""
        method, against = comparison["method"], comparison["against"]
        for role, name in (("method", method), ("against", against)):
            self._check_compared(name, f"{where}.{role}")
        if method == against:
            raise ConfigError(f"{where}: '{method}' is compared with itself; name another method in 'against'.")
        mine = [key for key in self.evaluations if key.method == method]
        if not any(key._replace(method=against) in self.evaluations for key in mine):
            raise ConfigError(
                f"{where}: '{method}' and '{against}' share no protocol, data set, backbone and seed; "
                "put both into one grid."
            )

    def _check_lines(self) -> None:
        """A cell of a table must not get numbers of two protocols."""
        line_of: dict[str, str] = {}
        known = {key.protocol for key in self.evaluations}
        for name, protocols in self.config["lines"].items():
            for protocol in protocols:
                if protocol not in known:
                    raise unknown_id("protocol", protocol, known, f"lines.{name}")
                if protocol in line_of:
                    raise ConfigError(f"lines.{name}: '{protocol}' is in '{line_of[protocol]}' already.")
                line_of[protocol] = name
        cells: dict[RunKey, str] = {}
        for key in self.evaluations:
            line = line_of.get(key.protocol, key.protocol)
            other = cells.setdefault(key._replace(protocol=line), key.protocol)
            if other != key.protocol:
                raise ConfigError(
                    f"lines.{line}: '{other}' and '{key.protocol}' both train {key.method} on {key.dataset} with "
                    f"{key.backbone}; give them different lines."
                )

    def _check_source(self, unit: str) -> None:
        """Files of configured data sets must be there before any job, and a folder for what is downloaded."""
        self.data_settings(unit)
        if self.config["data_root"] is None and self.datasets.spec(unit).info.get("download", False):
            raise ConfigError(f"data_root: '{unit}' is downloaded; give a folder for its files: data_root: data")

    def _check_override_protocols(self) -> None:
        for number, override in enumerate(self.config.get("overrides", ())):
            wanted = override["match"].get("protocol", [])
            for name in [wanted] if isinstance(wanted, str) else wanted:
                self.protocols.get(name, f"overrides[{number}].match")

    def _add_grid(self, grid: Mapping[str, Any], where: str) -> None:
        protocol = self.protocols.get(grid["protocol"], f"{where}.protocol")
        for dataset in grid["datasets"]:
            spec = self.datasets.spec(dataset, f"{where}.datasets")
            if spec.info.get("role") != "dataset":
                raise ConfigError(f"{where}.datasets: '{dataset}' can only be tested on; name it in shifts.")
        self._check_backbones(grid, protocol, where)
        if not trains(protocol):
            check_ready(grid, protocol, self.datasets, where)
        self._check_shifts(grid, where)
        calibrators = {name: self._calibrator(name, where) for name in grid["calibrators"]}
        self._check_features(calibrators, protocol, grid, where)
        probes = {name: self.probes.resolve(name, f"{where}.probes") for name in grid.get("probes", ())}
        places = itertools.product(grid["datasets"], grid["backbones"], grid["methods"], grid["seeds"])
        for dataset, backbone, method, seed in places:
            key = RunKey(grid["protocol"], dataset, backbone, method, seed)
            self._add_run(key, protocol, where)
            families = self._families(dataset, grid["shifts"])
            wanted = Evaluation(calibrators, grid["calibrator_seeds"], families, grid["fit_on"], probes)
            self._check_heads(key, calibrators, where)
            for probe in probes.values():
                check_head(probe, method, self.runs[key].method, where)
            self._add_evaluation(key, wanted)

    def _add_evaluation(self, key: RunKey, wanted: Evaluation) -> None:
        if key in self.evaluations:
            self.evaluations[key].add(wanted)
        else:
            self.evaluations[key] = Evaluation(
                dict(wanted.calibrators),
                sorted(wanted.calibrator_seeds),
                list(wanted.families),
                list(wanted.fit_on),
                dict(wanted.probes),
            )

    def _add_run(self, key: RunKey, protocol: Mapping[str, Any], where: str) -> None:
        if key in self.runs:
            return
        if trains(protocol) and self.datasets.spec(key.dataset).info.get("evaluation_only", False):
            raise ConfigError(
                f"{where}.datasets: '{key.dataset}' has no training images, and protocol '{key.protocol}' trains; use "
                "one with weights: published, or name logits of a network that was trained elsewhere under 'external'."
            )
        *_, first = self.methods.split(key.method, f"{where}.methods")
        defaults_of = self.datasets.defaults_of(key.dataset)
        staged = for_stage(protocol, second=first is not None)
        if trains(protocol) and (sizes := self.datasets.spec(key.dataset).info.get("sizes")):
            stage = "second stage of " if first else ""
            check_batches(staged, sizes["train"], f"{where}: {stage}protocol '{key.protocol}' on '{key.dataset}'")
        place = Place(key.protocol, key.dataset, key.backbone, staged.get("reduction", "mean"), defaults_of)
        method = self.methods.resolve(key.method, place)
        if protocol["weights"] == FOCAL_CALIBRATION:
            checkpoint_file(key.dataset, key.backbone, method, f"{where}.methods")
        first_key = key._replace(method=first) if first else None
        if first_key:
            self._add_run(first_key, protocol, where)
        self.runs[key] = Run(key, staged, method, first_key)

    def _calibrator(self, name: str, where: str) -> dict[str, Any]:
        return self.calibrators.resolve(name, f"{where}.calibrators")

    @staticmethod
    def _check_features(
        calibrators: Mapping[str, Mapping[str, Any]], protocol: Mapping[str, Any], grid: Mapping[str, Any], where: str
    ) -> None:
        """Calibrators that need features find them in the logits files, on shifts too where they are fitted there."""
        wanted = [True, "all"] if grid["fit_on"] == ["val"] else ["all"]
        for name, resolved in calibrators.items():
            if "features" in resolved["needs"] and protocol["export_features"] not in wanted:
                value = "true" if True in wanted else "all"
                raise ConfigError(
                    f"{where}.calibrators: '{name}' needs features; set export_features: {value} in the protocol."
                )

    def _check_heads(self, key: RunKey, calibrators: Mapping[str, Mapping[str, Any]], where: str) -> None:
        procedure = registry.spec("procedure", self.runs[key].method.procedure)
        if procedure.info.get("linear_head", True):
            return
        for name, resolved in calibrators.items():
            if "head" in resolved["needs"]:
                raise ConfigError(
                    f"{where}.calibrators: '{name}' needs a linear last layer, which '{key.method}' does not have; put "
                    "the method into a grid without this calibrator."
                )

    def _check_backbones(self, grid: Mapping[str, Any], protocol: Mapping[str, Any], where: str) -> None:
        """Every backbone must exist, have weights to start from, and take images of every size that is known."""
        for backbone in grid["backbones"]:
            spec = describe(backbone, f"{where}.backbones")
            if protocol["pretrained"] and not spec.info["pretrained"]:
                raise ConfigError(
                    f"{where}.backbones: '{backbone}' has no published weights, from which protocol "
                    f"'{grid['protocol']}' starts; use another backbone or pretrained: false."
                )
            for dataset in grid["datasets"]:
                shape = self.datasets.spec(dataset).info.get("image_shape")
                place = f"{where}.backbones for data set '{dataset}'"
                if size := cropped(shape and shape[1:], protocol, place):
                    check_image_size(spec, *size, place)

    def _check_shifts(self, grid: Mapping[str, Any], where: str) -> None:
        for shift in grid["shifts"]:
            homes = [dataset for dataset in grid["datasets"] if self._families(dataset, [shift])]
            if not homes:
                known = {family for d in grid["datasets"] for family in self.datasets.families(d)}
                raise unknown_id("shift", shift, known or {"(none)"}, f"{where}.shifts")

    def _check_fit_on(self, grid: Mapping[str, Any], where: str) -> None:
        """Calibrators can be fitted on shifts only where there are any, be it for another block of the study."""
        families = {family for dataset in grid["datasets"] for family in self.families(grid["protocol"], dataset)}
        if "same_shift" in grid["fit_on"] and all(family.startswith(OOD_PREFIX) for family in families):
            raise ConfigError(f"{where}.fit_on: 'same_shift' needs a shift family in 'shifts'; name one or remove it.")

    def _families(self, dataset: str, shifts: list[str]) -> list[str]:
        return [shift for shift in shifts if shift in self.datasets.families(dataset)]

    def _add_external(self, name: str, external: Mapping[str, Any]) -> None:
        where = f"external.{name}"
        calibrators = {each: self._calibrator(each, where) for each in external["calibrators"]}
        for each, resolved in calibrators.items():
            if "head" in resolved["needs"] and "head" not in external:
                raise ConfigError(f"{where}.calibrators: '{each}' needs the last layer; give its file as 'head'.")
        for rows, seed in self._val_subsets(external):
            self._add_external_run(name, external, calibrators, rows, seed)

    @staticmethod
    def _val_subsets(external: Mapping[str, Any]) -> list[tuple[int | None, int | None]]:
        """Sizes and seeds of the sets that fit the calibrators; ``(None, None)`` is all rows."""
        if "val_rows" not in external:
            return [(None, None)]
        return list(itertools.product(external["val_rows"], external["val_seeds"]))

    def _add_external_run(
        self, name: str, external: Mapping[str, Any], calibrators: dict[str, Any], rows: int | None, seed: int | None
    ) -> None:
        dataset = external.get("dataset", name)
        key = RunKey(
            EXTERNAL,
            dataset if rows is None else f"{dataset}_n{rows}",
            external["backbone"],
            external["method"],
            external["seed"] if seed is None else seed,
        )
        if key in self.runs:
            raise ConfigError(f"external.{name}: another external run has the same dataset, backbone, method and seed.")
        config = {k: v for k, v in external.items() if k not in ("val_rows", "val_seeds")}
        subset = {} if rows is None else {"val_rows": rows, "val_seed": seed}
        self.runs[key] = Run(key, {}, None, None, {**config, **subset, "name": name})
        self._add_evaluation(key, Evaluation(calibrators, external["calibrator_seeds"], []))

    def idle_overrides(self) -> list[int]:
        """Numbers of the overrides that match no run: no fault, as a block of a grid may have been left out."""
        runs: dict[str, set[Place]] = {}
        for key in (key for key, run in self.runs.items() if run.external is None):
            runs.setdefault(key.method, set()).add(Place(key.protocol, key.dataset, key.backbone))
        return self.methods.idle_overrides(runs)

    def label_counts(self, key: RunKey) -> Path | None:
        """File with how many people chose each class for each test image of a run's data set, or None."""
        path = self.config["label_counts"].get(self._source(key))
        return None if path is None else self.external_path(path)

    def _source(self, key: RunKey) -> str:
        """Data set that the test rows of a run come from; an external run on few val rows has a name of its own."""
        external = self.runs[key].external
        return key.dataset if external is None else external.get("dataset", external["name"])

    def _check_label_counts(self) -> None:
        known = {self._source(key) for key in self.evaluations}
        for dataset, path in self.config["label_counts"].items():
            if dataset not in known:
                raise unknown_id("data set", dataset, known, "label_counts")
            if not self.external_path(path).is_file():
                raise ConfigError(
                    f"label_counts.{dataset}: the file '{self.external_path(path)}' does not exist; correct it or "
                    "data_root."
                )

    def external_path(self, path: str) -> Path:
        """Path of an external file, which the configuration gives relative to data_root where there is one."""
        return Path(self.config["data_root"] or "", path)

    @functools.cache  # noqa: B019  (a study lives as long as its process)
    def data_settings(self, unit: str) -> Mapping[str, Any]:
        """What the prepared arrays of a configured data set depend on; nothing for a registered one."""
        return self.datasets.settings(unit, self.config["data_root"])

    def check_labels(self) -> None:
        """Raise ConfigError for pictures of one's own that are too few or have other classes than are asked for.

        It takes seconds where there are many, so jobs, which plan too, leave it out.
        """
        for unit in self.data_units():
            images = self.datasets.check_labels(unit, self.config["data_root"])
            for key, run in self.runs.items() if images is not None else ():
                if key.dataset == unit and trains(run.protocol):
                    check_batches(run.protocol, images, f"run {key.path}")

    def families(self, protocol: str, dataset: str) -> list[str]:
        """All shift families that the study wants of any run of this protocol and data set, in a stable order."""
        wanted = {
            family
            for key, evaluation in self.evaluations.items()
            if (key.protocol, key.dataset) == (protocol, dataset)
            for family in evaluation.families
        }
        return sorted(wanted)

    def data_units(self) -> list[str]:
        """Data sets and shifts that must be prepared."""
        trained = [key for key, run in self.runs.items() if run.external is None]
        places = {(key.protocol, key.dataset) for key in trained}
        families = {family for place in places for family in self.families(*place)}
        return sorted({key.dataset for key in trained} | {family_unit(f) for f in families})
