"""Components that a configuration can name: registered methods, calibrators and probes, and its own variants of them.

Here an identifier such as ``maccal+mixup+ls`` becomes a procedure, a loss and all their hyper-parameters. It is read
from the left: a loss (``mbls``); a procedure with the loss that it trains (``mixup+ls``, plain ``mixup`` for
cross-entropy); a second stage with the method that it starts from (``maccal+mixup+ls``, plain ``maccal`` over
cross-entropy).
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from calgrid import plugins, registry
from calgrid.backbones._catalogue import describe
from calgrid.component_files import METHODS
from calgrid.configuration.config import Override
from calgrid.configuration.datasets import DatasetCatalog, as_list
from calgrid.errors import ConfigError, unknown_id
from calgrid.specs import Calibrator, NamedComponent

#: loss and first stage where none is named
PLAIN = "ce"
#: procedure of a method that is a loss alone
STANDARD = "standard"
#: which losses a one-stage procedure can train (what it registers as ``losses``): the rule, and why
COMBINATIONS: Mapping[str, tuple[Callable[[Mapping[str, Any]], bool], str]] = {
    "any": (lambda info: True, ""),
    "affine": (lambda info: not info["hard_labels"], "mixes labels, and this loss needs hard ones"),
    "stateless": (
        lambda info: not info["needs"] and info["state"] == "none",
        "computes its loss twice a step, on logits alone, and this loss keeps state or needs more",
    ),
}
NONE: Mapping[str, Any] = MappingProxyType({})


class ComponentCatalog:
    """All components of one kind that a configuration can name.

    Raises ConfigError: a variant has the name of a registered component, or an unknown base or option.

    Parameters
    ----------
    variants : name -> {"base": registered id, option: value, ...}.
    """

    #: kind in messages and, in the plural, key of the configuration; registered kinds that it holds
    kind: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]

    def __init__(self, variants: Mapping[str, Mapping[str, Any]] = NONE) -> None:
        self.variants = variants
        self.registered = self._registered()
        for name, variant in variants.items():
            where = f"{self.kind}s.{name}"
            if name in self.registered:
                raise ConfigError(f"{where}: '{name}' is a registered {self.kind}; choose another name.")
            if variant["base"] not in self.registered:
                raise registry.missing(self.kinds, self.kind, variant["base"], self.registered, f"{where}.base")
            self.base(name).resolve(self.changes(name), where=where)

    def _registered(self) -> Mapping[str, registry.ComponentSpec]:
        return registry.specs(self.kind)

    def base(self, name: str, where: str = "") -> registry.ComponentSpec:
        """Registered component behind a registered id or a variant's name."""
        if name not in self.registered and name not in self.variants:
            raise registry.missing(self.kinds, self.kind, name, [*self.registered, *self.variants], where)
        found = self.registered[self.variants[name]["base"] if name in self.variants else name]
        return registry.spec(found.kind, found.id)

    def changes(self, name: str) -> dict[str, Any]:
        """Options in which a variant differs from its base; none for a registered component."""
        return {key: value for key, value in self.variants.get(name, NONE).items() if key != "base"}


class ProbeCatalog(ComponentCatalog):
    """All probes that a configuration can name."""

    kind, kinds = "probe", ("probe",)

    def resolve(self, name: str, where: str) -> NamedComponent:
        """Return a probe with all options filled in."""
        base = self.base(name, where)
        return {"name": name, "id": base.id, "options": base.resolve(self.changes(name), where=where)}


class CalibratorCatalog(ComponentCatalog):
    """All calibrators that a configuration can name."""

    kind, kinds = "calibrator", ("calibrator",)

    def __init__(self, variants: Mapping[str, Mapping[str, Any]] = NONE) -> None:
        super().__init__(variants)
        for name in variants:
            self.resolve(name, f"calibrators.{name}")

    def resolve(self, name: str, where: str) -> Calibrator:
        """Return a calibrator with all options filled in but its seed, which the grid gives."""
        base, changes = self.base(name, where), self.changes(name)
        if "seed" in changes:
            raise ConfigError(f"{where}: seeds of a calibrator are given by calibrator_seeds, not by 'seed'.")
        options = base.resolve(changes, where=where)
        options.pop("seed", None)
        return {
            "name": name,
            "id": base.id,
            "options": options,
            "stochastic": bool(base.info.get("stochastic", False)),
            "needs": list(base.info.get("needs", ("logits",))),
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

    @property
    def linear_head(self) -> bool:
        """Does the network end in a linear layer on its features?"""
        return has_linear_head(registry.spec("procedure", self.procedure))


@dataclass(frozen=True)
class RunContext:
    """Where a method is run: what overrides can match, beside the method itself."""

    protocol: str
    dataset: str
    backbone: str
    #: of the protocol; a default that a variant or override can change
    reduction: str = "mean"
    #: data set whose defaults of hyper-parameters hold, where that is not ``dataset`` itself
    defaults_of: str | None = None

    def resolve(self, component: registry.ComponentSpec, values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """Return all hyper-parameters of a component here; see :meth:`calgrid.registry.ComponentSpec.resolve`."""
        return component.resolve(values, self.defaults_of or self.dataset, self.backbone, where)

    def matches(self, wanted: Mapping[str, Any], method: str | None) -> bool:
        """Does the ``match`` of an override hold here for a method (None: for a component that none names)?"""
        actual = {"method": method, "dataset": self.dataset, "backbone": self.backbone, "protocol": self.protocol}
        return all(actual[key] in as_list(value) for key, value in wanted.items())


class MethodCatalog(ComponentCatalog):
    """All methods that a configuration can name: losses, procedures, second stages, and its variants of them.

    Parameters
    ----------
    variants : name -> {"base": registered id, hyper-parameter: value, ...}.
    overrides : list of {"match": {...}, "set": {...}} as in the configuration.
    datasets : data sets that overrides can match.
    """

    kind, kinds = "method", METHODS

    def __init__(
        self,
        variants: Mapping[str, Mapping[str, Any]] = NONE,
        overrides: Iterable[Override] = (),
        datasets: DatasetCatalog | None = None,
    ) -> None:
        super().__init__(variants)
        self.overrides = tuple(overrides)
        self.datasets = datasets or DatasetCatalog({})
        for number, override in enumerate(self.overrides):
            self._check_override(override, f"overrides[{number}]")

    def _registered(self) -> Mapping[str, registry.ComponentSpec]:
        return registered_methods()

    def split(self, method: str, where: str = "") -> tuple[str, str | None, str | None]:
        """Own name, loss, first stage: ``mixup+ls`` -> (mixup, ls, None), ``tst+mbls`` -> (tst, None, mbls).

        Raises ConfigError: a part is unknown, or the parts cannot be combined.
        """
        own, plus, rest = method.partition("+")
        at = f"'{method}' in {where}" if where else f"'{method}'"
        base = self.base(own, at if plus else where)
        if base.kind == "loss":
            if plus:
                raise ConfigError(f"{at}: '{own}' is a loss, nothing can stand after its '+'.")
            return own, own, None
        if plus and rest == PLAIN:
            raise ConfigError(f"{at}: write '{own}', which is the same run over {PLAIN}.")
        if base.info.get("second_stage", False):
            self._check_first_stage(rest if plus else PLAIN, at)
            return own, None, rest if plus else PLAIN
        self._check_loss(base, rest if plus else PLAIN, at)
        return own, rest if plus else PLAIN, None

    def _check_first_stage(self, first: str, at: str) -> None:
        own, _, first_first = self.split(first, at)
        if first_first is not None:
            raise ConfigError(f"{at}: '{first}' is itself a second stage; use a one-stage method there.")
        if not has_linear_head(self.base(own)):
            raise ConfigError(
                f"{at}: '{own}' trains more than a linear head on its features, which a second stage would throw "
                "away; use a method there that trains an ordinary network."
            )

    def _check_loss(self, procedure: registry.ComponentSpec, loss: str, at: str) -> None:
        base = self.base(loss, at)
        if base.kind != "loss":
            raise ConfigError(f"{at}: '{loss}' is no loss; after '{procedure.id}+' stands a loss.")
        rule = str(procedure.info.get("losses"))
        if rule not in COMBINATIONS:
            raise ConfigError(
                f"{plugins.shown(procedure.module)}: the fact 'losses' of @register must be one of "
                f"{', '.join(COMBINATIONS)}, got {procedure.info.get('losses')!r}."
            )
        allows, why = COMBINATIONS[rule]
        if not allows(base.info):
            possible = ", ".join(id for id, each in registry.specs("loss").items() if allows(each.info))
            raise ConfigError(f"{at}: '{procedure.id}' {why}; it can train: {possible}.")

    def resolve(self, method: str, context: RunContext) -> Method:
        """Resolve all hyper-parameters: file defaults < those of the data set < protocol < variant < overrides.

        An override that names a method changes that method's own options: those of ``mixup`` in ``mixup+ls``, whose
        loss is changed by a variant (``mixup+ls_strong``) or by an override that names no method.
        """
        own, loss, first = self.split(method, "the grid")
        base = self.base(own)
        if base.kind == "loss":
            return Method(method, STANDARD, {}, base.id, self._options(method, own, context))
        values = self._options(method, own, context)
        if loss is None:  # a second stage has a loss of its own, which nothing changes
            stage_loss = registry.spec("loss", base.info.get("loss", PLAIN))
            options = context.resolve(stage_loss, {"reduction": context.reduction})
            return Method(method, base.id, values, stage_loss.id, options, first)
        return Method(method, base.id, values, self.base(loss).id, self._options(None, loss, context))

    def _options(self, method: str | None, name: str, context: RunContext) -> dict[str, Any]:
        """Options of the component behind ``name``; ``method`` is what overrides match, None for a procedure's loss."""
        base = self.base(name)
        values: dict[str, Any] = {"reduction": context.reduction} if base.kind == "loss" else {}
        values.update(self.changes(name))
        for override in self.overrides:
            if context.matches(override["match"], method):
                # an override without a method is for all methods that have such a hyper-parameter
                named = "method" in override["match"]
                values.update({k: v for k, v in override["set"].items() if named or k in base.options})
        return context.resolve(base, values, f"method '{method or name}'")

    def idle_overrides(self, runs: Collection[tuple[str, RunContext]]) -> list[int]:
        """Numbers of the overrides that match none of the runs, given as pairs of method and context."""
        wanted = [override["match"] for override in self.overrides]
        return [n for n, match in enumerate(wanted) if not any(at.matches(match, method) for method, at in runs)]

    def _check_override(self, override: Override, where: str) -> None:
        match = override["match"]
        methods = as_list(match.get("method", []))
        for method in methods:
            own, _, _ = self.split(method, f"{where}.match")
            at = f"{where}.set for method '{method}'"
            self.base(own).resolve({**self.changes(own), **override["set"]}, where=at)
        for name in as_list(match.get("dataset", [])):
            self.datasets.spec(name, f"{where}.match")
        for name in as_list(match.get("backbone", [])):
            describe(name, f"{where}.match")
        for name in () if methods else override["set"]:
            self._check_for_any_method(name, override["set"], f"{where}.set")

    def _check_for_any_method(self, name: str, values: Mapping[str, Any], where: str) -> None:
        """Raise ConfigError unless some method has a hyper-parameter ``name`` and takes what ``values`` give it."""
        known = self.registered.values()
        owners = [each for each in known if name in each.options]
        if not owners:
            raise unknown_id("hyper-parameter", name, {option for each in known for option in each.options}, where)
        for owner in owners:
            with contextlib.suppress(ConfigError):
                owner.resolve({key: value for key, value in values.items() if key in owner.options})
                return
        owners[0].resolve({name: values[name]}, where=where)


def registered_methods() -> Mapping[str, registry.ComponentSpec]:
    """Losses, and procedures other than plain training, in alphabetical order."""
    found = {**registry.specs("loss"), **registry.specs("procedure")}
    return {id: found[id] for id in sorted(found) if id != STANDARD}


def has_linear_head(component: registry.ComponentSpec) -> bool:
    """Does a loss or procedure train a network that ends in a linear layer on its features?"""
    return bool(component.info.get("linear_head", True))
