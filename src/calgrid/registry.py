"""Registry of methods: one file = one identifier, read without importing it.

A component (loss, procedure, calibrator, dataset, shift, backbone, probe) lives in ``calgrid/<package>/<id>.py``; the
file name is the identifier, and the one class in it that carries ``@register(...)`` is the component. Backbones and
data sets that differ by numbers only may share a file: then each class says ``@register(id=...)``. Files that begin
with ``_``, and ``base.py``, hold no components.

Hyper-parameters are the keyword-only arguments of ``__init__``: their defaults and annotations are the only place where
they are written down, and ``limits`` of ``@register`` is the only place of their ranges. A class without ``__init__``
has those of its base, and ``**options`` stands for the base's others.

Planning a grid must not import torch (seconds) for each Snakemake process, so :func:`specs` reads the files with
:mod:`ast`; :func:`load` imports the one file that is needed.
"""

import ast
import dataclasses
import functools
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from calgrid.declarations import Module, undefined
from calgrid.errors import ConfigError, number_as_text, unknown_id
from calgrid.ranges import Range, is_finite, not_finite, read_range

PACKAGE_ROOT = Path(__file__).parent
#: kind of component -> (sub-package that holds one file per component, name of the kind in messages)
KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "loss": ("losses", "loss"),
        "procedure": ("procedures", "procedure"),
        "calibrator": ("calibrators", "calibrator"),
        "dataset": ("datasets", "dataset"),
        "backbone": ("backbones", "backbone"),
        "probe": ("probes", "probe"),
    }
)

#: facts of a backbone that are whole numbers above 0, which a library of backbones does not give
SIZES = ("num_features", "image_size", "min_size", "macs", "activations")
#: kind -> facts that each component gives, facts that some give; any component may give ``limits``
FACTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "loss": (("needs", "sees_validation", "hard_labels", "state"), ()),
        "procedure": ((), ("losses", "linear_head", "second_stage", "loss")),
        "calibrator": (("needs", "keeps_argmax", "parameters", "stochastic"), ("slow",)),
        "dataset": (
            ("role", "label", "download"),
            (
                *("n_classes", "image_shape", "mean", "std", "sizes", "drawn_val", "duplicates", "families", "files"),
                *("base", "shifts", "severities", "configurable", "evaluation_only", "warning", "variants"),
            ),
        ),
        "backbone": (
            ("label", "parameters", "pretrained", *SIZES),
            ("max_size", "library"),
        ),
        "probe": ((), ("needs_linear_head",)),
    }
)
#: kinds of which one file may hold several, each with an id of its own
SEVERAL = ("dataset", "backbone")
#: what annotations of hyper-parameters are made of, beside None and Literal
PLAIN_TYPES = ("bool", "int", "float", "str")
LIST_TYPES = ("list", "tuple", "Sequence")

Component = TypeVar("Component", bound=type)


@dataclass(frozen=True)
class Option:
    """One hyper-parameter: its default and the values it takes."""

    name: str
    default: Any
    type: str
    choices: tuple[Any, ...] = ()
    #: of a number, or of the members of a list
    range: Range | None = None

    def check(self, value: Any, where: str) -> Any:
        """Return ``value`` in the declared type, or raise ConfigError naming ``where`` it was given."""
        if self.choices:
            if value not in self.choices:
                raise ConfigError(f"{where} must be one of {list(self.choices)}, got {value!r}.")
            return value
        accepted = [part.strip() for part in self.type.split("|")]
        if value is None and "None" in accepted:
            return None
        if isinstance(value, bool) and "bool" not in accepted:
            raise ConfigError(f"{where} must be {self.type}, got {value!r}.")
        if {"float", "int"} & set(accepted) and isinstance(value, (int, float)) and not is_finite(value):
            raise ConfigError(f"{where} {not_finite(value)}.")
        if "float" in accepted and isinstance(value, (int, float)):
            return float(value)
        for name, kind in (("bool", bool), ("int", int), ("str", str)):
            if name in accepted and isinstance(value, kind):
                return value
        if any(part.startswith(LIST_TYPES) for part in accepted) and isinstance(value, (list, tuple)):
            return list(value)
        hint = number_as_text(value, whole="float" not in accepted) if {"float", "int"} & set(accepted) else ""
        raise ConfigError(f"{where} must be {self.type}, got {value!r}{hint}.")


@dataclass(frozen=True)
class ComponentSpec:
    """What a component's file says about it, without running the file.

    Attributes
    ----------
    module : where the class is; ``module:class`` where the module registers several, of which a fingerprint counts
        what this one uses.
    """

    id: str
    kind: str
    module: str
    class_name: str
    summary: str
    source: str
    options: Mapping[str, Option]
    dataset_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)

    def resolve(
        self,
        overrides: Mapping[str, Any] | None = None,
        dataset: str | None = None,
        backbone: str | None = None,
        where: str = "",
    ) -> dict[str, Any]:
        """Return all hyper-parameters: file defaults, then those of the data set, then ``overrides``.

        Keys of ``dataset_defaults`` are ``"dataset"`` or, winning over it, ``"dataset/backbone"``.
        Raises ConfigError for a name the component does not have, a value of the wrong type or beyond its limits.
        """
        place = where or f"{self.kind} '{self.id}'"
        values = {name: option.default for name, option in self.options.items()}
        values.update(self.dataset_defaults.get(dataset or "", {}))
        values.update(self.dataset_defaults.get(f"{dataset}/{backbone}", {}))
        for name, value in (overrides or {}).items():
            if name not in self.options:
                known = tuple(self.options) or ("(it has none)",)
                raise unknown_id("hyper-parameter", name, known, place)
            values[name] = self.options[name].check(value, f"{place}: {name}")
        self._check_ranges(values, place)
        return values

    def _check_ranges(self, values: Mapping[str, Any], place: str) -> None:
        """Raise ConfigError for a value out of its range; those that are ends of ranges come first."""
        ranges = {name: option.range for name, option in self.options.items() if option.range is not None}
        for name in sorted(ranges, key=lambda name: bool(ranges[name].names)):
            if values[name] is not None:
                ranges[name].check(values[name], f"{place}: {name}", values)


def register(
    *,
    source: str,
    id: str | None = None,
    dataset_defaults: Mapping[str, Mapping[str, Any]] | None = None,
    **info: Any,
) -> Callable[[Component], Component]:
    """Mark a class as a component.

    All arguments must be literals, or constants of modules of this package: they are also read without importing the
    file.

    Parameters
    ----------
    id : identifier, of a class that is not the only component of its file.
    source : the paper (authors, venue, year, equation) or origin.
    dataset_defaults : dataset id -> hyper-parameters that differ from the defaults there.
    info : further facts of the kind, for example ``needs=("features",)`` or ``keeps_argmax=True``; ``limits`` maps each
        numeric hyper-parameter to the range in which its value, or each member of a list, must lie: ``"[0, 1)"``,
        ``"(0, inf)"``, ``"[1, other]"`` up to the value of another one, ``"(-inf, inf)"`` for any number.
    """

    def mark(cls: Component) -> Component:
        registered = MappingProxyType({"source": source, "dataset_defaults": dict(dataset_defaults or {}), **info})
        cls.registered = registered  # type: ignore[attr-defined]  # each kind's base declares it
        return cls

    return mark


#: options that the base class of a kind gives to each of its components
COMMON_OPTIONS: Mapping[str, Mapping[str, Option]] = MappingProxyType(
    {"loss": {"reduction": Option("reduction", "mean", "Literal['mean', 'sum']", ("mean", "sum"))}}
)


def _literal(module: Module, node: ast.expr, where: str) -> Any:
    try:
        return module.literal(node)
    except ValueError as error:
        raise ConfigError(f"{where} must be a literal: it is read without importing the file.") from error


def _choices(module: Module, annotation: ast.expr, where: str) -> tuple[Any, ...]:
    """Values of a Literal; none for another annotation, which must be one that :meth:`Option.check` understands."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        values = _literal(module, annotation.slice, where)
        return values if isinstance(values, tuple) else (values,)
    waiting = [annotation]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr):
            waiting += [part.left, part.right]
        elif isinstance(part, ast.Subscript) and ast.unparse(part.value) in LIST_TYPES:
            continue
        elif ast.unparse(part) not in (*PLAIN_TYPES, "None"):
            raise ConfigError(
                f"{where} must be a Literal, or bool, int, float, str, None and lists of them joined by |, got "
                f"{ast.unparse(annotation)}."
            )
    return ()


def _option(module: Module, arg: ast.arg, default: ast.expr | None, where: str) -> Option:
    if default is None or arg.annotation is None:
        missing = "a default" if default is None else "an annotation"
        raise ConfigError(f"{where}: the hyper-parameter {arg.arg} of __init__ needs {missing}.")
    return Option(
        name=arg.arg,
        default=_literal(module, default, f"{where}: default of {arg.arg}"),
        type=ast.unparse(arg.annotation),
        choices=_choices(module, arg.annotation, f"{where}: the annotation of {arg.arg}"),
    )


def _check_facts(kind: str, info: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError unless a component gives all facts of its kind, and none that nothing reads."""
    needed, further = FACTS[kind]
    known = (*needed, *further, "limits", "dataset_defaults")
    for name in info:
        if name not in known:
            raise unknown_id("fact", name, known, f"{where}: @register")
    missing = [name for name in needed if name not in info and not (name in SIZES and info.get("library", False))]
    if missing:
        facts = f"the fact{'s' if missing[1:] else ''} {', '.join(missing)}"
        raise ConfigError(
            f"{where}: @register of a {KINDS[kind][1]} needs {facts} (explained in calgrid/{KINDS[kind][0]}/base.py)."
        )
    if kind == "backbone" and not info.get("library", False):
        _check_sizes(info, where)


def _check_sizes(info: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError unless the facts of a backbone are numbers by which jobs can be sized."""
    parameters = info["parameters"]
    if not isinstance(parameters, dict) or not parameters:
        raise ConfigError(f"{where}: the fact parameters must map numbers of classes to counts, got {parameters!r}.")
    for name, value in ((name, info[name]) for name in SIZES):
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{where}: the fact {name} must be a whole number above 0, got {value!r}.")


def _with_ranges(options: Mapping[str, Option], limits: Mapping[str, Any], where: str) -> dict[str, Option]:
    """Options with their ranges; ConfigError for limits of none of them, or that are no range."""
    found = dict(options)
    for name, text in limits.items():
        limit = read_range(text, f"{where}: limits of {name}")
        for each in (name, *limit.names):
            if each not in options:
                raise unknown_id("hyper-parameter", each, options or {"(none)"}, f"{where}: limits")
        found[name] = dataclasses.replace(options[name], range=limit)
    return found


def _registered(module: Module, where: str) -> Iterator[tuple[ast.ClassDef, dict[str, Any]]]:
    """Yield the classes of a file that carry ``@register(...)``, and what they give there."""
    for node in module.classes.values():
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "register":
                info: dict[str, Any] = {}
                for keyword in mark.keywords:
                    value = _literal(module, keyword.value, f"{where}: {keyword.arg or 'what follows **'}")
                    info |= {keyword.arg: value} if keyword.arg else value
                yield node, info


def read_file(kind: str, path: Path) -> list[ComponentSpec]:
    """Return the components of a file; ConfigError for a file that holds none, or one that is no valid component."""
    where = f"calgrid/{path.parent.name}/{path.name}"
    try:
        module = Module.of(ast.parse(path.read_text(encoding="utf-8")))
    except SyntaxError as error:
        raise ConfigError(f"{where}, line {error.lineno}, is not valid Python ({error.msg}).") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where} is not UTF-8: save it as UTF-8.") from None
    except ValueError as error:
        raise ConfigError(f"{where} is not valid Python ({error}).") from None
    found = list(_registered(module, where))
    several = kind in SEVERAL and bool(found) and all("id" in info for _, info in found)
    if len(found) != 1 and not several:
        hint = ", or several with an id each" if kind in SEVERAL else ""
        raise ConfigError(f"{where} must hold exactly one class with @register{hint}, found {len(found)}.")
    return [_read_spec(kind, path, module, cls, info) for cls, info in found]


def _read_spec(kind: str, path: Path, module: Module, cls: ast.ClassDef, info: dict[str, Any]) -> ComponentSpec:
    where = f"calgrid/{path.parent.name}/{path.name}"
    own = f":{cls.name}" if "id" in info else ""
    id = info.pop("id", path.stem)
    if not isinstance(id, str) or not re.fullmatch("[a-z][a-z0-9_]*", id):
        given = f"the id {id!r}" if own else "the file's name is the identifier; name it"
        raise ConfigError(f"{where}: {given} {'must be' if own else 'in'} small letters, digits and _, a letter first.")
    if "source" not in info:
        raise ConfigError(f"{where}: @register needs a source.")
    arguments = module.keyword_only(cls.name).values()
    options = {arg.arg: _option(home, arg, default, where) for arg, default, home in arguments}
    options.update(COMMON_OPTIONS.get(kind, {}))
    source = info.pop("source")
    _check_facts(kind, info, where)
    return ComponentSpec(
        id=id,
        kind=kind,
        module=f"calgrid.{path.parent.name}.{path.stem}{own}",
        class_name=cls.name,
        summary=(ast.get_docstring(cls) or "").strip().split("\n", 1)[0],
        source=source,
        dataset_defaults=MappingProxyType(info.pop("dataset_defaults", {})),
        options=MappingProxyType(_with_ranges(options, info.get("limits", {}), where)),
        info=MappingProxyType(info),
    )


@functools.cache
def specs(kind: str) -> Mapping[str, ComponentSpec]:
    """All components of a kind by identifier, in alphabetical order; imports nothing."""
    folder = PACKAGE_ROOT / KINDS[kind][0]
    paths = sorted(path for path in folder.glob("*.py") if path.name != "base.py" and path.name[0] not in "_.")
    found: dict[str, ComponentSpec] = {}
    for entry in (entry for path in paths for entry in read_file(kind, path)):
        if entry.id in found:
            raise ConfigError(
                f"The {KINDS[kind][1]} '{entry.id}' is registered by {entry.module} and {found[entry.id].module}: "
                "rename one."
            )
        found[entry.id] = entry
    return MappingProxyType(dict(sorted(found.items())))


def spec(kind: str, name: str, where: str = "") -> ComponentSpec:
    """Return one component's ComponentSpec; an unknown ``name`` raises ConfigError with the nearest valid one.

    ``library/member`` is a member of a component that is registered as a library; which members there are, only its
    file knows.
    """
    known = specs(kind)
    if name in known:
        _check_methods(known[name].module, known[name].class_name, KINDS[kind][1])
        return known[name]
    library, slash, _ = name.partition("/")
    if slash and library in known and known[library].info.get("library", False):
        return dataclasses.replace(known[library], id=name)
    raise unknown_id(KINDS[kind][1], name, known, where)


@functools.cache
def _check_methods(module: str, class_name: str, kind: str) -> None:
    """Raise ConfigError for a class that could not be used, because it lacks what its base asks for."""
    module = module.partition(":")[0]
    if missing := undefined(module, class_name):
        path = f"{module.replace('.', '/')}.py"
        raise ConfigError(f"{path}: the {kind} {class_name} must define {', '.join(missing)}.")


def load(kind: str, name: str) -> type:
    """Import the file of a component and return its class."""
    entry = spec(kind, name)
    return getattr(importlib.import_module(entry.module.partition(":")[0]), entry.class_name)
