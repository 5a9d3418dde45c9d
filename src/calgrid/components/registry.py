"""Registry of methods: one file = one identifier, read without importing it.

A component (loss, procedure, calibrator, dataset, shift, backbone, probe) is a class with
``@register(...)`` in ``calgrid/<package>/<id>.py`` or ``<plugin>/<package>/<id>.py``
(:mod:`calgrid.components.plugins`); the file name is the identifier. A plugin metric is a function; calgrid's
own metrics are rows of ``metrics/table.py``. Backbones and data sets that differ only in numbers
may share a file with ``@register(id=...)`` for each class. Files that begin with ``_``,
``base.py``, and files of calgrid without ``@register`` have no components. An invalid file causes
an error only when its component is requested.

Planning a grid must not import torch (seconds) in each Snakemake process, so :func:`specs` reads
the files with :mod:`ast`; :func:`load` imports only the requested file.
"""

import ast
import contextlib
import dataclasses
import importlib
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from calgrid.components import plugins
from calgrid.components.component_files import KINDS, METHODS, ComponentSpec, read_file
from calgrid.components.declarations import read_module, undefined
from calgrid.errors import ConfigError, unknown_id
from calgrid.optional import say_extra

__all__ = [
    "KINDS",
    "ComponentSpec",
    "broken",
    "load",
    "missing",
    "register",
    "said_of",
    "spec",
    "specs",
    "taken",
]

Component = TypeVar("Component", bound=Callable[..., Any])
#: module with the table of calgrid's metrics
METRIC_TABLE = "calgrid.metrics.table"


def register(
    *,
    source: str,
    id: str | None = None,
    dataset_defaults: Mapping[str, Mapping[str, Any]] | None = None,
    **info: Any,
) -> Callable[[Component], Component]:
    """Register a class, or the function of a metric, as a component.

    All arguments must be literals, or constants of modules of this package or of a plugin, because
    they are also read without importing the file.

    Parameters
    ----------
    source : the paper (authors, venue, year, equation) or origin. id : identifier, if the file has
        several components.
    dataset_defaults : dataset id -> hyper-parameters that override the defaults.
    info : further facts of the kind, for example ``needs=("features",)`` or ``keeps_argmax=True``;
        ``limits`` maps each numeric hyper-parameter to the range of its value, or of each member of
        a list: ``"[0, 1)"``, ``"(0, inf)"``, ``"[1, other]"`` (up to another hyper-parameter),
        ``"(-inf, inf)"``.
    """

    def mark(cls: Component) -> Component:
        registered = MappingProxyType(
            {"source": source, "dataset_defaults": dict(dataset_defaults or {}), **info}
        )
        cls.registered = registered  # type: ignore[attr-defined]  # each kind's base declares it
        return cls

    return mark


@dataclass(frozen=True)
class _Read:
    """Components of a kind by identifier, messages about invalid ones, and descriptions of used
    names.
    """

    specs: dict[str, ComponentSpec] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)


@plugins.cached
def _read(kind: str) -> _Read:
    """Read the files of a kind, those of calgrid first, without importing them."""
    read = _Read(taken=_metrics_of_the_table() if kind == "metric" else {})
    all_found: dict[str, ComponentSpec] = {}
    files = [
        (each, *file) for each in (METHODS if kind in METHODS else (kind,)) for file in _files(each)
    ]
    for each, name, path in sorted(
        files, key=lambda file: not file[1].startswith(f"{plugins.PACKAGE}.")
    ):
        try:
            found = read_file(each, path, name)
        except Exception as error:  # a plugin's file may cause any error
            what = f"{plugins.shown(name)} cannot be read ({type(error).__name__}: {error}): correct it."
            said = str(error) if isinstance(error, ConfigError) else what
            if each == kind:  # whichever of its identifiers is asked for
                text = path.read_bytes().decode("utf-8", errors="replace")
                ids = [path.stem, *re.findall(r"""\bid=["'](\w+)["']""", text)]
                read.broken.update(dict.fromkeys(ids, said))
            continue
        for entry in found:
            if entry.id in read.taken:  # ambiguous
                said = f"'{entry.id}' is the {read.taken[entry.id]} already; choose another name."
                read.broken[entry.id] = f"{plugins.shown(entry.module)}: {said}"
            all_found.setdefault(entry.id, entry)
            read.taken.setdefault(entry.id, f"{entry.kind} of {plugins.shown(entry.module)}")
    own = sorted(
        id for id, entry in all_found.items() if entry.kind == kind and id not in read.broken
    )
    read.specs.update({id: all_found[id] for id in own})
    return read


def _metrics_of_the_table() -> dict[str, str]:
    """Identifiers of calgrid's metrics -> their location, read without importing SciPy."""
    rows = ast.walk(read_module(METRIC_TABLE).constants["_ENTRIES"])
    first = [row.args[0] for row in rows if isinstance(row, ast.Call) and row.args]
    ids = [str(each.value) for each in first if isinstance(each, ast.Constant)]
    return dict.fromkeys(ids, f"metric of {plugins.shown(METRIC_TABLE)}")


def _files(kind: str) -> Iterator[tuple[str, Path]]:
    for package, folder in plugins.folders(KINDS[kind]):
        if METRIC_TABLE.startswith(f"{package}."):
            continue
        paths = sorted(
            path
            for path in folder.glob("*.py")
            if path.name != "base.py" and path.name[0] not in "_."
        )
        yield from ((f"{package}.{path.stem}", path) for path in paths)


def specs(kind: str) -> Mapping[str, ComponentSpec]:
    """All valid components of a kind by identifier, in alphabetical order, without importing them."""
    return MappingProxyType(_read(kind).specs)


def taken(kind: str, name: str) -> str:
    """Describe the component with this name, ``loss of calgrid/losses/ce.py``, or ''. Methods share
    their names.
    """
    return _read(kind).taken.get(name, "")


def broken(kind: str) -> list[str]:
    """Messages about invalid files of a kind."""
    return list(dict.fromkeys(_read(kind).broken.values()))


def missing(
    kinds: Iterable[str], what: str, name: str, known: Iterable[str], where: str = ""
) -> ConfigError:
    """Return the error for an identifier that is unknown or whose file is broken."""
    for kind in kinds:
        if name in (found := _read(kind).broken):
            return ConfigError(found[name])
    return unknown_id(what, name, known, where)


def spec(kind: str, name: str, where: str = "") -> ComponentSpec:
    """Return one component's ComponentSpec; an unknown ``name`` raises ConfigError with the closest
    valid one.

    ``library/member`` is a member of a component that is registered as a library; its file checks
    whether the member exists.
    """
    known = specs(kind)
    if name in known:
        found = known[name]
        if absent := undefined(found.module, found.class_name):
            where = plugins.shown(found.module)
            raise ConfigError(
                f"{where}: the {kind} {found.class_name} must define {', '.join(absent)}."
            )
        return found
    library, slash, _ = name.partition("/")
    if slash and library in known and known[library].info.get("library", False):
        return dataclasses.replace(known[library], id=name)
    raise missing([kind], kind, name, known, where)


def load(kind: str, name: str) -> Any:
    """Import the file of a component and return its class (for a metric, its function).

    Raises ConfigError if the import of a plugin's file fails.
    """
    entry = spec(kind, name)
    plugins.importable(entry.module)
    own = entry.origin == plugins.PACKAGE
    with say_extra() if own else said_of(entry.module, "cannot be imported"):
        return getattr(importlib.import_module(entry.module), entry.class_name)


@contextlib.contextmanager
def said_of(module: str, what: str) -> Iterator[None]:
    """Convert exceptions of a plugin's file into ConfigError with file, line, ``what`` failed, and
    the reason.
    """
    try:
        yield
    except Exception as error:
        path = plugins.locate(module)
        own = path and path.resolve()
        frames = [
            each
            for each in traceback.extract_tb(error.__traceback__)
            if Path(each.filename).resolve() == own
        ]
        line = f", line {frames[-1].lineno}," if frames else ""
        raise ConfigError(
            f"{plugins.shown(module)}{line} {what} ({type(error).__name__}: {error}): correct it."
        ) from error
