"""Methods: from an identifier such as ``tst+mbls`` to a procedure, a loss and all their hyper-parameters."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calgrid import registry
from calgrid.errors import ConfigError, unknown_id

SECOND_STAGE = "second_stage"


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


@dataclass(frozen=True)
class MethodBook:
    """All methods that a configuration can name: registered ones and its own variants.

    Parameters
    ----------
    variants : name -> {"base": registered id, hyper-parameter: value, ...}.
    overrides : list of {"match": {...}, "set": {...}} as in the configuration.
    """

    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    overrides: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        for name, variant in self.variants.items():
            where = f"methods.{name}"
            if name in registered_methods():
                raise ConfigError(f"{where}: '{name}' is a registered method; give the variant another name.")
            base = variant["base"]
            if base not in registered_methods():
                raise unknown_id("method", base, registered_methods(), f"{where}.base")
            _options_spec(base).resolve({k: v for k, v in variant.items() if k != "base"}, where=where)
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

    def split(self, method: str, where: str = "") -> tuple[str, str | None]:
        """Own name and first stage: ``tst+mbls`` -> (tst, mbls), ``tst`` -> (tst, ce), ``mbls`` -> (mbls, None)."""
        own, plus, first = method.partition("+")
        second_stage = _is_second_stage(self.base(own, where))
        if not second_stage:
            if plus:
                raise ConfigError(
                    f"'{method}' in {where}: '{own}' is no second stage, nothing can stand after its '+'."
                )
            return own, None
        first = first if plus else "ce"
        if first not in self.names():
            raise unknown_id("first stage", first, self.names(), f"'{method}' in {where}" if where else f"'{method}'")
        if _is_second_stage(self.base(first)):
            raise ConfigError(
                f"'{method}' in {where}: '{first}' is itself a second stage; use a one-stage method there."
            )
        if plus and first == "ce":
            raise ConfigError(f"'{method}' in {where}: write '{own}', which is the same run over ce.")
        return own, first

    def resolve(self, method: str, place: Place) -> Method:
        """Resolve all hyper-parameters: file defaults < those of the data set < protocol < variant < overrides."""
        own, first = self.split(method, "the grid")
        base = self.base(own)
        chosen = {k: v for k, v in self.variants.get(own, {}).items() if k != "base"}
        known = _options_spec(base).options
        for override in self.overrides:
            if _matches(override["match"], method, place):
                values = override["set"]
                # an override without a method is for all methods that have such a hyper-parameter
                named = "method" in override["match"]
                chosen.update({k: v for k, v in values.items() if named or k in known})
        reduction = {"reduction": place.reduction}
        if base in registry.specs("procedure"):
            values = _options_spec(base).resolve(chosen, place.dataset, place.backbone, f"method '{method}'")
            loss = registry.spec("procedure", base).info.get("loss", "ce")
            loss_options = registry.spec("loss", loss).resolve(reduction, place.dataset, place.backbone)
            return Method(method, base, values, loss, loss_options, first)
        chosen = {**reduction, **chosen}
        values = _options_spec(base).resolve(chosen, place.dataset, place.backbone, f"method '{method}'")
        return Method(method, "standard", {}, base, values, first)

    def _check_override(self, override: Mapping[str, Any], where: str) -> None:
        match = override["match"]
        methods = as_list(match.get("method", []))
        for method in methods:
            own, _ = self.split(method, f"{where}.match")
            _options_spec(self.base(own)).resolve(override["set"], where=f"{where}.set for method '{method}'")
        for kind in ("dataset", "backbone"):
            for name in as_list(match.get(kind, [])):
                check_component(kind, name, f"{where}.match")
        for name, value in {} if methods else override["set"].items():
            _check_for_any_method(name, value, f"{where}.set")


def registered_methods() -> list[str]:
    """Identifiers of all methods: losses, and procedures other than plain training."""
    return sorted({*registry.specs("loss"), *registry.specs("procedure")} - {"standard"})


def _check_for_any_method(name: str, value: Any, where: str) -> None:
    """Raise ConfigError unless some method has a hyper-parameter ``name`` that takes ``value``."""
    specs = [_options_spec(method) for method in registered_methods()]
    options = [spec.options[name] for spec in specs if name in spec.options]
    if not options:
        raise unknown_id("hyper-parameter", name, {each for spec in specs for each in spec.options}, where)
    for option in options:
        with contextlib.suppress(ConfigError):
            option.check(value, where)
            return
    options[0].check(value, f"{where}: {name}")


def _options_spec(base: str) -> registry.Spec:
    return registry.spec("procedure" if base in registry.specs("procedure") else "loss", base)


def _is_second_stage(base: str) -> bool:
    procedures = registry.specs("procedure")
    return base in procedures and bool(procedures[base].info.get(SECOND_STAGE, False))


def check_component(kind: str, name: str, where: str) -> None:
    """Raise ConfigError if ``name`` is no component of the kind."""
    registry.spec(kind, name, where)


def as_list(value: str | Iterable[str]) -> list[str]:
    """One value or several, as a list."""
    return [value] if isinstance(value, str) else list(value)


def _matches(match: Mapping[str, Any], method: str, place: Place) -> bool:
    actual = {"method": method, "dataset": place.dataset, "backbone": place.backbone, "protocol": place.protocol}
    return all(actual[key] in as_list(wanted) for key, wanted in match.items())
