"""Registry of components: one file = one identifier.

A component (loss, procedure, calibrator, dataset, shift, backbone, probe) is a class with
``@register(...)`` in ``calgrid/<package>/<id>.py`` or ``<plugin>/<package>/<id>.py``
(:mod:`calgrid.components.plugins`); the file name is the identifier. A plugin metric is a function;
calgrid's own metrics are rows of ``metrics/table.py``. Backbones and data sets that differ only in
numbers may share a file with ``@register(id=...)`` for each class. Files that begin with ``_``,
``base.py``, and files of calgrid without ``@register`` have no components.

Jobs :func:`load` a component and read it with :func:`description_of`. Planning must not import
torch (seconds in each Snakemake process), so :func:`describe` and :func:`descriptions` read the
same from the files; an invalid file causes an error only when its component is requested.
"""

import contextlib
import dataclasses
import importlib
import inspect
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from calgrid.components import copies, fingerprint, plugins
from calgrid.components.options import Option, Options, read_options
from calgrid.components.source import declarations
from calgrid.errors import CalgridError, ConfigError, check_ids, refuse, unknown_id
from calgrid.optional import say_extra

Component = TypeVar("Component", bound=Callable[..., Any])

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
#: heading of parameters in a docstring, names before a meaning, and starts of meanings that are
#: said elsewhere
PARAMETERS = "Parameters\n----------\n"
PARAMETER = re.compile(r"(?:^|(?<=\.) )(\w+(?:, \w+)*) : ")
ELSEWHERE = ("as in", "see ")
#: full name of a calibrator -> its identifier. Vector scaling of two classes is Platt scaling
FULL_NAMES = {
    "temperature": "ts",
    "vector": "vs",
    "platt": "vs",
    "matrix": "ms",
    "isotonic": "iso",
    "histogram": "hb",
}
#: kinds that share their identifiers: both are methods
METHODS = ("loss", "procedure")

#: kind -> facts that each component gives
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "loss": ("hard_labels",),
    "calibrator": ("keeps_argmax", "parameters"),
    "dataset": ("role", "label", "download"),
    "backbone": ("label",),
    "metric": ("lower_is_better", "unit"),
}
#: kind -> facts that a component may give, with their default values
DEFAULTS: Mapping[str, Options] = {
    "loss": {"needs": (), "sees_validation": False, "state": "none"},
    "procedure": {
        "second_stage": False,
        "sees_validation": False,
        "several_gpus": False,
        "cuda_graph": False,
        "averaged_weights": False,
    },
    "calibrator": {"needs": ("logits",), "slow_from": None},
    "backbone": {"pretrained": False, "library": False},
    "probe": {"needs_linear_head": False},
}
#: kind -> further facts that a component may give
FURTHER: Mapping[str, tuple[str, ...]] = {
    "procedure": ("losses", "linear_head", "loss", "passes", "search_epochs"),
    "dataset": (
        *("n_classes", "image_shape", "mean", "std", "sizes", "drawn_val", "duplicates"),
        *("families", "files", "base", "shifts", "severities", "configurable", "encoded"),
        *("evaluation_only", "keep_encoded", "some_classes", "warning", "variants", "like"),
        *("class_groups", "near", "far"),
    ),
    "backbone": ("parameters", "min_size", "max_size"),
    "metric": ("interval",),
}
#: options that the base class of a kind gives to each of its components
COMMON_OPTIONS: Mapping[str, Mapping[str, Option]] = {
    "loss": {"reduction": Option("reduction", "mean", "Literal['mean', 'sum']", ("mean", "sum"))}
}


def register(
    *,
    source: str,
    id: str | None = None,
    dataset_defaults: Mapping[str, Options] | None = None,
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

    def mark(component: Component) -> Component:
        facts = {"source": source, "dataset_defaults": dict(dataset_defaults or {}), **info}
        if id is not None:
            facts["id"] = id
        component.registered = MappingProxyType(facts)  # type: ignore[attr-defined]  # in the base
        return component

    return mark


@dataclass(frozen=True)
class Description:
    """A component as declared in its file.

    Hyper-parameters: see :func:`parameters_of`; ``limits`` of ``@register`` has their ranges.
    """

    id: str
    kind: str
    module: str
    class_name: str
    summary: str
    source: str
    options: Mapping[str, Option]
    dataset_defaults: Mapping[str, Options] = field(default_factory=dict)
    info: Options = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Package of the component: ``calgrid``, or the package of a plugin."""
        return self.module.partition(".")[0]

    @property
    def is_stochastic(self) -> bool:
        """Whether results depend on a seed, given as a hyper-parameter."""
        return "seed" in self.options

    def resolve(
        self,
        overrides: Options | None = None,
        dataset: str | None = None,
        backbone: str | None = None,
        where: str = "",
    ) -> Options:
        """Return all hyper-parameters: file defaults, then the data set's, then ``overrides``.

        Keys of ``dataset_defaults`` are ``"dataset"`` or, with precedence, ``"dataset/backbone"``.
        A data set that is like another one (``cifar10_lt``) has its defaults.

        Raises
        ------
        ConfigError : a name is unknown, or a value has the wrong type or is out of range.
        """
        place = where or f"{self.kind} '{self.id}'"
        values = {name: option.default for name, option in self.options.items()}
        if dataset is not None and dataset in (known := descriptions("dataset")):
            dataset = known[dataset].info.get("like", dataset)
        values.update(self.dataset_defaults.get(dataset or "", {}))
        values.update(self.dataset_defaults.get(f"{dataset}/{backbone}", {}))
        if overrides and not self.options:
            raise ConfigError(
                f"Unknown hyper-parameter '{next(iter(overrides))}' in {place}: {self.id} has no "
                "options (with annotation and default); remove it."
            )
        check_ids("hyper-parameter", overrides or {}, self.options, place)
        values.update(overrides or {})
        for name, option in self.options.items():
            values[name] = option.check(values[name], f"{place}: {name}")
        ranges = [(name, option.range) for name, option in self.options.items() if option.range]
        # ends of other ranges first
        for name, allowed in sorted(ranges, key=lambda each: bool(each[1].names)):
            if values[name] is not None:
                allowed.check(values[name], f"{place}: {name}", values)
        return values


def description_of(component: Any) -> Description:
    """Return the description of a registered class, or of the function of a metric.

    Raises
    ------
    ConfigError : an argument of ``@register``, or a hyper-parameter is unknown, missing or invalid.
    """
    module, facts = component.__module__, dict(component.registered)
    where, package = plugins.shown(module), module.split(".")[-2]
    (kind,) = (kind for kind, folder in KINDS.items() if folder == package)
    id = facts.pop("id", module.rpartition(".")[2])
    if not isinstance(id, str) or not re.fullmatch("[a-z][a-z0-9_]*", id):
        given, verb = "the file's name is the identifier; name it", "in"
        if "id" in component.registered:
            given, verb = f"the id {id!r}", "must be"
        raise ConfigError(f"{where}: {given} {verb} small letters, digits and _, a letter first.")
    source, dataset_defaults = facts.pop("source"), facts.pop("dataset_defaults")
    _check_facts(kind, facts, where)
    parameters = parameters_of(component) if inspect.isclass(component) else {}
    options = read_options(parameters, facts.get("limits", {}), where)
    options |= COMMON_OPTIONS.get(kind, {})
    meanings = _meanings(component) if inspect.isclass(component) else {}
    for name, option in options.items():
        options[name] = dataclasses.replace(option, meaning=meanings.get(name, ""))
    return Description(
        id=id,
        kind=kind,
        module=module,
        class_name=component.__name__,
        summary=" ".join(inspect.cleandoc(component.__doc__ or "").split("\n\n", 1)[0].split()),
        source=source,
        options=MappingProxyType(options),
        dataset_defaults=MappingProxyType(dataset_defaults),
        info=MappingProxyType({**DEFAULTS.get(kind, {}), **facts}),
    )


def _check_facts(kind: str, facts: Options, where: str) -> None:
    """Raise ConfigError unless a component has the facts of its kind and no unknown ones."""
    needed = REQUIRED.get(kind, ())
    known = (*needed, *DEFAULTS.get(kind, ()), *FURTHER.get(kind, ()), "limits")
    check_ids("fact", facts, known, f"{where}: @register")
    if facts.get("pretrained") and not facts.get("library"):
        needed = (*needed, "parameters")
    if kind == "dataset" and not facts.get("configurable"):
        needed = (*needed, "image_shape")
        if facts.get("role") == "shift":
            needed = (*needed, "base", "shifts", "severities")
    absent = [name for name in needed if name not in facts]
    if absent:
        noun = "facts" if len(absent) > 1 else "fact"
        file = f"calgrid/{KINDS[kind]}/{'table' if kind == 'metric' else 'base'}.py"
        raise ConfigError(
            f"{where}: @register of a {kind} needs the {noun} {', '.join(absent)} (explained in "
            f"{file})."
        )


def parameters_of(component: type) -> dict[str, inspect.Parameter]:
    """Hyper-parameters of a class: its annotated attributes with a default, unless their names
    begin with ``_`` or they are a ``ClassVar``, or the keyword-only parameters of its constructor.

    ``**`` of a constructor adds parameters of the base. A class without a constructor has the
    parameters of its base, and attributes count only below a base whose constructor has ``**``.
    """
    parameters: dict[str, inspect.Parameter] = {}
    fields: dict[str, inspect.Parameter] = {}
    kind = inspect.Parameter.KEYWORD_ONLY
    for base in inspect.getmro(component)[:-1]:  # without object
        if "__init__" not in vars(base):
            own = {}
            for name, annotation in inspect.get_annotations(base).items():
                default = vars(base).get(name, inspect.Parameter.empty)
                is_default = default is not inspect.Parameter.empty
                if is_default and name[0] != "_" and "ClassVar" not in str(annotation):
                    own[name] = inspect.Parameter(
                        name, kind, default=default, annotation=annotation
                    )
            fields = {**own, **fields}
            continue
        signature = inspect.signature(vars(base)["__init__"]).parameters.values()
        own = {each.name: each for each in signature if each.kind is kind}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature):
            return {**own, **parameters}
        parameters, fields = {**own, **fields, **parameters}, {}
    return parameters


def set_options(component: object, options: Options) -> None:
    """Set hyper-parameters of a component as attributes; TypeError for an unknown one."""
    known = parameters_of(type(component)) if options else {}
    for name, value in options.items():
        if name not in known:
            there = f"it has {', '.join(known)}" if known else "it has none"
            raise TypeError(f"{type(component).__name__} has no hyper-parameter '{name}'; {there}.")
        setattr(component, name, value)


def _meanings(component: type) -> dict[str, str]:
    """Name -> meaning of the parameters in the docstrings of a class and of its bases."""
    meanings: dict[str, str] = {}
    for base in reversed(inspect.getmro(component)):
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition(PARAMETERS)
        section = re.sub(r"\n +", " ", section.partition("\n\n")[0])
        for line in section.splitlines():
            parts = PARAMETER.split(line)[1:]
            for names, meaning in zip(parts[::2], parts[1::2], strict=True):
                if not meaning.startswith(ELSEWHERE):
                    meanings |= dict.fromkeys(names.split(", "), meaning)
    return meanings


def load(kind: str, name: str) -> Any:
    """Import the file of a component and return its class (for a metric, its function).

    Raises
    ------
    ConfigError : the component is unknown, the import of a plugin's file fails, or a class has no
        base of calgrid, or lacks a method that its base leaves to it.
    """
    id = name.partition("/")[0]
    places = plugins.folders(KINDS[kind]) if id.isidentifier() else ()
    own = [f"{package}.{id}" for package, folder in places if (folder / f"{id}.py").is_file()]
    module = own[0] if own else describe(kind, id).module  # which several components may share
    if not _is_of_calgrid(module):
        if plugins.isolated is not None:
            copies.fill(plugins.isolated, fingerprint.code_digests([module]))
        plugins.importable(module)
        with plugin_errors(module, "cannot be imported"), plugins.guarded():
            importlib.import_module(module)
    with say_extra():
        namespace = vars(importlib.import_module(module))
    for component in _registered(namespace):
        if component.registered.get("id", module.rpartition(".")[2]) == id:
            _check_class(kind, component)
            return component
    raise missing([kind], kind, name, descriptions(kind))


def calibrator_id(name: str) -> str:
    """Identifier of a calibrator by its full name, ``temperature``; other names stay."""
    is_full = name in FULL_NAMES and name not in descriptions("calibrator")
    return FULL_NAMES[name] if is_full else name


def calibrator_with(id: str, options: Iterable[str]) -> str:
    """Identifier of the calibrator ``id`` with these options: ``ts`` with an objective is
    ``ts_objective``.
    """
    return "ts_objective" if id == "ts" and "objective" in options else id


def _registered(namespace: Mapping[str, object]) -> list[Any]:
    """Components that a module registers."""
    marked = [each for each in namespace.values() if "registered" in getattr(each, "__dict__", ())]
    return [each for each in marked if each.__module__ == namespace["__name__"]]


def _check_class(kind: str, component: Any) -> None:
    """Raise ConfigError if a class has no base class of calgrid, or does not define an abstract
    method of its base.
    """
    bases = inspect.getmro(component) if inspect.isclass(component) else ()
    members = {name: getattr(component, name, None) for name in dir(component)}
    absent = [name for name in members if getattr(members[name], "__isabstractmethod__", False)]
    told = f"{plugins.shown(component.__module__)}: the {kind} {component.__name__}"
    refuse(
        (
            bases and not any(_is_of_calgrid(base.__module__) for base in bases),
            f"{told} has no base class of calgrid; name one, as in the files of 'calgrid new "
            f"{kind}'.",
        ),
        (absent, f"{told} must define {', '.join(absent)}."),
    )


@contextlib.contextmanager
def plugin_errors(module: str, what: str) -> Iterator[None]:
    """Convert exceptions of a plugin's file into ConfigError with file, line, ``what`` failed, and
    the reason.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        file, line = plugins.shown(module), ""
        for frame in traceback.extract_tb(error.__traceback__):
            if Path(frame.filename).as_posix().endswith(f"/{file}"):
                line = f", line {frame.lineno},"
        reason = f"{type(error).__name__}: {error}"
        hint = plugins.missing_hint(error)
        raise ConfigError(f"{file}{line} {what} ({reason}){hint}; correct it.") from error


@contextlib.contextmanager
def errors_of(component: type, what: str) -> Iterator[None]:
    """:func:`plugin_errors` for a plugin class; CalgridErrors that it raises pass unchanged."""
    module = component.__module__
    try:
        with contextlib.nullcontext() if _is_of_calgrid(module) else plugin_errors(module, what):
            yield
    except ConfigError as error:
        if isinstance(error.__cause__, CalgridError):
            raise error.__cause__ from None
        raise


# components of files, without importing them -----------------------------------------------------


@dataclass(frozen=True)
class Files:
    """Valid components, and messages about invalid files, by kind and identifier."""

    descriptions: dict[tuple[str, str], Description] = field(default_factory=dict)
    broken: dict[tuple[str, str], str] = field(default_factory=dict)


def _files(kind: str) -> Files:
    """Files of a kind and of all kinds with which it shares identifiers."""
    return _read(METHODS if kind in METHODS else (kind,))


@plugins.cached
def _read(kinds: tuple[str, ...]) -> Files:
    files = []
    for kind in kinds:
        for package, folder in plugins.folders(KINDS[kind]):
            if kind == "metric" and _is_of_calgrid(package):
                continue  # they are rows of a table
            for path in sorted(folder.glob("*.py")):
                if path.name != "base.py" and path.name[0] not in "_." and path.is_file():
                    files.append((kind, f"{package}.{path.stem}", path))
    result, first = Files(), dict[str, Description]()
    for kind, module, path in sorted(files, key=lambda file: not _is_of_calgrid(file[1])):
        where = plugins.shown(module)
        try:
            components = _read_file(kind, module)
        except Exception as error:  # a plugin's file may cause any error
            message = f"{where} cannot be read ({type(error).__name__}: {error}); correct it."
            text = path.read_bytes().decode("utf-8", errors="replace")
            for id in [path.stem, *re.findall(r"""\bid=["'](\w+)["']""", text)]:
                result.broken[kind, id] = str(error) if isinstance(error, ConfigError) else message
            continue
        for component in components:
            other = first.setdefault(component.id, component)
            if other is component:
                result.descriptions[kind, component.id] = component
            else:  # which one is meant?
                result.descriptions.pop((kind, component.id), None)
                result.broken[kind, component.id] = (
                    f"{where}: '{component.id}' is the {_described(other)} already; choose another "
                    "name."
                )
    return result


def _read_file(kind: str, module: str) -> list[Description]:
    """Return the components of a file; none for a helper module of calgrid.

    Raises
    ------
    ConfigError : an invalid component, or a plugin's file without one.
    """
    components = _registered(declarations(module).values)
    if not components and _is_of_calgrid(module):
        return []
    several = components and all("id" in component.registered for component in components)
    if len(components) != 1 and not several:
        noun = "function" if kind == "metric" else "class"
        raise ConfigError(
            f"{plugins.shown(module)} must hold exactly one {noun} with @register, or several with "
            f"an id each, found {len(components)}."
        )
    return [description_of(component) for component in components]


def _is_of_calgrid(module: str) -> bool:
    return module.startswith(f"{plugins.PACKAGE}.")


def _described(component: Description) -> str:
    return f"{component.kind} of {plugins.shown(component.module)}"


@plugins.cached
def descriptions(kind: str) -> Mapping[str, Description]:
    """All valid components of a kind by identifier, in alphabetical order, not imported.

    The ``families`` of a data set include all shifts with this ``base``.
    """
    components = _files(kind).descriptions
    found = {id: components[of, id] for of, id in sorted(components) if of == kind}
    for id, component in found.items():
        if (base := found.get(component.info.get("base", ""))) is not None:
            info = {**base.info, "families": (*base.info.get("families", ()), id)}
            found[base.id] = dataclasses.replace(base, info=MappingProxyType(info))
    return MappingProxyType(found)


def describe(kind: str, name: str, where: str = "") -> Description:
    """Return one component's Description; an unknown ``name`` raises ConfigError with the closest
    valid one.

    ``library/member`` is a member of a component that is registered as a library; its file checks
    whether the member exists.
    """
    known = descriptions(kind)
    if name in known:
        return known[name]
    library, slash, _ = name.partition("/")
    if slash and library in known and known[library].info.get("library", False):
        return dataclasses.replace(known[library], id=name)
    raise missing([kind], kind, name, known, where)


def taken(kind: str, name: str) -> str:
    """Describe the component with this name, ``loss of calgrid/losses/ce.py``, or ''. Methods share
    their names.
    """
    found = [each for (_, id), each in _files(kind).descriptions.items() if id == name]
    return _described(found[0]) if found else ""


def broken(kind: str) -> list[str]:
    """Messages about invalid files of a kind."""
    messages = [message for (of, _), message in _files(kind).broken.items() if of == kind]
    return list(dict.fromkeys(messages))


def why_broken(kind: str, name: str) -> str:
    """Message about the invalid file of a component, or ''."""
    return _files(kind).broken.get((kind, name), "")


def missing(
    kinds: Iterable[str], what: str, name: str, known: Iterable[str], where: str = ""
) -> ConfigError:
    """Return the error for an unknown identifier, or for one whose file is broken."""
    for kind in kinds:
        if reason := why_broken(kind, name):
            return ConfigError(reason)
    place = f" in {where}" if where else ""
    if what == "calibrator":
        if name in FULL_NAMES:  # where an identifier is needed
            return ConfigError(
                f"Unknown {what} '{name}'{place}: did you mean '{FULL_NAMES[name]}'?"
            )
        known = [*known, *FULL_NAMES]
    for kind in KINDS:
        if kind not in kinds and name in descriptions(kind):
            return ConfigError(f"Unknown {what} '{name}'{place}: it is a {kind}; name a {what}.")
    return unknown_id(what, name, known, where, f"calgrid list {KINDS.get(what, f'{what}s')}")
