"""Checks of a study that read the user's files or import plugins, and may take seconds: run once
before the jobs. All functions raise ConfigError.
"""

import functools
import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from calgrid import __version__
from calgrid.backbones import catalogue
from calgrid.class_names import check_outputs, first_difference, is_other_order, say_unnamed
from calgrid.components import fingerprint, plugins, registry
from calgrid.components.options import Options
from calgrid.errors import CalgridError, ConfigError, DataError, located, refuse
from calgrid.progress import warn
from calgrid.storage.records import RunKey, image_set_of, sha256_of, sharing_rows
from calgrid.storage.sources import cache_file, keep
from calgrid.storage.specs import EXTERNAL_FILES
from calgrid.study.checks import check_conformal
from calgrid.study.model import Bank
from calgrid.study.protocols import check_batches, cropped
from calgrid.study.runs import ExternalRun
from calgrid.study.study import Study
from calgrid.training.protocol import TrainingProtocol

if TYPE_CHECKING:
    from calgrid.logits.bank import BankRows

#: rows of logits to try losses of plugins on, and their classes if the number of classes is known
#: only from files
EXAMPLE_ROWS, EXAMPLE_CLASSES = 8, 10


def check_all(study: Study) -> None:
    """Check plugins, the user's labels, banks, external logits and weights from elsewhere."""
    check_plugins(study)
    check_labels(study)
    check_weights(study)
    if study.external:
        check_external(study)
    check_networks(study)


# plugins
# --------------------------------------------------------------------------------------------------


def check_plugins(study: Study) -> None:
    """Import the components of plugins and compute their losses and metrics on an example; without
    torch or SciPy their part is skipped.
    """
    used: set[tuple[str, str]] = set()
    for image_set in study.image_sets():
        entry = study.datasets.configured.get(image_set, {})
        used.add(("dataset", entry.get("base", image_set)))
    losses: list[tuple[str, int, Options]] = []
    for key, run in study.trained.items():
        used |= {
            ("backbone", key.backbone),
            ("procedure", run.method.procedure),
            ("loss", run.method.loss),
        }
        n_classes = study.datasets.describe(key.dataset).info.get("n_classes") or EXAMPLE_CLASSES
        loss = run.method.loss, n_classes, run.method.loss_options
        of_plugin = registry.describe("loss", run.method.loss).origin != plugins.PACKAGE
        if of_plugin and loss not in losses:
            losses.append(loss)
    for wanted in study.evaluations.values():
        used |= {("calibrator", calibrator["id"]) for calibrator in wanted.calibrators.values()}
        used |= {("probe", probe["id"]) for probe in wanted.probes.values()}
    has_torch = find_spec("torch") is not None
    for kind, id in sorted(used):
        if has_torch and registry.describe(kind, id).origin != plugins.PACKAGE:
            registry.load(kind, id)
    for loss in losses if has_torch else ():
        _check_loss(*loss)
    if study.own_metrics and find_spec("scipy") is not None:
        from calgrid.components.metrics import check_metric  # noqa: PLC0415  (it imports SciPy)

        described = [study.datasets.describe(key.dataset) for key in study.trained]
        counts = {component.info.get("n_classes") for component in described}
        for name in study.own_metrics:
            check_metric(name, sorted(filter(None, counts)))


def _check_loss(id: str, n_classes: int, options: Options) -> None:
    """Compute a loss, its gradient and its end of an epoch on random logits: all must be finite."""
    import torch  # noqa: PLC0415  (jobs of Snakemake's environment are planned without it)

    from calgrid.losses import build_loss  # noqa: PLC0415  (torch)

    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(EXAMPLE_ROWS, n_classes, generator=rng).requires_grad_()
    labels = torch.arange(EXAMPLE_ROWS) % n_classes
    features, index = torch.rand(EXAMPLE_ROWS, 16, generator=rng), torch.arange(EXAMPLE_ROWS)
    loss = build_loss(id, n_classes, **options)
    where = plugins.shown(type(loss).__module__)
    loss.begin_training(labels)
    with registry.errors_of(type(loss), f"fails on logits of shape {tuple(logits.shape)}"):
        total = loss(logits, labels, features, index)
        if total.requires_grad:
            total.backward()
        loss.end_epoch(0, logits.detach(), labels)
    refuse(
        (
            not torch.isfinite(total),
            f"{where}: compute() returns {total.item()} for random logits; correct it.",
        ),
        (
            logits.grad is None or not torch.isfinite(logits.grad).all(),
            f"{where}: the loss has no finite gradient at random logits; compute it of the logits "
            "with operations of torch.",
        ),
    )


# data and weights
# --------------------------------------------------------------------------------------------------


def check_labels(study: Study) -> None:
    """Check that the user's images suffice and their labels fit the configuration."""
    for image_set in study.image_sets():
        study.datasets.class_counts(image_set)  # refuses labels that do not fit
    borrowed = set()
    for key, run in study.trained.items():
        counted = study.datasets.class_counts(key.dataset)
        for family in study.families(key) if counted is not None else ():
            base = study.datasets.base(image_set_of(family))
            if base not in (None, key.dataset):
                borrowed.add((key.dataset, family, base))
        # those of registered data sets are checked with their grid
        if counted is not None and isinstance(run.protocol, TrainingProtocol):
            where = f"protocol '{key.protocol}' on '{key.dataset}'"
            check_batches(run.protocol, sum(counted["train"].values()), where)
    for dataset, family, base in sorted(borrowed):
        names = study.datasets.class_names(dataset) or ("0", "1", "...")
        say_unnamed("labels", f"'{family}', a shift of '{base}',", f"'{dataset}'", names)


def check_weights(study: Study) -> None:
    """Check that networks trained elsewhere have their outputs in the class order of the user's
    images, and warn if the order is unknown; check names and shapes in files of weights against the
    networks of their runs, if the number of classes is known. Without torch, files are not read.
    """
    said: set[str] = set()
    networks: dict[tuple[str, int], Any] = {}
    for key, run in study.trained.items():
        name, named, path = key.dataset, None, None
        weights = f"the published network of '{key.backbone}'"
        if isinstance(run.protocol, TrainingProtocol):
            continue
        if run.protocol.weights_file is not None and run.checkpoint is not None:
            if find_spec("torch") is None:
                continue
            from calgrid.backbones import build_backbone  # noqa: PLC0415  (torch)
            from calgrid.backbones.weights import (  # noqa: PLC0415  (torch)
                load_state,
                read_class_names,
                read_state,
            )

            path = study.data_root / run.checkpoint["name"]
            weights, named = str(path), read_class_names(path)
        classes = study.datasets.class_names(name)
        chosen = study.datasets.options.get(name, {}).get("classes") is not None
        n_classes = study.datasets.describe(name).info.get("n_classes") or len(classes or ())
        with located(f"protocol '{key.protocol}'"):
            check_outputs(weights, named, name, classes, chosen)
            if name not in said and classes and not (named or chosen):
                say_unnamed("outputs", weights, f"'{name}'", classes)
            if name not in said and named and not classes:
                say_unnamed("labels", f"'{name}'", weights, named)
            said.add(name)
            if path is not None and n_classes:
                kind = key.backbone, n_classes
                if kind not in networks:
                    networks[kind] = build_backbone(*kind)
                load_state(networks[kind], read_state(path, run.protocol.weights_key), path)


def check_networks(study: Study) -> None:
    """Pass two images of the data set's size, on the meta device, through each network without
    declared image sizes, and check published weights of timm against the classes and images of
    their data set. Without torch nothing is checked.
    """
    facts = {key: catalogue.describe(key.backbone).info for key in study.trained}
    undeclared = [key for key, info in facts.items() if "min_size" not in info]
    if not undeclared or find_spec("torch") is None:
        return
    tried, refused = set(), []
    for key in undeclared:
        run, info = study.trained[key], study.datasets.describe(key.dataset).info
        where = f"backbone '{key.backbone}' for data set '{key.dataset}'"
        shape = info.get("image_shape")
        size = cropped(shape and shape[1:], run.protocol, where)
        trial = key.backbone, info.get("n_classes") or EXAMPLE_CLASSES, size
        try:
            if size and trial not in tried:
                tried.add(trial)
                _try_network(*trial[:2], size)
        except CalgridError as error:
            refused.append(str(error))
            continue
        if run.protocol.weights == "published" and key.backbone.startswith("timm/"):
            from calgrid.backbones import timm  # noqa: PLC0415  (torch)

            normalised = run.protocol.test_normalisation.get(key.dataset, key.dataset)
            constants = study.datasets.describe(normalised).info
            timm.check_weights(
                key.backbone,
                info["n_classes"],
                tuple(info["image_shape"][1:]),
                (tuple(constants["mean"]), tuple(constants["std"])),
            )
    if refused:
        raise ConfigError("\n".join(refused))


def _try_network(backbone: str, classes: int, size: tuple[int, int]) -> None:
    """Try a network; a working one of timm is cached for the same releases and code."""
    kept = None
    if backbone.startswith("timm/") and find_spec("timm"):
        releases = [__version__, *map(metadata.version, ("timm", "torch"))]
        wrapper = registry.describe("backbone", backbone).module
        code = fingerprint.code_digest(("calgrid.backbones.trial", wrapper))
        kept = cache_file("networks", json.dumps([backbone, classes, size, releases, code]))
    if kept is not None and kept.is_file():
        return
    from calgrid.backbones.trial import check_images  # noqa: PLC0415  (torch)

    check_images(backbone, classes, size)
    if kept is not None:
        keep(kept, {"backbone": backbone})


# external logits
# --------------------------------------------------------------------------------------------------


@functools.cache
def rows_of_banks(study: Study) -> dict[tuple[object, ...], tuple[RunKey, str]]:
    """Read all files of banks; return the first run and the identity of its rows, by the key of
    runs that share rows (:func:`~calgrid.storage.records.sharing_rows`); test rows of trained runs
    are known before for the user's files alone.

    Refuses damaged files, too few rows, another number of rows than in trained runs, and compared
    runs, also of two banks, with other rows or another order of classes.
    """
    if not study.external:
        return {}
    import numpy as np  # noqa: PLC0415

    from calgrid.storage.logits import identity_of_rows  # noqa: PLC0415  (pyarrow)

    rows: dict[tuple[object, ...], tuple[RunKey, str]] = {}
    for key in study.trained:
        labels, place = study.datasets.test_labels(key.dataset), sharing_rows(key, "test")
        if labels is not None and place not in rows:
            rows[place] = key, identity_of_rows(np.arange(len(labels)), labels)
    for name, entry in study.config.external.items():
        where = f"external.{name}"
        for run, found in _read_bank(study, name, entry) if isinstance(entry, Bank) else ():
            key = run.key
            expected = _sizes(study).get(key[:3]) or {}
            _check_order(study, key, found["test"].classes, where)
            _widths(study)[key] = where, found["test"].n_classes
            for split, (count, _, identity, _) in found.items():
                first, known = rows.setdefault(sharing_rows(key, split), (key, identity))
                here = expected.get(split, count)
                refuse(
                    (
                        count != here,
                        f"{where}: {key.path} has {count:,} {split} rows, but the runs of this "
                        f"study have {here:,}; take a bank of the same split.",
                    ),
                    (
                        identity != known,
                        f"{where}: {key.path} and {first.path} have other {split} images, so they "
                        "cannot be compared image by image; take one of them.",
                    ),
                )
            if study.config.statistics.conformal is not None:
                check_conformal(found["val"].size, run.disjoint_validation, key.path)
    for key, made in study.ensembles.items():
        shared = {sharing_rows(member, "val") for member in made.members}
        identities = {rows[each][1] for each in shared & rows.keys()}
        if len(identities) > 1:
            raise ConfigError(
                f"ensembles: the members of {key.path} have other validation images, on which no "
                "common calibrator can be fitted; take other members."
            )
    return rows


@functools.cache
def _sizes(study: Study) -> dict[tuple[str, ...], Mapping[str, int] | None]:
    """Images of each split of the trained runs of a setting, if known."""
    return {key[:3]: study.datasets.sizes(key.dataset) for key in study.trained}


def _read_bank(
    study: Study, name: str, entry: Bank
) -> "Iterator[tuple[ExternalRun, dict[str, BankRows]]]":
    """Runs of a bank, each with its val and test rows."""
    from calgrid.logits.bank import BankRun, opened  # noqa: PLC0415  (NumPy and pyarrow)

    path = study.data_root / entry.file
    with located(f"external.{name}.file"):
        if entry.sha256 not in (None, sha256_of(path) if path.is_file() else None):
            raise DataError(f"'{path}' has not the SHA-256 {entry.sha256}; get it again.")
        with opened(path) as bank:
            for run in study.external.values():
                if run.external["name"] == name:
                    yield run, bank.identity(BankRun(run.key, **run.external["bank"]))


@functools.cache
def check_external(study: Study) -> dict[tuple[object, ...], tuple[RunKey, str]]:
    """Read all external logits; return :func:`rows_of_banks` with the test rows of the others.
    Refuses numbers of another kind than stated, too few rows, a run given as several seeds, and
    test rows, val rows of a bank, or number or order of classes other than in compared runs.
    """
    entries: dict[tuple[str, str | None], list[ExternalRun]] = {}
    for run in study.external.values():
        if "bank" not in run.external:
            entry = run.external["name"], run.external.get("group")
            entries.setdefault(entry, []).append(run)
    known = dict(rows_of_banks(study))
    places: dict[RunKey, str] = {}
    rows: dict[tuple[object, ...], dict[RunKey, str]] = defaultdict(dict)
    seeds: dict[tuple[object, ...], RunKey] = {}
    for (name, group), runs in entries.items():
        where = f"external.{name}" + (f", group {group}" if group else "")
        identities, n_classes, classes = _identities(study, runs, where)
        for run in runs:
            key, found = run.key, identities[run.key]
            places[key] = where
            _check_order(study, key, classes, where)
            _widths(study)[key] = where, n_classes
            rows[sharing_rows(key, "test")][key] = found["test"]
            for split, identity in found.items():
                first, expected = known.get(sharing_rows(key, split), (key, identity))
                if identity != expected:
                    raise ConfigError(
                        f"{where}: {key.path} and {first.path} have other {split} rows or labels, "
                        "so they cannot be compared image by image; give it the labels of "
                        f"{first.path} in the same order, or another 'dataset'."
                    )
            content = json.dumps({**run.external, "name": "", "seed": 0}, sort_keys=True)
            twin = seeds.setdefault((*key[:4], content), key)
            if twin.seed != key.seed:
                raise ConfigError(
                    f"{where}: {key.path} has the files of {twin.path}, so they are no different "
                    "seeds; give each run once."
                )
    _check_widths(study)
    for shared, compared in rows.items():
        known.setdefault(shared, next(iter(compared.items())))
        if (pair := _odd_one(compared)) is not None:
            odd, other = pair
            raise ConfigError(
                f"{places[odd]}: {odd.path} has other test rows or labels than {other.path}, so "
                "they cannot be compared image by image; give one of them another 'dataset', or, "
                "if only the order of their classes differs, name the order in 'classes' of both."
            )
    return known


def _odd_one(values: Mapping[RunKey, Hashable]) -> tuple[RunKey, RunKey] | None:
    """The first run with another value than most, and the first run with the usual one; None if all
    are equal.
    """
    ((usual, _),) = Counter(values.values()).most_common(1)
    odd = [key for key, value in values.items() if value != usual]
    return (odd[0], next(key for key in values if values[key] == usual)) if odd else None


@functools.cache
def _widths(study: Study) -> dict[RunKey, tuple[str, int]]:
    """Place and number of classes of each run with a known number; banks and external logits are
    added as they are read.
    """
    counts = {
        key: study.datasets.describe(key.dataset).info.get("n_classes") for key in study.trained
    }
    return {key: ("grids", count) for key, count in counts.items() if count is not None}


def _check_widths(study: Study) -> None:
    """Refuse a run whose number of classes differs from most runs it is compared with."""
    settings: dict[tuple[str, ...], dict[RunKey, int]] = defaultdict(dict)
    for key, (_, count) in _widths(study).items():
        settings[key[:3]][key] = count
    for counts in settings.values():
        if (found := _odd_one(counts)) is not None:
            odd, other = found
            raise ConfigError(
                f"{_widths(study)[odd][0]}: {odd.path} has {counts[odd]} classes, but {other.path} "
                f"has {counts[other]}, so they cannot be compared; give both the same classes, or "
                "one of them another 'dataset'."
            )


@functools.cache
def _orders(study: Study) -> dict[tuple[str, ...], tuple[RunKey, Sequence[str]]]:
    """The first run with class names in each group of compared runs, and its names; banks and
    external logits are added as they are read.
    """
    orders: dict[tuple[str, ...], tuple[RunKey, Sequence[str]]] = {}
    for key in study.trained:
        names = study.datasets.class_names(key.dataset)
        if names is not None:
            orders.setdefault(key[:3], (key, names))
    return orders


def _check_order(study: Study, key: RunKey, classes: Sequence[str] | None, where: str) -> None:
    """Refuse classes in another order than in the runs compared with this one."""
    if classes is None:
        return
    first, known = _orders(study).setdefault(key[:3], (key, classes))
    if is_other_order(classes, known):
        raise ConfigError(
            f"{where}: {key.path} has the classes of {first.path} in another order "
            f"({first_difference(classes, known)}), so they cannot be compared; write columns and "
            "labels of both in one order, or name it in 'classes' where columns have names."
        )


def _identities(
    study: Study, runs: Sequence[ExternalRun], where: str
) -> tuple[dict[RunKey, dict[str, str]], int, Sequence[str] | None]:
    """Read the files of runs that differ only in their subset of the validation rows; return the
    identities of their val and test rows, and the number and names of their classes, if known.
    """
    # NumPy, SciPy and pyarrow
    from calgrid.logits.entry import first_rows, read_external  # noqa: PLC0415
    from calgrid.logits.reading import predicted  # noqa: PLC0415
    from calgrid.logits.symptoms import symptoms  # noqa: PLC0415

    whole = dict(runs[0].external)
    whole.pop("val_rows", None)
    whole.pop("val_seed", None)
    roles = [role for role in EXTERNAL_FILES if role in whole]
    given = dict(zip(roles, study.external_files(runs[0].key), strict=True))
    identities = {}
    with located(where):
        val, test, classes = read_external(whole, given)
        for role, data in (("val", val), ("test", test)):
            for warning in symptoms(data, predicted(data), given.get(role, given["test"])):
                warn(f"{where}: {warning}")
        for calibrator in study.evaluations[runs[0].key].calibrators.values():
            if "features" in calibrator["needs"] and val.features is None:
                raise DataError(
                    f"'{calibrator['name']}' needs features, which {given['test']} does not "
                    "have; add them or remove it."
                )
        for run in runs:
            rows, subset = val, run.external
            if "val_rows" in subset:
                rows = first_rows(val, subset["val_rows"], subset["val_seed"])
            here = (_sizes(study).get(run.key[:3]) or {}).get("test", len(test))
            if len(test) != here:
                raise DataError(
                    f"{given['test']} has {len(test):,} test rows, but the runs of this study "
                    f"have {here:,}; give logits of the same images, or another 'dataset'."
                )
            if study.config.statistics.conformal is not None:
                check_conformal(len(rows), run.disjoint_validation, where)
            identities[run.key] = {"val": rows.identity(), "test": test.identity()}
    return identities, test.logits.shape[1], classes
