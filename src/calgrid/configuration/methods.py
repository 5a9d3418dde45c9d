"""Methods: from an identifier such as ``maccal+mixup+ls`` to a procedure, a loss and all their hyper-parameters.

An identifier is read from the left: a loss (``mbls``); a procedure with the loss that it trains (``mixup+ls``, plain
``mixup`` for cross-entropy); a second stage with the method that it starts from (``maccal+mixup+ls``, plain ``maccal``
over cross-entropy).
"""

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from calgrid import registry
from calgrid.backbones._catalogue import describe
from calgrid.configuration.datasets import DatasetBook, as_list
from calgrid.errors import ConfigError, unknown_id

SECOND_STAGE = "second_stage"
#: loss and first stage where none is named
PLAIN = "ce"
#: which losses a one-stage procedure can train (what it registers as ``losses``): the rule, and why
COMBINATIONS: Mapping[str, tuple[Callable[[Mapping[str, Any]], bool], str]] = {
    "any": (lambda info: True, ""),
    "affine": (lambda info: not info["hard_labels"], "mixes labels, and this loss needs hard ones"),
    "stateless": (
        lambda info: not info["needs"] and info["state"] == "none",
        "computes its loss twice a step, on logits alone, and this loss keeps state or needs more",
    ),
}


@dataclass(frozen=True)
class Method:
    """A training-time method with all hyper-parameters resolved for one dataset, backbone and protocol.

    ``first_stage`` is the id of the method whose checkpoint a second stage starts from, else None.
    """

    id: str
    procedure: str
    procedure_options: Mapping[str, Any]
    loss: str
    loss_options: Mapping[str, Any]
    first_stage: str | None = None


@dataclass(frozen=True)
class Place:
    """Where a method is run: what overrides can match, beside the method itself."""

    protocol: str
    dataset: str
    backbone: str
    #: of the protocol; a default that a variant or override can change
    reduction: str = "mean"
    #: data set whose defaults of hyper-parameters hold, where that is not ``dataset`` itself
    defaults_of: str | None = None

    def resolve(self, spec: registry.Spec, values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """Return all hyper-parameters of a component here; see :meth:`calgrid.registry.Spec.resolve`."""
        return spec.resolve(values, self.defaults_of or self.dataset, self.backbone, where)


@dataclass(frozen=True)
class MethodBook:
    """All methods that a configuration can name: registered ones and its own variants.

    Parameters
    ----------
    variants : name -> {"base": registered id, hyper-parameter: value, ...}.
    overrides : list of {"match": {...}, "set": {...}} as in the configuration.
    datasets : data sets that overrides can match.
    """

    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    overrides: tuple[Mapping[str, Any], ...] = ()
    datasets: DatasetBook = field(default_factory=lambda: DatasetBook({}))

    def __post_init__(self) -> None:
        for name, variant in self.variants.items():
            where = f"methods.{name}"
            if name in registered_methods():
                raise ConfigError(f"{where}: '{name}' is a registered method; give the variant another name.")
            base = variant["base"]
            if base not in registered_methods():
                raise unknown_id("method", base, registered_methods(), f"{where}.base")
            _options_spec(base).resolve(self._changes(name), where=where)
        for number, override in enumerate(self.overrides):
            self._check_override(override, f"overrides[{number}]")

    def names(self) -> list[str]:
        """Names that may stand alone or before and after a ``+``."""
        return sorted([*registered_methods(), *self.variants])

    def base(self, name: str, where: str = "") -> str:
        """Registered id behind a registered id or a variant's name."""
        if name in self.variants:
            return self.variants[name]["base"]
        if name not in registered_methods():
            raise unknown_id("method", name, self.names(), where)
        return name

    def split(self, method: str, where: str = "") -> tuple[str, str | None, str | None]:
        """Own name, loss, first stage: ``mixup+ls`` -> (mixup, ls, None), ``tst+mbls`` -> (tst, None, mbls).

        Raises
        ------
        ConfigError : a part is unknown, or the parts cannot be combined.
        """
        own, plus, rest = method.partition("+")
        at = f"'{method}' in {where}" if where else f"'{method}'"
        base = self.base(own, at if plus else where)
        if base in registry.specs("loss"):
            if plus:
                raise ConfigError(f"{at}: '{own}' is a loss, nothing can stand after its '+'.")
            return own, own, None
        if plus and rest == PLAIN:
            raise ConfigError(f"{at}: write '{own}', which is the same run over {PLAIN}.")
        if _is_second_stage(base):
            self._check_first_stage(rest if plus else PLAIN, at)
            return own, None, rest if plus else PLAIN
        self._check_loss(base, rest if plus else PLAIN, at)
        return own, rest if plus else PLAIN, None

    def _check_first_stage(self, first: str, at: str) -> None:
        own, _, first_first = self.split(first, at)
        if first_first is not None:
            raise ConfigError(f"{at}: '{first}' is itself a second stage; use a one-stage method there.")
        base = self.base(own)
        if base in registry.specs("procedure") and not registry.spec("procedure", base).info.get("linear_head", True):
            raise ConfigError(
                f"{at}: '{own}' trains more than a linear head on its features, which a second stage would throw "
                "away; use a method there that trains an ordinary network."
            )

    def _check_loss(self, procedure: str, loss: str, at: str) -> None:
        base = self.base(loss, at)
        losses = registry.specs("loss")
        if base not in losses:
            raise ConfigError(f"{at}: '{loss}' is no loss; after '{procedure}+' stands a loss.")
        rule = registry.spec("procedure", procedure).info.get("losses")
        if rule not in COMBINATIONS:
            raise ConfigError(
                f"calgrid/procedures/{procedure}.py: the fact 'losses' of @register must be one of "
                f"{', '.join(COMBINATIONS)}, got {rule!r}."
            )
        allows, why = COMBINATIONS[rule]
        if not allows(losses[base].info):
            possible = ", ".join(id for id, spec in losses.items() if allows(spec.info))
            raise ConfigError(f"{at}: '{procedure}' {why}; it can train: {possible}.")

    def resolve(self, method: str, place: Place) -> Method:
        """Resolve all hyper-parameters: file defaults < those of the data set < protocol < variant < overrides.

        An override that names a method changes that method's own options: those of ``mixup`` in ``mixup+ls``, whose
        loss is changed by a variant (``mixup+ls_strong``) or by an override that names no method.
        """
        own, loss, first = self.split(method, "the grid")
        base = self.base(own)
        if base in registry.specs("loss"):
            options = self._loss_options(method, own, base, place)
            return Method(method, "standard", {}, base, options)
        values = self._options(method, own, base, place)
        if loss is None:  # a second stage
            loss = registry.spec("procedure", base).info.get("loss", PLAIN)
            options = place.resolve(registry.spec("loss", loss), {"reduction": place.reduction})
            return Method(method, base, values, loss, options, first)
        return Method(method, base, values, self.base(loss), self._loss_options(None, loss, self.base(loss), place))

    def _loss_options(self, method: str | None, name: str, base: str, place: Place) -> dict[str, Any]:
        return self._options(method, name, base, place, {"reduction": place.reduction})

    def _options(
        self, method: str | None, name: str, base: str, place: Place, chosen: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Options of the component behind ``name``; ``method`` is what overrides match, None for a procedure's loss."""
        values = {**(chosen or {}), **self._changes(name)}
        known = _options_spec(base).options
        for override in self.overrides:
            match = override["match"]
            if _matches(match, method, place):
                # an override without a method is for all methods that have such a hyper-parameter
                named = "method" in match
                values.update({k: v for k, v in override["set"].items() if named or k in known})
        return place.resolve(_options_spec(base), values, f"method '{method or name}'")

    def idle_overrides(self, runs: Mapping[str, Collection[Place]]) -> list[int]:
        """Numbers of the overrides that match none of the runs, given as method -> places where it is run."""
        pairs = [(method, place) for method, places in runs.items() for place in places]
        matches = [override["match"] for override in self.overrides]
        return [number for number, match in enumerate(matches) if not any(_matches(match, *pair) for pair in pairs)]

    def _check_override(self, override: Mapping[str, Any], where: str) -> None:
        match = override["match"]
        methods = as_list(match.get("method", []))
        for method in methods:
            own, _, _ = self.split(method, f"{where}.match")
            place = f"{where}.set for method '{method}'"
            _options_spec(self.base(own)).resolve({**self._changes(own), **override["set"]}, where=place)
        for name in as_list(match.get("dataset", [])):
            self.datasets.spec(name, f"{where}.match")
        for name in as_list(match.get("backbone", [])):
            describe(name, f"{where}.match")
        for name in () if methods else override["set"]:
            _check_for_any_method(name, override["set"], f"{where}.set")

    def _changes(self, name: str) -> dict[str, Any]:
        """Options in which a variant differs from its base; none for a registered method."""
        return {key: value for key, value in self.variants.get(name, {}).items() if key != "base"}


def registered_methods() -> list[str]:
    """Identifiers of all methods: losses, and procedures other than plain training."""
    return sorted({*registry.specs("loss"), *registry.specs("procedure")} - {"standard"})


def _check_for_any_method(name: str, values: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError unless some method has a hyper-parameter ``name`` and takes what ``values`` give it."""
    specs = [_options_spec(method) for method in registered_methods()]
    owners = [spec for spec in specs if name in spec.options]
    if not owners:
        raise unknown_id("hyper-parameter", name, {each for spec in specs for each in spec.options}, where)
    for spec in owners:
        with contextlib.suppress(ConfigError):
            spec.resolve({key: value for key, value in values.items() if key in spec.options})
            return
    owners[0].resolve({name: values[name]}, where=where)


def _options_spec(base: str) -> registry.Spec:
    return registry.spec("procedure" if base in registry.specs("procedure") else "loss", base)


def _is_second_stage(base: str) -> bool:
    procedures = registry.specs("procedure")
    return base in procedures and bool(procedures[base].info.get(SECOND_STAGE, False))


def _matches(match: Mapping[str, Any], method: str | None, place: Place) -> bool:
    actual = {"method": method, "dataset": place.dataset, "backbone": place.backbone, "protocol": place.protocol}
    return all(actual[key] in as_list(wanted) for key, wanted in match.items())
