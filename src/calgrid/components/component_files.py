"""Facts, hyper-parameters and ranges of a component, read from its file without importing it.

Hyper-parameters are the keyword-only arguments of ``__init__``, with their defaults and
annotations; ``limits`` of ``@register`` has their ranges. A class without ``__init__`` inherits
those of its base; ``**options`` adds the others of the base. A metric is a function without
hyper-parameters.
"""

import ast
import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from calgrid.components import plugins
from calgrid.components.declarations import Module, parse
from calgrid.components.ranges import Range, is_finite, not_finite, read_range
from calgrid.errors import ConfigError, number_as_text, unknown_id

#: kind of component -> sub-package that holds one file per component
KINDS: Mapping[str, str] = {
    "loss": "losses",
    "procedure": "procedures",
    "calibrator": "calibrators",
    "dataset": "datasets",
    "backbone": "backbones",
    "probe": "probes",
    "metric": "metrics",
}

#: facts of a backbone that are positive integers
SIZES = ("num_features", "image_size", "min_size", "macs", "activations")
#: kind -> facts that each component gives, facts that some give; any component may give ``limits``
FACTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "loss": (("hard_labels",), ("needs", "sees_validation", "state")),
    "procedure": ((), ("losses", "linear_head", "second_stage", "loss", "passes")),
    "calibrator": (("keeps_argmax", "parameters"), ("needs", "slow")),
    "dataset": (
        ("role", "label", "download"),
        (
            *(
                "n_classes",
                "image_shape",
                "mean",
                "std",
                "sizes",
                "drawn_val",
                "duplicates",
                "families",
                "files",
            ),
            *(
                "base",
                "shifts",
                "severities",
                "configurable",
                "encoded",
                "evaluation_only",
                "warning",
                "variants",
            ),
        ),
    ),
    "backbone": (
        ("label", "image_size"),
        # missing facts are measured, except for networks with published weights and libraries of
        # networks
        (
            "pretrained",
            "parameters",
            "num_features",
            "min_size",
            "macs",
            "activations",
            "max_size",
            "library",
        ),
    ),
    "probe": ((), ("needs_linear_head",)),
    "metric": (("lower_is_better", "unit"), ("interval",)),
}
#: kind -> facts of components that do not give them
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "loss": {"needs": (), "sees_validation": False, "state": "none"},
    "procedure": {"second_stage": False},
    "calibrator": {"needs": ("logits",), "slow": False},
    "backbone": {"pretrained": False, "library": False},
    "probe": {"needs_linear_head": False},
}
#: what facts of a metric may be; calgrid/metrics/table.py explains them
METRIC_FACTS: Mapping[str, tuple[Any, ...]] = {
    "lower_is_better": (True, False, None),
    "unit": ("fraction", "nats", "score", "number"),
    "interval": ("percentile", "centred", "none"),
}
#: kinds of which one file may hold several, each with its own id
SEVERAL = ("dataset", "backbone")
#: kinds that share their identifiers: both are methods
METHODS = ("loss", "procedure")
#: types in annotations of hyper-parameters, beside None and Literal
PLAIN_TYPES = ("bool", "int", "float", "str")
LIST_TYPES = ("list", "tuple", "Sequence")


#: definitions that can have ``@register(...)``
Registered = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class Option:
    """One hyper-parameter; ``range`` is that of a number, or of the members of a list."""

    name: str
    default: Any
    type: str
    choices: tuple[Any, ...] = ()
    range: Range | None = None

    def check(self, value: Any, where: str) -> Any:
        """Return ``value`` in the declared type, or raise ConfigError with its location ``where``."""
        if self.choices and value not in self.choices:
            raise ConfigError(f"{where} must be one of {list(self.choices)}, got {value!r}.")
        accepted = [part.strip() for part in self.type.split("|")]
        if self.choices or (value is None and "None" in accepted):
            return value
        if isinstance(value, bool) and "bool" not in accepted:
            raise ConfigError(f"{where} must be {self.type}, got {value!r}.")
        numeric = bool({"float", "int"} & set(accepted))
        if numeric and isinstance(value, (int, float)) and not is_finite(value):
            raise ConfigError(f"{where} {not_finite(value)}.")
        if "float" in accepted and isinstance(value, (int, float)):
            return float(value)
        for name, kind in (("bool", bool), ("int", int), ("str", str)):
            if name in accepted and isinstance(value, kind):
                return value
        if any(part.startswith(LIST_TYPES) for part in accepted) and isinstance(
            value, (list, tuple)
        ):
            return list(value)
        hint = number_as_text(value, whole="float" not in accepted) if numeric else ""
        raise ConfigError(f"{where} must be {self.type}, got {value!r}{hint}.")


@dataclass(frozen=True)
class ComponentSpec:
    """A component as declared in its file."""

    id: str
    kind: str
    module: str
    class_name: str
    summary: str
    source: str
    options: Mapping[str, Option]
    dataset_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Its package: ``calgrid``, or that of a plugin."""
        return self.module.partition(".")[0]

    @property
    def is_stochastic(self) -> bool:
        """Whether its results depend on a seed, which is one of its hyper-parameters."""
        return "seed" in self.options

    def resolve(
        self,
        overrides: Mapping[str, Any] | None = None,
        dataset: str | None = None,
        backbone: str | None = None,
        where: str = "",
    ) -> dict[str, Any]:
        """Return all hyper-parameters: file defaults, then those of the data set, then
        ``overrides``.

        Keys of ``dataset_defaults`` are ``"dataset"`` or, with precedence, ``"dataset/backbone"``.
        Raises ConfigError: a name is unknown, or a value has the wrong type or is out of range.
        """
        place = where or f"{self.kind} '{self.id}'"
        values = {name: option.default for name, option in self.options.items()}
        values.update(self.dataset_defaults.get(dataset or "", {}))
        values.update(self.dataset_defaults.get(f"{dataset}/{backbone}", {}))
        for name, value in (overrides or {}).items():
            if name not in self.options:
                raise unknown_id("hyper-parameter", name, self.options or {"(it has none)"}, place)
            values[name] = self.options[name].check(value, f"{place}: {name}")
        ranges = {
            name: option.range for name, option in self.options.items() if option.range is not None
        }
        for name in sorted(
            ranges, key=lambda name: bool(ranges[name].names)
        ):  # ends of other ranges first
            if values[name] is not None:
                ranges[name].check(values[name], f"{place}: {name}", values)
        return values


#: options that the base class of a kind gives to each of its components
COMMON_OPTIONS: Mapping[str, Mapping[str, Option]] = {
    "loss": {"reduction": Option("reduction", "mean", "Literal['mean', 'sum']", ("mean", "sum"))}
}


def _literal(module: Module, node: ast.expr, where: str) -> Any:
    try:
        return module.literal(node)
    except ValueError as error:
        raise ConfigError(
            f"{where} must be a literal: it is read without importing the file."
        ) from error


def _choices(module: Module, annotation: ast.expr, where: str) -> tuple[Any, ...]:
    """Values of a Literal; none for another annotation, which :meth:`Option.check` must support."""
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
                f"{where} must be a Literal, or bool, int, float, str, None and lists of them "
                f"joined by |, got "
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
    """Raise ConfigError unless a component has all required facts of its kind, no unknown ones, and
    valid values.
    """
    needed, further = FACTS[kind]
    known = (*needed, *further, *(() if kind == "metric" else ("limits", "dataset_defaults")))
    for name in info:
        if name not in known:
            raise unknown_id("fact", name, known, f"{where}: @register")
    library = info.get("library", False)
    if info.get("pretrained", False) and not library:
        needed = (*needed, "parameters")
    missing = [name for name in needed if name not in info and not (library and name in SIZES)]
    if missing:
        facts = f"the fact{'s' if missing[1:] else ''} {', '.join(missing)}"
        raise ConfigError(
            f"{where}: @register of a {kind} needs {facts} (explained in calgrid/{KINDS[kind]}/"
            f"{'table' if kind == 'metric' else 'base'}.py)."
        )
    for name, choices in METRIC_FACTS.items() if kind == "metric" else ():
        if name in info and info[name] not in choices:
            raise ConfigError(
                f"{where}: the fact {name} must be one of {list(choices)}, got {info[name]!r}."
            )
    if kind != "backbone" or library:
        return
    parameters = info.get("parameters", {0: 0})
    if not isinstance(parameters, dict) or not parameters:
        raise ConfigError(
            f"{where}: the fact parameters must map numbers of classes to counts, got "
            f"{parameters!r}."
        )
    for name in SIZES:
        if not isinstance(value := info.get(name, 1), int) or value < 1:
            raise ConfigError(
                f"{where}: the fact {name} must be a whole number above 0, got {value!r}."
            )


def _with_ranges(
    options: Mapping[str, Option], limits: Mapping[str, Any], where: str
) -> dict[str, Option]:
    """Options with their ranges; ConfigError for limits of unknown options or without a valid
    range.
    """
    found = dict(options)
    for name, text in limits.items():
        limit = read_range(text, f"{where}: limits of {name}")
        for each in (name, *limit.names):
            if each not in options:
                raise unknown_id("hyper-parameter", each, options, f"{where}: limits")
        found[name] = dataclasses.replace(options[name], range=limit)
    return found


def _registered(
    kind: str, module: Module, where: str
) -> Iterator[tuple[Registered, dict[str, Any]]]:
    """Yield the classes (functions, for a metric) of a file with ``@register(...)``, and its
    arguments.
    """
    for node in (module.functions if kind == "metric" else module.classes).values():
        for mark in node.decorator_list:
            if (
                isinstance(mark, ast.Call)
                and isinstance(mark.func, ast.Name)
                and mark.func.id == "register"
            ):
                info: dict[str, Any] = {}
                for keyword in mark.keywords:
                    value = _literal(
                        module, keyword.value, f"{where}: {keyword.arg or 'what follows **'}"
                    )
                    info |= {keyword.arg: value} if keyword.arg else value
                yield node, info


def read_file(kind: str, path: Path, name: str) -> list[ComponentSpec]:
    """Return the components of a file, the module ``name``; none for a helper module of calgrid.

    Raises ConfigError: an invalid component, or a plugin's file without one.
    """
    where = plugins.shown(name)
    module = Module.of(parse(path, where), name)
    found = list(_registered(kind, module, where))
    if not found and name.startswith(f"{plugins.PACKAGE}."):
        return []
    several = kind in SEVERAL and bool(found) and all("id" in info for _, info in found)
    if len(found) != 1 and not several:
        hint = ", or several with an id each" if kind in SEVERAL else ""
        what = "function" if kind == "metric" else "class"
        raise ConfigError(
            f"{where} must hold exactly one {what} with @register{hint}, found {len(found)}."
        )
    return [_read_spec(kind, name, module, cls, info) for cls, info in found]


def _check_function(node: ast.FunctionDef, where: str) -> None:
    given = node.args
    if (
        len([*given.posonlyargs, *given.args]) != 3
        or given.vararg
        or given.kwonlyargs
        or given.kwarg
    ):
        raise ConfigError(
            f"{where}: {node.name} must take (probs, labels, n_bins), got ({ast.unparse(given)})."
        )
    if not ast.get_docstring(node):
        raise ConfigError(
            f"{where}: {node.name} needs a docstring, whose first line says what it measures."
        )


def _read_spec(
    kind: str, name: str, module: Module, cls: Registered, info: dict[str, Any]
) -> ComponentSpec:
    where = plugins.shown(name)
    own = "id" in info
    id = info.pop("id", name.rpartition(".")[2])
    if not isinstance(id, str) or not re.fullmatch("[a-z][a-z0-9_]*", id):
        given = f"the id {id!r}" if own else "the file's name is the identifier; name it"
        raise ConfigError(
            f"{where}: {given} {'must be' if own else 'in'} small letters, digits and _, a letter "
            f"first."
        )
    if "source" not in info:
        raise ConfigError(f"{where}: @register needs a source.")
    if isinstance(cls, ast.FunctionDef):
        _check_function(cls, where)
    arguments = module.keyword_only(cls.name).values() if isinstance(cls, ast.ClassDef) else ()
    options = {arg.arg: _option(home, arg, default, where) for arg, default, home in arguments}
    options.update(COMMON_OPTIONS.get(kind, {}))
    source = info.pop("source")
    _check_facts(kind, info, where)
    info = {**DEFAULTS.get(kind, {}), **info}
    return ComponentSpec(
        id=id,
        kind=kind,
        module=name,
        class_name=cls.name,
        summary=" ".join((ast.get_docstring(cls) or "").split("\n\n", 1)[0].split()),
        source=source,
        dataset_defaults=MappingProxyType(info.pop("dataset_defaults", {})),
        options=MappingProxyType(_with_ranges(options, info.get("limits", {}), where)),
        info=MappingProxyType(info),
    )
