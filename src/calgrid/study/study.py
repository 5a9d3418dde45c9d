"""A study: the checked configuration, expanded into runs and evaluations."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from calgrid.components import plugins, registry
from calgrid.components.options import Options
from calgrid.components.validation import validated
from calgrid.errors import ConfigError, check_ids, refuse, unknown_id
from calgrid.storage.records import RunKey, image_set_of
from calgrid.storage.sources import source_digest
from calgrid.storage.specs import EXTERNAL_FILES, Calibrator, CheckpointFile
from calgrid.study import checks
from calgrid.study.datasets import DatasetCatalog
from calgrid.study.external import Entry, check_calibrators, runs_of
from calgrid.study.focal_calibration import checkpoint_file
from calgrid.study.model import Config, Ensembles, Grid
from calgrid.study.papers import PUBLISHED, paper_folder
from calgrid.study.protocols import (
    FOCAL_CALIBRATION,
    ProtocolCatalog,
    check_batches,
    for_stage,
    training_options,
)
from calgrid.study.runs import (
    CalibratorCatalog,
    ComponentCatalog,
    Ensemble,
    EnsembleName,
    Evaluation,
    ExternalRun,
    MethodCatalog,
    Predicted,
    Run,
    ensemble_name,
    groups,
)
from calgrid.study.yaml_files import here_or_ours, read_names, with_include
from calgrid.training.protocol import Protocol, TrainingProtocol


class Study:
    """A checked configuration; an invalid key, name, value or combination raises ConfigError.

    Parameters
    ----------
    config : configuration as read from YAML.
    home : folder with ``config``.

    Attributes
    ----------
    config : all options; ``model_fields_set`` of a part has the given keys.
    folder : folder of its results, within the folder of all results.
    data_root : folder from which the configuration names files of data.
    runs : all runs, ``trained`` ones, ``ensembles`` and ``external`` ones, with first stages that
        no grid names; the order is stable.
    evaluations : evaluations of the runs named in the configuration.
    training : trained run -> the run that trains its network: itself, or a run of a protocol that
        differs only in tests.
    """

    def __init__(self, config: Options, home: Path) -> None:
        self.home = Path(home)
        self.config = validated(Config, self._with_files(config), "configuration")
        plugins.use(self.config.plugins, isolate=True)
        self.folder = Path(self.config.results, self.config.study)
        self.data_root = Path(self.config.data_root or "")
        self.protocols = ProtocolCatalog(self.home, self.config.protocols)
        self.datasets = DatasetCatalog(self.config.datasets, self.config.data_root)
        self.methods = MethodCatalog(self.config.methods, self.config.overrides, self.datasets)
        self.calibrators = CalibratorCatalog(self.config.calibrators)
        self.probes = ComponentCatalog("probe", self.config.probes)
        checks.check_folders(self.config)
        papers = [path.parent.name for path in paper_folder(self.home, "").glob(f"*/{PUBLISHED}")]
        check_ids("paper", self.config.papers, sorted(papers), "papers")
        for number, file in enumerate(self.published()):
            checks.check_published(file, f"published[{number}]")
        for number, override in enumerate(self.config.overrides):
            for name in override.match.protocol:
                self.protocols.get(name, f"overrides[{number}].match")
        self.trained: dict[RunKey, Run] = {}
        self.training: dict[RunKey, RunKey] = {}
        self.ensembles: dict[RunKey, Ensemble] = {}
        self.external: dict[RunKey, ExternalRun] = {}
        self.evaluations: dict[RunKey, Evaluation] = {}
        grids = self.config.grids
        for number, grid in enumerate(grids):
            self._add_grid(grid, f"grids[{number}]")
        for number, grid in enumerate(grids):
            keys = _keys(grid, f"grids[{number}]")
            families = set().union(*map(self.families, keys))
            checks.check_fit_on(grid, families, self.datasets, f"grids[{number}]")
        described = {name: self.datasets.describe(name).info for name in self.image_sets()}
        downloads = [name for name, info in described.items() if info.get("download", False)]
        checks.check_data_root(self.config.data_root, downloads)
        for image_set in described:
            self.datasets.definition(image_set)
        for name, entry in self.config.external.items():
            self._add_external(name, entry)
        if self.config.ensembles is not None:
            self._add_external_ensembles(self.config.ensembles)
        self.runs: dict[RunKey, Predicted] = {**self.trained, **self.ensembles, **self.external}
        self._check_questions()

    def _with_files(self, config: Options) -> Options:
        """The configuration with included files, and with the names in files of backbones."""
        if not isinstance(config, Mapping):
            return config
        config = with_include(config, self.home)
        grids = config.get("grids")
        if not isinstance(grids, list):
            return config
        full = list(grids)
        for number, grid in enumerate(grids):
            if isinstance(grid, dict) and isinstance(path := grid.get("backbones"), str):
                what = f"grids[{number}].backbones: the list {path}"
                names = read_names(here_or_ours(path, self.home), what)
                full[number] = {**grid, "backbones": names}
        return {**config, "grids": full}

    def _check_questions(self) -> None:
        statistics, tuning = self.config.statistics, self.config.tuning
        calibrators = {key: each.calibrators for key, each in self.evaluations.items()}
        evaluated = {key.method for key in self.evaluations}
        datasets = set(map(self._source, self.evaluations))
        check_ids("data set", self.config.label_counts, datasets, "label_counts")
        for dataset, file in self.config.label_counts.items():
            checks.check_file(self.data_root, file, f"label_counts.{dataset}")
        checks.check_lines(self.config.lines, self.evaluations)
        tuned = tuning.methods if tuning else ()
        checks.check_names(self.config.names, evaluated.union(tuned, *calibrators.values()))
        if statistics.conformal is not None:
            for key, run in self.trained.items():
                sizes = self.datasets.sizes(key.dataset) or {}
                if n_val := sizes.get("val"):
                    checks.check_conformal(n_val, run.disjoint_validation, key.dataset)
        if tuning is not None:
            checks.check_tuning(tuning, self.evaluations)
        # a baseline in the configuration must be evaluated; without the default one, the tests are
        # omitted
        if "baseline" in statistics.model_fields_set:
            check_ids("method", [statistics.baseline], evaluated, "statistics.baseline")
        known = registry.descriptions("metric")
        for name in self.own_metrics:
            if name not in known:
                raise registry.missing(
                    ["metric"], "metric of a plugin", name, known, "statistics.metrics"
                )
        for number, comparison in enumerate(statistics.comparisons):
            checks.check_comparison(comparison, calibrators, f"statistics.comparisons[{number}]")

    # grids
    # --------------------------------------------------------------------------------------------

    def _add_grid(self, grid: Grid, where: str) -> None:
        protocol = self.protocols.get(grid.protocol, f"{where}.protocol")
        checks.check_grid(grid, protocol, self.datasets, where)
        calibrators = self._resolved_calibrators(grid.calibrators, where)
        checks.check_features(calibrators.values(), protocol, grid.fit_on, where)
        probes = {name: self.probes.named(name, f"{where}.probes") for name in grid.probes}
        for key in _keys(grid, where):
            self._add_run(key, protocol, where)
            checks.check_linear_head(
                self.trained[key].method, calibrators.values(), probes.values(), where
            )
            known = self.datasets.families(key.dataset)
            families = [shift for shift in grid.shifts if shift in known]
            self._evaluate(
                key, Evaluation(calibrators, grid.calibrator_seeds, families, grid.fit_on, probes)
            )
        wanted = Evaluation(calibrators, grid.calibrator_seeds, fit_on=grid.fit_on)
        for method in grid.methods:
            if (name := ensemble_name(method)) is not None:
                self._add_ensembles(_keys(grid, where), method, name, wanted, where)

    def _add_external_ensembles(self, ensembles: Ensembles) -> None:
        """Add ensembles of external runs, and of trained runs in the same places."""
        calibrators = self._resolved_calibrators(ensembles.calibrators, "ensembles")
        wanted = Evaluation(calibrators, ensembles.calibrator_seeds, fit_on=["val"])
        places = {key[:3] for key in self.external}
        trained = [key for key in self.trained if key in self.evaluations and key[:3] in places]
        known = {key.method for key in self.external}
        for method in ensembles.methods:
            name = ensemble_name(method, "ensembles.methods")
            if name is None or name.method not in known:
                inner = method if name is None else name.method
                if name is None and inner in known:
                    raise ConfigError(
                        f"ensembles.methods: '{method}' is no ensemble; write ens3({method}), with "
                        "the number of its members."
                    )
                raise unknown_id("method", inner, known, "ensembles.methods")
            self._add_ensembles([*trained, *self.external], method, name, wanted, "ensembles")

    def _add_ensembles(
        self,
        runs: Iterable[RunKey],
        method: str,
        name: EnsembleName,
        wanted: Evaluation,
        where: str,
    ) -> None:
        """Add the ensembles of a method, whose members are some of the runs."""
        first = None
        if name.pool == "calibrated":
            first = self.calibrators.resolve(str(name.then), f"{where}.methods")
        for calibrator in (*wanted.calibrators.values(), *([first] if first else [])):
            if calibrator["needs"] != ["logits"]:
                raise ConfigError(
                    f"{where}: '{calibrator['name']}' needs features, which the ensemble "
                    f"'{method}' does not have; give ensembles a grid of their own."
                )
        for key, members in groups(runs, method, name, where):
            made = [self.trained.get(member) or self.external[member] for member in members]
            checkpoints = _common([run.checkpoints for run in made])
            refuse(
                (
                    key in self.external,
                    f"{where}: an external run is named {key.path} already; leave it out in one of "
                    "the two places.",
                ),
                (
                    any(run.draws_validation for run in made),
                    f"{where}: the members of '{method}' need the same validation images, which "
                    f"protocol '{key.protocol}' draws for each seed; use a protocol with "
                    "val_draw: fixed.",
                ),
                (
                    not checkpoints,
                    f"{where}.methods: the members of {key.path} have no checkpoint in common; "
                    "take others.",
                ),
            )
            disjoint = any(run.disjoint_validation for run in made)
            self.ensembles[key] = Ensemble(
                key=key,
                checkpoints=checkpoints,
                disjoint_validation=disjoint,
                sees_validation=any(run.sees_validation for run in made),
                members=tuple(members),
                pool=name.pool,
                calibrator=first,
            )
            families = _common([self.evaluations[member].families for member in members])
            self._evaluate(key, replace(wanted, families=families))

    def _resolved_calibrators(self, names: Iterable[str], where: str) -> dict[str, Calibrator]:
        return {name: self.calibrators.resolve(name, f"{where}.calibrators") for name in names}

    def _evaluate(self, key: RunKey, wanted: Evaluation) -> None:
        """Evaluate a run, also as other grids want."""
        known = self.evaluations.get(key, Evaluation())
        self.evaluations[key] = Evaluation(
            {**known.calibrators, **wanted.calibrators},
            sorted({*known.calibrator_seeds, *wanted.calibrator_seeds}),
            list(dict.fromkeys([*known.families, *wanted.families])),
            list(dict.fromkeys([*known.fit_on, *wanted.fit_on])),
            {**known.probes, **wanted.probes},
        )

    def _add_run(self, key: RunKey, protocol: Protocol, where: str) -> None:
        """Add the first stage of a run, if any, and the run."""
        if key in self.trained:
            return
        info = self.datasets.describe(key.dataset).info
        checks.check_training_images(key, protocol, info, where)
        inner = self.methods.split(key.method, f"{where}.methods").first_stage
        first = None if inner is None else key._replace(method=inner)
        staged = for_stage(protocol, second=first is not None)
        method = self.methods.resolve(key, staged)
        if isinstance(staged, TrainingProtocol):
            named = f"protocol '{key.protocol}'"
            if sizes := info.get("sizes"):
                stage = "second stage of " if first else ""
                at = f"{where}: {stage}{named} on '{key.dataset}'"
                check_batches(staged, sizes["train"], at)
            checks.check_procedure(method.procedure, staged, f"{where}: {named}")
        checkpoint = None
        if protocol.weights == FOCAL_CALIBRATION:
            checkpoint = checkpoint_file(key.dataset, key.backbone, method, f"{where}.methods")
        if protocol.weights_file is not None:
            checkpoint = self._own_weights(key, protocol.weights_file, where)
        sees_validation = method.sees_validation
        if first is not None:
            self._add_run(first, protocol, where)
            sees_validation |= self.trained[first].sees_validation
        self.trained[key] = Run(
            key=key,
            checkpoints=tuple(staged.checkpoints),
            disjoint_validation=staged.disjoint_validation,
            sees_validation=sees_validation,
            draws_validation=staged.val_draw == "seed",
            protocol=staged,
            method=method,
            first_stage=first,
            checkpoint=checkpoint,
        )
        self.training[key] = self._training(key, where)

    def _own_weights(self, key: RunKey, pattern: str, where: str) -> CheckpointFile:
        """The user's existing weights of a run, which replace its training."""
        if self.methods.split(key.method, where).first_stage is not None:
            raise ConfigError(
                f"{where}.methods: protocol '{key.protocol}' trains nothing, so the second stage "
                f"'{key.method}' cannot be trained; remove it."
            )
        name = pattern.format(**key._asdict())
        try:
            source = source_digest(self.config.data_root, name)
        except ConfigError as error:
            raise ConfigError(f"{where}: weights_file: {error}") from None
        return {"name": name, "folder": "", "source": source}

    def _training(self, key: RunKey, where: str) -> RunKey:
        """Run that trains the tested network of a run: itself, or one of an earlier protocol, which
        is added.
        """
        variants = self.protocols.variants
        if key.protocol not in variants:
            return key
        for name in (variants[key.protocol]["base"], *variants):
            if name == key.protocol:
                break
            if self._trains_alike(key, name):
                other = key._replace(protocol=name)
                self._add_run(other, self.protocols.get(name, where), where)
                return self.training[other]
        return key

    def _trains_alike(self, key: RunKey, name: str) -> bool:
        """Whether another protocol trains the same network for a run."""
        run = self.trained[key]
        if run.first_stage is not None and not self._trains_alike(run.first_stage, name):
            return False
        staged = for_stage(self.protocols.get(name, name), second=run.first_stage is not None)
        if training_options(staged) != training_options(run.protocol):
            return False
        return self.methods.resolve(key._replace(protocol=name), staged) == run.method

    # external logits
    # --------------------------------------------------------------------------------------------

    def _add_external(self, name: str, entry: Entry) -> None:
        where = f"external.{name}"
        calibrators = self._resolved_calibrators(entry.calibrators, where)
        evaluation = Evaluation(calibrators, entry.calibrator_seeds, fit_on=["val"])
        for run in runs_of(name, entry, self.data_root, self.folder, where):
            check_calibrators(entry, run, calibrators.values(), where)
            key = run.key
            refuse(
                (
                    key in self.trained and key not in self.evaluations,
                    f"{where}: this study trains {key.path} itself, as a first stage; leave its "
                    "method or seed out here, and add it to a grid to compare with it.",
                ),
                (
                    key in self.trained or key in self.ensembles,
                    f"{where}: this study makes {key.path} itself; leave its method or seed out in "
                    "one of the two places.",
                ),
                (
                    key in self.external,
                    f"{where}: another external run has the same dataset, backbone, method and "
                    "seed; change one of them.",
                ),
            )
            self.external[key] = run
            self._evaluate(key, evaluation)

    def external_files(self, key: RunKey) -> list[Path]:
        """Files of an external run, in the order of ``EXTERNAL_FILES``."""
        run = self.external[key]
        return [run.root / run.external[name] for name in EXTERNAL_FILES if name in run.external]

    def published(self) -> list[Path]:
        """Files with published numbers."""
        return [here_or_ours(path, self.home) for path in self.config.published]

    # facts for the plan
    # --------------------------------------------------------------------------------------------

    def label_counts(self, key: RunKey) -> Path | None:
        """File with the counts of human labels of the test images of a run, or None."""
        path = self.config.label_counts.get(self._source(key))
        return None if path is None else self.data_root / path

    def _source(self, key: RunKey) -> str:
        """Data set of the test rows of a run; external runs with ``val_rows`` have other names in
        their keys.
        """
        if key not in self.external:
            return key.dataset
        external = self.external[key].external
        return external.get("dataset", external["name"])

    def families(self, key: RunKey) -> list[str]:
        """Sorted shift families of the evaluation of a run."""
        return sorted(self.evaluations[key].families) if key in self.evaluations else []

    @property
    def own_metrics(self) -> list[str]:
        """Metrics of plugins that the study computes."""
        return self.config.statistics.metrics or []

    def image_sets(self) -> list[str]:
        """Data sets and shifts to prepare, including the sources of shifts."""
        return sorted({image_set for image_set, _ in self.prepared()})

    def prepared(self) -> list[tuple[str, int | None]]:
        """Data sets and shifts to prepare, each with the seed of its draw of validation images (see
        :meth:`val_seed`).
        """
        wanted: set[tuple[str, int | None]] = set()
        for key in self.trained:
            wanted.add((key.dataset, self.val_seed(key)))
            for family in self.families(key):
                image_set = image_set_of(family)
                wanted.add((image_set, None))
                if base := self.datasets.base(image_set):
                    wanted.add((base, None))
        return sorted(wanted, key=lambda each: (each[0], -1 if each[1] is None else each[1]))

    def val_seed(self, key: RunKey) -> int | None:
        """Seed of the draw of validation images of a trained run; None: as its data set."""
        return key.seed if self.trained[key].draws_validation else None


def _common(lists: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Names in all lists, in the order of the first."""
    common = set(lists[0]).intersection(*lists)
    return tuple(name for name in lists[0] if name in common)


def _keys(grid: Grid, where: str) -> Iterator[RunKey]:
    """Trained runs of a grid; ensembles are replaced by their members."""
    methods = []
    for method in grid.methods:
        name = ensemble_name(method, f"{where}.methods")
        methods.append(method if name is None else name.method)
    axes = (grid.datasets, grid.backbones, dict.fromkeys(methods), grid.seeds)
    for values in itertools.product(*axes):
        yield RunKey(grid.protocol, *values)
