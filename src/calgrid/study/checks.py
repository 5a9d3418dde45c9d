"""Checks of files, grids and comparisons before any job starts.

Unknown names and hyper-parameters are reported by the catalogs. All functions raise ConfigError.
"""

import csv
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from calgrid.backbones.catalogue import check_image_size, describe
from calgrid.components import registry
from calgrid.components.options import Options
from calgrid.errors import ConfigError, check_ids, located, refuse
from calgrid.storage.records import OOD_PREFIX, TRAIN_SPLIT, RunKey, image_set_of
from calgrid.storage.schema import PUBLISHED_COLUMNS, PUBLISHED_UNITS, REDRAWN, SAME_SHIFT
from calgrid.storage.sources import name_data_root
from calgrid.storage.specs import Calibrator, NamedComponent
from calgrid.study.datasets import DatasetCatalog
from calgrid.study.model import Candidate, Comparison, Config, Grid, Tuning
from calgrid.study.protocols import FOCAL_CALIBRATION, RUN_PARTS, cropped, parts_of
from calgrid.study.runs import PLAIN, Method
from calgrid.study.yaml_files import is_path
from calgrid.training.protocol import AVERAGES, Protocol, TrainingProtocol

#: numeric columns of published numbers -> whether a value is required
NUMBERS = {"value": True, "severity": False, "std": False}


# files and folders
# ------------------------------------------------------------------------------------------------


#: characters of the path of the results, and of one name in it
LONGEST_PATH, LONGEST_NAME = 1000, 200


def check_folders(config: Config) -> None:
    """Check the paths of the results and of the data."""
    for key, path in {"results": config.results, "data_root": config.data_root or ""}.items():
        refuse(
            (
                path.startswith("~"),
                f"{key}: '~' is not expanded to your home folder; write the full path.",
            ),
            (
                not is_path(path),
                f"{key}: {path!r} contains a character that is invalid in paths; remove it.",
            ),
        )
    folder = PurePosixPath(config.results)
    special = min(set("{}<>\n") & set(config.results), default="")
    refuse(
        (
            special,
            f"results: the path must not contain {special!r}, a special character of Snakemake.",
        ),
        (
            str(folder) == "." or config.results.startswith("-"),
            f"results: '{config.results}' must be a folder of its own whose name does not start "
            "with '-'; write results: results.",
        ),
        (
            len(config.results) > LONGEST_PATH
            or any(len(part) > LONGEST_NAME for part in folder.parts),
            f"results: the path has {len(config.results):,} characters, too many for a file system "
            f"(at most {LONGEST_PATH:,}, and {LONGEST_NAME} in one name); write a shorter one.",
        ),
    )
    study = Path(config.results, config.study)
    for key, place in {"results": study, "data_root": Path(config.data_root or "")}.items():
        existing = next(filter(Path.exists, (place, *place.parents)), place)
        if existing.exists() and not existing.is_dir():
            raise ConfigError(f"{key}: '{existing}' is a file; give a folder.")


def check_data_root(data_root: str | None, downloads: Sequence[str]) -> None:
    """Check the data folder of a study; data sets ``downloads`` are downloaded to it."""
    folder, first = Path(data_root or ""), next(iter(downloads), "")
    refuse(
        (
            first and data_root is None,
            f"data_root: '{first}' is downloaded; set a folder for its files: data_root: data",
        ),
        # the first download creates the folder; without one a missing folder is probably misspelt
        (
            not first and not folder.is_dir() and len(folder.parts) > 1,
            f"data_root: the folder '{folder}' does not exist; create it or correct the path.",
        ),
    )


def check_published(path: Path, where: str) -> None:
    """Check a CSV file of published numbers (``config/papers/README.md``)."""
    if not path.is_file():
        raise ConfigError(f"{where}: the file '{path}' does not exist; correct the path.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            columns = next(rows, [])
            missing = [name for name in PUBLISHED_COLUMNS if name not in columns]
            double = next((name for name in columns if columns.count(name) > 1), None)
            refuse(
                (
                    missing,
                    f"{where}: '{path}' lacks the column{'s' if missing[1:] else ''} "
                    f"{', '.join(missing)} of published numbers; add them "
                    "(config/papers/README.md).",
                ),
                (
                    double is not None,
                    f"{where}: '{path}' has the column {double} twice; remove one.",
                ),
            )
            for row in filter(None, rows):
                _check_row(columns, row, f"{where}: '{path}', line {rows.line_num}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(
            f"{where}: '{path}' is not a CSV file in UTF-8 ({error}); correct or remove it."
        ) from None


def _check_row(columns: Sequence[str], row: Sequence[str], where: str) -> None:
    cells = dict(zip(columns, row, strict=False))
    unit = cells.get("unit", "")
    refuse(
        (
            len(row) != len(columns),
            f"{where}, has {len(row)} cells instead of {len(columns)}; quote cells that contain "
            "commas.",
        ),
        (
            unit not in PUBLISHED_UNITS,
            f"{where}: unit must be one of {', '.join(PUBLISHED_UNITS)}, got {unit!r}.",
        ),
    )
    for name, required in NUMBERS.items():
        text = cells.get(name, "")
        try:
            float(text or ("" if required else "0"))
        except ValueError:
            raise ConfigError(f"{where}: {name} must be a number, got {text!r}.") from None


def check_conformal(n_val: int, disjoint: bool, where: str) -> None:
    """Check that a half of the validation rows for calibrators, of ``disjoint`` validation of a
    third, is enough for conformal sets.
    """
    from calgrid.metrics.conformal import check_rows_of_sets  # noqa: PLC0415  (NumPy)

    with located(f"statistics.conformal: {where}"):
        check_rows_of_sets(n_val // (3 if disjoint else 1) // 2)


def check_file(root: Path, name: str, where: str) -> None:
    """Check that a file below ``root``, the ``data_root``, exists."""
    path = root / name
    if not path.is_file():
        raise ConfigError(f"{where}: the file '{path}' does not exist; {name_data_root(name)}.")


# grids
# ------------------------------------------------------------------------------------------------


def check_grid(grid: Grid, protocol: Protocol, datasets: DatasetCatalog, where: str) -> None:
    """Check data sets, backbones, shifts and seeds of a grid against its protocol."""
    for dataset in grid.datasets:
        role = datasets.describe(dataset, f"{where}.datasets", "dataset").info["role"]
        refuse(
            (
                role != "dataset",
                f"{where}.datasets: '{dataset}' is for testing only; move it to 'shifts'.",
            ),
            (
                protocol.val_draw == "seed" and not datasets.draws_val(dataset),
                f"{where}.datasets: protocol '{grid.protocol}' draws validation images by the seed "
                f"of the run, but '{dataset}' does not draw them from its training images; use a "
                "protocol with val_draw: fixed.",
            ),
        )
    for backbone in grid.backbones:
        found = describe(backbone, f"{where}.backbones")
        if protocol.pretrained and not found.info["pretrained"]:
            raise ConfigError(
                f"{where}.backbones: protocol '{grid.protocol}' starts from published weights, and "
                f"'{backbone}' has none; use another backbone or pretrained: false."
            )
        for dataset in grid.datasets:
            shape = datasets.describe(dataset).info.get("image_shape")
            at = f"{where}.backbones for data set '{dataset}'"
            if size := cropped(shape and shape[1:], protocol, at):
                height, width = size
                check_image_size(found.id, found.info, height, width, at)
    if not isinstance(protocol, TrainingProtocol):
        _check_ready_weights(grid, protocol, datasets, where)
    known = set().union(*map(datasets.families, grid.datasets))
    for shift in grid.shifts:
        if shift in known:
            continue
        if reason := registry.why_broken("dataset", shift):
            raise ConfigError(reason)
        role = datasets.facts(image_set_of(shift)).get("role")
        if role == ("dataset" if shift.startswith(OOD_PREFIX) else "shift"):
            raise ConfigError(
                f"{where}.shifts: '{shift}' is not among the shifts of {', '.join(grid.datasets)}; "
                "add it under 'datasets' to the families of your data set, or of a variant of a "
                f"registered one (mine: {{base: digits, families: [{shift}]}})."
            )
    check_ids("shift", grid.shifts, known, f"{where}.shifts")


def _check_ready_weights(
    grid: Grid, protocol: Protocol, datasets: DatasetCatalog, where: str
) -> None:
    """Check that published weights exist for methods, seeds, backbones and data sets of a grid."""
    named = f"protocol '{grid.protocol}'"
    if (pattern := protocol.weights_file) is not None:
        for part in RUN_PARTS:
            values = getattr(grid, f"{part}s")
            if len(values) > 1 and part not in parts_of(pattern):
                raise ConfigError(
                    f"{where}.{part}s: weights_file '{pattern}' of protocol '{grid.protocol}' is "
                    f"one file for all of them; write {{{part}}} into its name, or give one {part}."
                )
        return
    if len(grid.seeds) > 1:
        raise ConfigError(
            f"{where}.seeds: {named} uses published weights, the same network for all seeds; give "
            "one seed, and several calibrator_seeds."
        )
    if protocol.weights == FOCAL_CALIBRATION:  # `checkpoint_file` checks each run
        return
    for method in grid.methods:
        if method != PLAIN:
            raise ConfigError(
                f"{where}.methods: {named} uses published weights, which belong to the method "
                f"'{PLAIN}'; remove '{method}'."
            )
    for backbone in grid.backbones:
        info = describe(backbone, f"{where}.backbones").info
        if not info["pretrained"]:
            raise ConfigError(
                f"{where}.backbones: {named} uses published weights, and '{backbone}' has none; "
                "use another backbone (calgrid list backbones)."
            )
        for dataset in grid.datasets:
            classes = datasets.describe(dataset).info.get("n_classes")
            if not info["library"] and classes not in (None, *info["parameters"]):
                raise ConfigError(
                    f"{where}.datasets: '{dataset}' has {classes} classes, but the published "
                    f"weights of '{backbone}' have {', '.join(map(str, info['parameters']))}; "
                    "fine-tune them (pretrained: true)."
                )


def check_features(
    calibrators: Iterable[Calibrator], protocol: Protocol, fit_on: Sequence[str], where: str
) -> None:
    """Check that the protocol exports the features that calibrators need: on shifts, too, for a fit
    on shifts.
    """
    wanted, value = {True, "all", "train"}, "true"
    if SAME_SHIFT in fit_on:
        wanted, value = wanted - {True}, "all"
    for each in calibrators:
        told = f"{where}.calibrators: '{each['name']}' needs features"
        refuse(
            (
                "training features" in each["needs"] and protocol.export_features != "train",
                f"{told} of training images; set export_features: train in the protocol.",
            ),
            (
                "features" in each["needs"] and protocol.export_features not in wanted,
                f"{told}; set export_features: {value} in the protocol.",
            ),
        )


def check_procedure(procedure: str, protocol: TrainingProtocol, where: str) -> None:
    """Check that a procedure supports several GPUs, CUDA graphs, compilation or averaged weights as
    the protocol asks.
    """
    refuse(
        (
            protocol.gpus > 1 and protocol.cuda_graph is True,
            f"{where} has gpus and cuda_graph; leave one of them out.",
        ),
        (
            protocol.compile and protocol.gpus > 1,
            f"{where} has gpus and compile; leave one of them out.",
        ),
        (
            protocol.compile and protocol.deterministic,
            f"{where} has deterministic and compile; leave one of them out.",
        ),
    )
    averages = [name for name in protocol.checkpoints if name in AVERAGES]
    of_averages = f"{', '.join(averages)} of the checkpoints"
    wanted = [
        (protocol.gpus > 1, "several_gpus", "gpus", "trains on several GPUs"),
        (protocol.cuda_graph is True, "cuda_graph", "cuda_graph", "uses a CUDA graph"),
        (protocol.compile, "several_gpus", "compile", "compiles its network"),
        (averages, "averaged_weights", of_averages, "tests averaged weights"),
    ]
    found = registry.descriptions("procedure")
    for is_wanted, fact, key, does in wanted:
        if is_wanted and not found[procedure].info[fact]:
            able = [id for id, component in found.items() if component.info[fact]]
            raise ConfigError(
                f"{where} {does}, which procedure '{procedure}' cannot; leave out {key} for it, or "
                f"use one of {', '.join(able)}."
            )


def check_linear_head(
    method: Method, calibrators: Iterable[Calibrator], probes: Iterable[NamedComponent], where: str
) -> None:
    """Refuse calibrators and probes of a linear last layer for a method without one."""
    if registry.describe("procedure", method.procedure).info.get("linear_head", True):
        return
    readers = {each["name"]: "calibrator" for each in calibrators if "head" in each["needs"]}
    for probe in probes:
        if registry.describe("probe", probe["id"]).info["needs_linear_head"]:
            readers[probe["name"]] = "probe"
    for name, kind in readers.items():
        raise ConfigError(
            f"{where}.{kind}s: '{name}' needs a linear last layer, which '{method.id}' does not "
            f"have; move the method to a grid without this {kind}."
        )


def check_fit_on(grid: Grid, families: Iterable[str], datasets: DatasetCatalog, where: str) -> None:
    """Check that ``fit_on: same_shift`` has a shift family, from this grid or another with the same
    runs, and ``redrawn`` data sets without training images.
    """
    fit_on = grid.fit_on
    if SAME_SHIFT in fit_on and all(family.startswith(OOD_PREFIX) for family in families):
        raise ConfigError(
            f"{where}.fit_on: 'same_shift' needs a shift family in 'shifts'; add one or remove it."
        )
    for name in grid.datasets if REDRAWN in fit_on else ():
        if not datasets.describe(name).info.get("evaluation_only", False):
            raise ConfigError(
                f"{where}.fit_on: 'redrawn' mixes val and test, and the val images of '{name}' are "
                "drawn from training images; use val, or a data set without training images."
            )


def check_training_images(key: RunKey, protocol: Protocol, info: Options, where: str) -> None:
    """Check that a data set has training images for a protocol that trains or exports their
    features, and keeps them encoded for ``resized_crop``.
    """
    absent = info.get("evaluation_only", False)
    encoded = isinstance(protocol, TrainingProtocol) and protocol.augmentation.resized_crop
    refuse(
        (
            isinstance(protocol, TrainingProtocol) and absent,
            f"{where}.datasets: '{key.dataset}' has no training images, and protocol "
            f"'{key.protocol}' trains; use a protocol with weights: published, or logits of "
            "another network under 'external'.",
        ),
        (
            encoded and not info.get("keep_encoded", False),
            f"{where}.datasets: protocol '{key.protocol}' has augmentation.resized_crop, which "
            f"reads image files, and '{key.dataset}' is stored as arrays; give keep_encoded: true "
            "to a data set of your own images, or use another protocol.",
        ),
        (
            protocol.export_features == TRAIN_SPLIT and absent,
            f"{where}.datasets: '{key.dataset}' has no training images, and protocol "
            f"'{key.protocol}' exports their features; set export_features: all.",
        ),
    )


# the whole study
# ------------------------------------------------------------------------------------------------


def check_names(names: Mapping[str, str], known: Collection[str]) -> None:
    """Check that names are distinct and belong to methods or calibrators of the study."""
    owners = {name: name for name in known if name not in names}
    check_ids("method or calibrator", names, known, "names")
    for id, name in names.items():
        if name in owners:
            raise ConfigError(
                f"names.{id}: '{name}' is the name of '{owners[name]}'; give another one."
            )
        owners[name] = id


def check_lines(lines: Mapping[str, Sequence[str]], evaluated: Collection[RunKey]) -> None:
    """Check that no two protocols contribute to the same cell of a table."""
    line_of: dict[str, str] = {}
    known = {key.protocol for key in evaluated}
    for name, protocols in lines.items():
        check_ids("protocol", protocols, known, f"lines.{name}")
        for protocol in protocols:
            if protocol in line_of:
                raise ConfigError(
                    f"lines.{name}: '{protocol}' is already in '{line_of[protocol]}'; remove one."
                )
            line_of[protocol] = name
    cells: dict[RunKey, str] = {}
    for key in evaluated:
        line = line_of.get(key.protocol, key.protocol)
        other = cells.setdefault(key._replace(protocol=line), key.protocol)
        if other != key.protocol:
            raise ConfigError(
                f"lines.{line}: '{other}' and '{key.protocol}' both train {key.method} on "
                f"{key.dataset} with {key.backbone}; give them different lines."
            )


def check_comparison(
    comparison: Comparison, evaluated: Mapping[RunKey, Collection[str]], where: str
) -> None:
    """Check that the study evaluates both methods or calibrators, with at least one run or seed in
    common; ``evaluated`` has the calibrators of each run.
    """
    method, calibrator, against = comparison.method, comparison.calibrator, comparison.against
    methods, calibrators = {key.method for key in evaluated}, set().union(*evaluated.values())
    kind = "method" if calibrator is None else "calibrator"
    if method is not None:
        check_ids("method", [method], methods, f"{where}.method")
    if calibrator is not None:
        check_ids("calibrator", [calibrator], calibrators, f"{where}.calibrator")
    compared = methods if calibrator is None else calibrators
    check_ids(kind, [against], compared, f"{where}.against")
    runs = [key for key in evaluated if method in (None, key.method)]
    with_other = any(key._replace(method=against) in evaluated for key in runs)
    with_both = any({calibrator, against} <= {*evaluated[key]} for key in runs)
    of_method = "" if method is None else f" of '{method}'"
    refuse(
        (
            against == (calibrator or method),
            f"{where}: '{against}' is compared with itself; give another {kind} in 'against'.",
        ),
        (
            calibrator is None and not with_other,
            f"{where}: '{method}' and '{against}' have no protocol, data set, backbone and seed in "
            "common; put both into one grid.",
        ),
        (
            calibrator is not None and not with_both,
            f"{where}: no run{of_method} has both calibrators '{calibrator}' and '{against}'; put "
            "both into one grid.",
        ),
    )


def check_tuning(tuning: Tuning, evaluated: Collection[RunKey]) -> None:
    """Check that all tuned methods have equally many candidates, with the same data sets, backbones
    and seeds.
    """
    runs: dict[Candidate, set[tuple[str, str, int]]] = defaultdict(set)
    for key in evaluated:
        candidate = Candidate(protocol=key.protocol, method=key.method)
        runs[candidate].add((key.dataset, key.backbone, key.seed))
    candidates = itertools.chain(*tuning.methods.values())
    everywhere = set[tuple[str, str, int]]().union(*(runs[each] for each in candidates))
    first = next(iter(tuning.methods))
    budget = len(tuning.methods[first])
    for name, listed in tuning.methods.items():
        where = f"tuning.methods.{name}"
        refuse(
            (
                len(listed) != budget,
                f"{where}: {len(listed)} candidates, but '{first}' has {budget}; give all methods "
                "the same number.",
            ),
            (
                len(set(listed)) < budget,
                f"{where}: a candidate is listed twice; replace one by another.",
            ),
        )
        for candidate in listed:
            named = f"'{candidate.method}' with protocol '{candidate.protocol}'"
            absent = min(everywhere - runs[candidate], default=None)
            dataset, backbone, seed = absent or ("", "", 0)
            refuse(
                (not runs[candidate], f"{where}: no grid runs {named}; add it to one."),
                (
                    absent,
                    f"{where}: {named} is not run on {dataset} with {backbone} and seed {seed}, "
                    "but other candidates are; put all candidates into grids with the same seeds.",
                ),
            )
