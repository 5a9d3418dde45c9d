"""Data sets of a configuration: registered ones, their variants, and the user's own files.

Gives the facts that are known before preparation, and the options that the prepared arrays depend
on.
"""

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

from calgrid.class_names import as_names
from calgrid.components import registry
from calgrid.components.options import Options
from calgrid.errors import ConfigError, located, refuse
from calgrid.storage.records import OOD_PREFIX, image_set_of
from calgrid.storage.sources import source_digest
from calgrid.study import model
from calgrid.study.yaml_files import is_path

if TYPE_CHECKING:
    from calgrid.datasets._image_files import Rows

#: options that name files or folders below data_root
SOURCES = ("train", "test", "val")
#: options used as facts of the data set; None: the preparation determines the value
FACTS = ("n_classes", "mean", "std", "duplicates", "keep_encoded")
#: facts in the specification of a configured data set: of all, of shift families, of variants
PLANNED_FACTS = (
    *("role", "image_shape", *FACTS),
    *("base", "shifts", "severities"),
    *("sizes", "repeats", "warning"),
)


class DatasetCatalog:
    """Data sets, shift families and out-of-distribution sets.

    Parameters
    ----------
    configured : name -> {"base": registered kind, "like": registered data set, "families": [...],
        option: value, ...}; ``base`` may be a registered data set, for a variant.
    data_root : folder of the user's files; the working directory if None.

    Attributes
    ----------
    options : all options of each configured data set.
    """

    def __init__(self, configured: Mapping[str, Options], data_root: str | None = None) -> None:
        self.configured, self.data_root = configured, data_root
        self.options: dict[str, Options] = {}
        self._descriptions: dict[str, registry.Description] = {}
        #: data sets of the user's files
        self._of_files: set[str] = set()
        shifts: list[str] = []
        for name, entry in configured.items():
            where = f"datasets.{name}"
            if name in registry.descriptions("dataset"):
                raise ConfigError(
                    f"{where}: '{name}' is a registered data set; choose another name."
                )
            base = registry.describe("dataset", entry["base"], f"{where}.base")
            if not _is_kind(base):
                self._add_variant(name, base, where)
            elif base.info["role"] == "shift":
                shifts.append(name)
            else:
                self._add_files(name, base, where)
        # shift families refer to data sets, and data sets to out-of-distribution sets
        for name in shifts:
            self._add_shift(name, f"datasets.{name}")
        for name in configured:
            if name not in shifts:
                self._check_families(name, f"datasets.{name}.families")

    def describe(self, name: str, where: str = "", role: str = "") -> registry.Description:
        """Return the facts of a data set; the id of a configured one is its name.

        ``role``: role of the names suggested in the error for an unknown one; '' suggests all. An
        unknown name, or a kind for the user's files instead of a data set, raises ConfigError.
        """
        if name in self._descriptions:
            return self._descriptions[name]
        known = registry.descriptions("dataset")
        if name not in known:
            names = []
            for id, component in {**known, **self._descriptions}.items():
                usable = id in self._descriptions or not _is_kind(component)
                if usable and role in ("", component.info["role"]):
                    names.append(id)
            raise registry.missing(["dataset"], "dataset", name, names, where)
        if _is_kind(known[name]):
            raise ConfigError(
                f"{where or name}: '{name}' is a kind of data set; define one under 'datasets', "
                f"with base: {name}."
            )
        return known[name]

    def families(self, name: str) -> tuple[str, ...]:
        """Shift families and out-of-distribution sets of a data set."""
        computed = [shift for shift, options in self.options.items() if options.get("of") == name]
        return (*self.describe(name).info.get("families", ()), *computed)

    def base(self, image_set: str) -> str | None:
        """Data set whose test images a shift family corrupts; None for data sets and OOD sets."""
        return self.describe(image_set).info.get("base")

    def defaults_of(self, name: str) -> str:
        """Registered data set whose default hyper-parameters apply: the one in ``like``, the base
        of a variant, or itself.
        """
        entry = self.configured.get(name, {})
        itself = name if name in self._of_files else entry.get("base", name)
        return str(entry.get("like", itself))

    def facts(self, name: str) -> Options:
        """Facts of a data set; empty for an unknown one, which may name predictions only."""
        known = name in self._descriptions or name in registry.descriptions("dataset")
        return self.describe(name).info if known else {}

    @functools.cache  # noqa: B019  (a catalog lives as long as its process)
    def definition(self, image_set: str) -> Options:
        """Return the inputs that determine the prepared arrays of a configured data set: ``kind``,
        ``options`` and ``sources``; empty for a registered one.

        A missing source raises ConfigError.
        """
        if image_set not in self.configured:
            return {}
        options, base = self.options[image_set], self.configured[image_set]["base"]
        sources = {}
        of_files = _is_kind(registry.describe("dataset", base))
        for role in SOURCES if of_files else ():
            for name in as_list(options.get(role)):
                try:
                    sources[name] = source_digest(self.data_root, name)
                except ConfigError as error:
                    mend = str(error)
                    if role == "test" and "test_size" in options:
                        mend = f"{mend.rstrip('.')}, or give test_size, a number of training rows."
                    raise ConfigError(f"datasets.{image_set}.{role}: {mend}") from None
        return {"kind": base, "options": options, "sources": sources}

    def draws_val(self, name: str) -> bool:
        """Whether a data set draws its validation images from its training images."""
        if name in self._of_files:
            return self.options[name]["val_size"] is not None
        info = self.describe(name).info
        return "drawn_val" in info and "val" not in info.get("repeats", {})

    def has_some_classes(self, family: str) -> bool:
        """Whether only the classes in a shift family count on it."""
        return bool(self.describe(image_set_of(family)).info.get("some_classes", False))

    def sizes(self, image_set: str) -> Mapping[str, int] | None:
        """Images of each split: as registered, or counted in the user's files; None if they are
        unknown before the preparation.

        Labels that do not fit the options raise ConfigError.
        """
        counts = self.class_counts(image_set)
        if counts is None:
            return self.describe(image_set).info.get("sizes")
        return {role: sum(of_split.values()) for role, of_split in counts.items()}

    def class_counts(self, image_set: str) -> Mapping[str, Mapping[str, int]] | None:
        """Count the images of each class, by its name or number, in each split of the user's files;
        None for registered data sets, variants and shifts; errors as in :meth:`sizes`.
        """
        return self._counted(image_set)[0] if image_set in self._of_files else None

    def class_names(self, image_set: str) -> tuple[str, ...] | None:
        """Names of the classes of the user's files in their order; None without names; errors as in
        :meth:`sizes`.
        """
        return self._counted(image_set)[1] if image_set in self._of_files else None

    def test_labels(self, image_set: str) -> "Rows | None":
        """Labels of the test images of the user's files, int64 ``(N,)``; otherwise as
        :meth:`class_counts`.
        """
        return self._counted(image_set)[2] if image_set in self._of_files else None

    @functools.cache  # noqa: B019
    def _counted(
        self, image_set: str
    ) -> "tuple[Mapping[str, Mapping[str, int]], tuple[str, ...] | None, Rows]":
        """Images of each class in each split of the user's files, the names of the classes, and
        the labels of test.
        """
        kind = registry.load("dataset", self.configured[image_set]["base"])(
            **self.options[image_set]
        )
        with located(f"datasets.{image_set}"):
            sources, rows = kind.plan(None if self.data_root is None else Path(self.data_root))
        classes = sources["train"].classes
        names = classes or tuple(map(str, range(kind.n_classes)))
        counts = {}
        for role in ("train", "val", "test"):
            labels = sources["train"].labels[rows[role]] if role in rows else sources[role].labels
            of_split = collections.Counter(labels.tolist())
            counts[role] = {name: of_split[number] for number, name in enumerate(names)}
        return counts, classes, labels

    def _add_files(self, name: str, base: registry.Description, where: str) -> None:
        """Add a data set of the user's files."""
        entry = self.configured[name]
        like: Options = {}
        if "like" in entry:
            found = registry.describe("dataset", entry["like"], f"{where}.like")
            if found.info.get("role") != "dataset" or _is_kind(found):
                raise ConfigError(
                    f"{where}.like: '{found.id}' is not a data set with training images; name one."
                )
            like = found.info
        given = {fact: like[fact] for fact in FACTS if fact in like}
        if "image_shape" in like:
            given["image_size"] = like["image_shape"][1]
        if "val" not in entry:
            given.update(like.get("drawn_val", {}))
        options = dict(base.resolve({**given, **_options(entry)}, where=where))
        if "test" in entry and "test_size" in entry:
            raise ConfigError(
                f"{where}: give either 'test' or 'test_size', the number of training rows to draw "
                "as test."
            )
        if options["test_size"] is not None:
            options["test"] = []
        for role in SOURCES:
            _check_below(options[role], f"{where}.{role}")
            options[role] = _normalised(options[role])
        _check_files(options, where)
        for name_of_fact in ("mean", "std"):
            if options[name_of_fact] is not None:
                options[name_of_fact] = list(map(float, options[name_of_fact]))
        if options["classes"] is not None:
            options["classes"] = names = as_names(options["classes"])
            if names is None:
                raise ConfigError(
                    f"{where}.classes must be two or more different names, in quotes where YAML "
                    "reads something else ('yes', '01')."
                )
            options["n_classes"] = options["n_classes"] or len(names)
        size = options["image_size"]
        info = {
            "role": "dataset",
            **{fact: options[fact] for fact in FACTS},
            "image_shape": None if size is None else (3, size, size),
            "families": _joined(like.get("families", ()), entry.get("families", ())),
            "near": like.get("near", ()),
            "far": like.get("far", ()),
            "download": False,
        }
        if "encoded" in base.info:
            info["encoded"] = base.info["encoded"]
        self._of_files.add(name)
        self._store(name, base, options, info)

    def _add_shift(self, name: str, where: str) -> None:
        """Add a shift family, computed from test images of a data set, or of the user's files."""
        entry = self.configured[name]
        kind = registry.describe("dataset", entry["base"])
        for key in ("families", "like"):
            if key in entry:
                raise ConfigError(f"{where}.{key} does not apply to a shift family; remove it.")
        options = kind.resolve(_options(entry), where=where)
        base = self.describe(options["of"], f"{where}.of", "dataset")
        if base.info["role"] != "dataset":
            raise ConfigError(
                f"{where}.of: '{base.id}' is not a data set with a test split; name one."
            )
        info = {
            **kind.info,
            "base": base.id,
            "n_classes": base.info.get("n_classes"),
            "image_shape": base.info.get("image_shape"),
            "configurable": False,
        }
        if "test" in options:
            _check_below(options["test"], f"{where}.test")
            info["shifts"] = (options["shift"],)
        self._store(name, kind, options, info)

    def _add_variant(self, name: str, base: registry.Description, where: str) -> None:
        """Add a registered data set with changed options, or with further families alone."""
        entry = self.configured[name]
        extends, known = set(entry) == {"base", "families"}, registry.descriptions("dataset")
        kinds = [id for id, component in known.items() if _is_kind(component)]
        refuse(
            (
                not (base.options or extends) or base.info["role"] != "dataset",
                f"{where}.base: '{base.id}' has fixed files and no options, only 'families' can be "
                f"added to it; for your own files use one of: {', '.join(kinds)}.",
            ),
            (
                "like" in entry,
                f"{where}.like: remove it; a variant of '{base.id}' takes its facts from "
                f"'{base.id}'.",
            ),
        )
        options = base.resolve(_options(entry), where=where)
        info = dict(base.info)
        if "size" in options:
            info["image_shape"] = (3, options["size"], options["size"])
        side = info["image_shape"][1]
        if options.get("resize", side) < side:
            raise ConfigError(
                f"{where}.resize must be at least {side}, the size of the crop in pixels, got "
                f"{options['resize']}."
            )
        if "imbalance" in options:
            info["sizes"] = registry.load("dataset", base.id)(**options).sizes
        for option, value in options.items():
            info.update(base.info.get("variants", {}).get(f"{option}={value}", {}))
        # shift families of the base may corrupt other test images than those of the variant
        ood = [name for name in base.info.get("families", ()) if name.startswith(OOD_PREFIX)]
        info["families"] = _joined(ood, entry.get("families", ()))
        self._store(name, base, options, info)

    def _store(
        self,
        name: str,
        base: registry.Description,
        options: Options,
        info: Options,
    ) -> None:
        self.options[name] = options
        self._descriptions[name] = dataclasses.replace(
            base, id=name, info=MappingProxyType({**info, "label": name})
        )

    def _check_families(self, name: str, where: str) -> None:
        for family in self.configured[name].get("families", ()):
            role = self.describe(family.removeprefix(OOD_PREFIX), where).info["role"]
            refuse(
                (
                    (role == "shift") == family.startswith(OOD_PREFIX),
                    f"{where}: '{family}' is wrong; data sets need the prefix '{OOD_PREFIX}', "
                    "shift families have none.",
                ),
                (
                    family == f"{OOD_PREFIX}{name}",
                    f"{where}: '{name}' cannot be its own out-of-distribution set; name another "
                    "one.",
                ),
            )


def as_list(value: str | Iterable[str] | None) -> list[str]:
    """Convert a string, several strings or None to a list."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def _is_kind(component: registry.Description) -> bool:
    return bool(component.info.get("configurable", False))


def _options(entry: Options) -> Options:
    """Options of the kind in an entry of the configuration."""
    return {
        key: value
        for key, value in entry.items()
        if key not in model.ConfiguredDataset.__annotations__
    }


def _joined(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*first, *second]))


def _check_below(paths: str | Iterable[str] | None, where: str) -> None:
    """Raise ConfigError unless all paths are below data_root."""
    for path in as_list(paths):
        written = isinstance(path, str) and path and is_path(path)
        if not written or PurePosixPath(path).is_absolute() or ".." in Path(path).parts:
            raise ConfigError(f"{where} must be a path below data_root, got {path!r}.")


def _normalised(paths: str | list[str] | None) -> str | list[str] | None:
    """Paths written in one way, because they are part of fingerprints."""
    if isinstance(paths, list):
        return [PurePosixPath(path).as_posix() for path in paths]
    return paths and PurePosixPath(paths).as_posix()


def _check_files(options: Options, where: str) -> None:
    """Check options of all kinds of files, whose paths are normalised."""
    files = {role: as_list(options[role]) for role in SOURCES}
    mistakes: list[tuple[object, str]] = [
        (not files["train"], f"{where}.train must not be empty."),
        (not files["test"] and options["test_size"] is None, f"{where}.test must not be empty."),
    ]
    for one, other in itertools.combinations(SOURCES, 2):
        for path in files[one]:
            said = f"{where}: '{path}' is in {one} and in {other}, which must have different"
            mend = f"{other}_size draws images from the training files."
            mistakes.append((path in files[other], f"{said} images; {mend}"))
    refuse(
        *mistakes,
        (
            bool(files["val"]) == (options["val_size"] is not None),
            f"{where}: give either 'val' or 'val_size', the number of training rows to draw as "
            "val.",
        ),
        (
            options["resize"] is not None
            and options["resize"] < (options["image_size"] or math.inf),
            f"{where}.resize must be at least image_size, the size of the crop.",
        ),
        (
            (options["mean"] is None) != (options["std"] is None),
            f"{where}: give both 'mean' and 'std', or neither to compute them from the training "
            "images.",
        ),
    )
    for name in ("mean", "std"):
        if (values := options[name]) is not None and len(values) != 3:
            raise ConfigError(
                f"{where}.{name} must be three numbers, one per channel, got {values!r}."
            )
