"""Methods, calibrators and probes of a configuration, registered or defined as variants, and the
runs and evaluations of a study.

The identifier of a method is a loss (``mbls``), a procedure with a loss (``mixup+ls``; ``mixup``
means cross-entropy) or a second stage with a first-stage method (``maccal+mixup+ls``; ``maccal``
means cross-entropy).

An ensemble pools runs of several seeds: ``ens3(ce)`` averages the probabilities of three,
``ens3(ce,logit)`` their logits, and ``ens3(ce,ts)`` probabilities that ``ts`` has calibrated for
each member.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from calgrid.backbones.catalogue import describe
from calgrid.components import plugins, registry
from calgrid.components.options import Options
from calgrid.errors import ConfigError, refuse, unknown_id
from calgrid.storage.records import EXTERNAL_CHECKPOINT, RunKey
from calgrid.storage.specs import Calibrator, CheckpointFile, NamedComponent, Pool
from calgrid.study.datasets import DatasetCatalog
from calgrid.study.model import Match, Override
from calgrid.training.protocol import Protocol, TrainingProtocol

#: default loss and first stage
PLAIN = "ce"
#: procedure of a method that is only a loss
STANDARD = "standard"
#: fact ``losses`` of a one-stage procedure -> test of a loss, and reason for a refusal
COMBINATIONS: Mapping[str, tuple[Callable[[Options], bool], str]] = {
    "any": (lambda info: True, ""),
    "affine": (lambda info: not info["hard_labels"], "mixes labels, and this loss needs hard ones"),
    "stateless": (
        lambda info: not info["needs"] and info["state"] == "none",
        "computes its loss twice a step, from logits only, and this loss has state or needs "
        "other inputs",
    ),
}
#: name after the comma that averages logits
LOGIT = "logit"
#: form of an identifier, with five members -> what is averaged
ENSEMBLES = {
    "ens5(METHOD)": "probabilities of five seeds",
    f"ens5(METHOD,{LOGIT})": "logits of five seeds",
    "ens5(METHOD,CALIBRATOR)": "probabilities of five seeds that a calibrator gives for each",
}
_ENSEMBLE = re.compile(r"ens([0-9]+)\(([^(),]+)(?:,([a-z][a-z0-9_]*))?\)")


class ComponentCatalog:
    """Registered components of one kind, and their variants: name -> {"base": registered id,
    option: value, ...}.

    Raises
    ------
    ConfigError : a variant has the name of a registered component, or an unknown base or option.
    """

    def __init__(self, kind: str, variants: Mapping[str, Options]) -> None:
        self.kind, self.variants = kind, variants
        self.kinds = registry.METHODS if kind == "method" else (kind,)  # in the registry
        self.registered = registered_methods() if kind == "method" else registry.descriptions(kind)
        for name, variant in variants.items():
            where = f"{kind}s.{name}"
            if name in self.registered:
                raise ConfigError(f"{where}: '{name}' is a registered {kind}; choose another name.")
            base, plus, rest = variant["base"].partition("+")
            if plus and kind == "method" and base in self.registered:
                raise ConfigError(
                    f"{where}.base: '{base}+{rest}' has two parts; make a variant of '{base}' and "
                    f"write '{name}+{rest}' in the grid, or one of '{rest}' and write "
                    f"'{base}+{name}'."
                )
            if variant["base"] not in self.registered:
                raise registry.missing(
                    self.kinds, kind, variant["base"], self.registered, f"{where}.base"
                )
            self.base(name).resolve(self.changes(name), where=where)

    def base(self, name: str, where: str = "") -> registry.Description:
        """Registered component of a registered id or of a variant."""
        if name not in self.registered and name not in self.variants:
            raise registry.missing(
                self.kinds, self.kind, name, [*self.registered, *self.variants], where
            )
        return self.registered[self.variants.get(name, {}).get("base", name)]

    def changes(self, name: str) -> Options:
        """Options that a variant changes; empty for a registered component."""
        variant = self.variants.get(name, {})
        return {option: value for option, value in variant.items() if option != "base"}

    def named(self, name: str, where: str) -> NamedComponent:
        """Return a component with all options."""
        base = self.base(name, where)
        return {
            "name": name,
            "id": base.id,
            "options": base.resolve(self.changes(name), where=where),
        }


class CalibratorCatalog(ComponentCatalog):
    """Calibrators and their variants."""

    def __init__(self, variants: Mapping[str, Options]) -> None:
        full = {
            name: {**variant, "base": registry.calibrator_with(variant["base"], variant)}
            for name, variant in variants.items()
        }
        super().__init__("calibrator", full)
        for name in variants:
            if "seed" in self.changes(name):
                raise ConfigError(
                    f"calibrators.{name}: set seeds of calibrators with calibrator_seeds, not with "
                    "'seed'."
                )

    def resolve(self, name: str, where: str) -> Calibrator:
        """Return a calibrator with all options except its seed."""
        base, component = self.base(name, where), self.named(name, where)
        options = {key: value for key, value in component["options"].items() if key != "seed"}
        facts = {"stochastic": base.is_stochastic, "needs": list(base.info["needs"])}
        return cast(Calibrator, {**component, "options": options, **facts})


class MethodParts(NamedTuple):
    """Parts of the identifier of a method, each a registered id or the name of a variant.

    ``mixup+ls`` is component ``mixup`` with loss ``ls``; ``tst+mbls`` is component ``tst``, whose
    loss is fixed, with first stage ``mbls``.
    """

    component: str
    loss: str | None = None
    first_stage: str | None = None


@dataclass(frozen=True)
class Method:
    """A training-time method with all hyper-parameters for one data set, backbone and protocol."""

    id: str
    procedure: str
    procedure_options: Options
    loss: str
    loss_options: Options
    #: method whose checkpoint a second stage starts from
    first_stage: str | None = None

    @property
    def sees_validation(self) -> bool:
        """Whether its loss or procedure uses validation data in training."""
        loss = registry.describe("loss", self.loss)
        procedure = registry.describe("procedure", self.procedure)
        return bool(loss.info["sees_validation"] or procedure.info["sees_validation"])


class MethodCatalog(ComponentCatalog):
    """Losses, procedures, second stages, and their variants; overrides match ``datasets``, whose
    default hyper-parameters apply.
    """

    def __init__(
        self,
        variants: Mapping[str, Options],
        overrides: Iterable[Override],
        datasets: DatasetCatalog,
    ) -> None:
        super().__init__("method", variants)
        self.overrides, self.datasets = tuple(overrides), datasets
        for number, override in enumerate(self.overrides):
            where = f"overrides[{number}]"
            match = override.match
            for method in match.method:
                component = self.split(method, f"{where}.match").component
                at = f"{where}.set for method '{method}'"
                self.base(component).resolve({**self.changes(component), **override.set}, where=at)
            for name in match.dataset:
                self.datasets.describe(name, f"{where}.match")
            for name in match.backbone:
                describe(name, f"{where}.match")
            if not match.method:
                for name in override.set:
                    self._check_for_any_method(name, override.set, f"{where}.set")

    def split(self, method: str, where: str = "") -> MethodParts:
        """Split an identifier.

        Raises
        ------
        ConfigError : a part is unknown, or the parts cannot be combined.
        """
        component, plus, rest = method.partition("+")
        at = f"'{method}' in {where}" if where else f"'{method}'"
        base = self.base(component, at if plus else where)
        if base.kind == "loss":
            if plus:
                raise ConfigError(
                    f"{at}: '{component}' is a loss and cannot be combined; remove '+{rest}'."
                )
            return MethodParts(component, loss=component)
        if plus and rest == PLAIN:
            raise ConfigError(f"{at}: write '{component}', which is the same method.")
        inner = rest if plus else PLAIN
        if base.info["second_stage"]:
            parts = self.split(inner, at)
            refuse(
                (
                    parts.first_stage is not None,
                    f"{at}: '{inner}' is itself a second stage; use a one-stage method instead.",
                ),
                (
                    not self.base(parts.component).info.get("linear_head", True),
                    f"{at}: '{parts.component}' does not end in a linear layer, which a second "
                    "stage needs; use another first stage.",
                ),
            )
            return MethodParts(component, first_stage=inner)
        trained = self.base(inner, at)
        rule: Any = base.info.get("losses")
        refuse(
            (
                trained.kind != "loss",
                f"{at}: '{inner}' is not a loss; put a loss after '{base.id}+'.",
            ),
            (
                rule not in COMBINATIONS,
                f"{plugins.shown(base.module)}: the fact 'losses' of @register must be one of "
                f"{', '.join(COMBINATIONS)}, got {rule!r}.",
            ),
        )
        allows, why = COMBINATIONS[rule]
        if not allows(trained.info):
            losses = [id for id, each in registry.descriptions("loss").items() if allows(each.info)]
            raise ConfigError(f"{at}: '{base.id}' {why}; it can train: {', '.join(losses)}.")
        return MethodParts(component, loss=inner)

    def resolve(self, key: RunKey, protocol: Protocol | None = None) -> Method:
        """Resolve all hyper-parameters of the method of a run by the protocol of its stage, which
        has the default ``reduction`` of losses. Precedence: overrides, variant, protocol, data set,
        defaults of the component.

        An override that names a method ``mixup+ls`` changes options of ``mixup``. Options of its
        loss are changed by a variant of the loss (``mixup+ls_strong``) or by an override without a
        method.
        """
        reduction = protocol.reduction if isinstance(protocol, TrainingProtocol) else "mean"
        component, loss, first_stage = self.split(key.method, "the grid")
        base, options = self.base(component), self._options(component, key, reduction)
        if base.kind == "loss":
            return Method(key.method, STANDARD, {}, base.id, options)
        if loss is None:  # the loss of a second stage is fixed
            fixed = registry.describe("loss", base.info.get("loss", PLAIN))
            dataset = self.datasets.defaults_of(key.dataset)
            loss_options = fixed.resolve({"reduction": reduction}, dataset, key.backbone)
            return Method(key.method, base.id, options, fixed.id, loss_options, first_stage)
        # overrides that name a method do not apply to the loss of a procedure
        loss_options = self._options(loss, key._replace(method=""), reduction)
        return Method(key.method, base.id, options, self.base(loss).id, loss_options)

    def _options(self, name: str, key: RunKey, reduction: str) -> Options:
        """Options of component ``name`` in a run."""
        base = self.base(name)
        values = dict(self.changes(name))
        if base.kind == "loss":
            values.setdefault("reduction", reduction)
        for override in self.overrides:
            if applies(override.match, key):
                # an override without a method applies to all components that have the
                # hyper-parameter
                for option, value in override.set.items():
                    if override.match.method or option in base.options:
                        values[option] = value
        dataset = self.datasets.defaults_of(key.dataset)
        return base.resolve(values, dataset, key.backbone, f"method '{key.method or name}'")

    def _check_for_any_method(self, name: str, values: Options, where: str) -> None:
        """Raise ConfigError unless some method has a hyper-parameter ``name`` and accepts its
        value.
        """
        components = [each for each in self.registered.values() if name in each.options]
        if not components:
            known = {option for each in self.registered.values() for option in each.options}
            raise unknown_id("hyper-parameter", name, known, where)
        for each in components:
            with contextlib.suppress(ConfigError):
                each.resolve({key: value for key, value in values.items() if key in each.options})
                return
        components[0].resolve({name: values[name]}, where=where)


def applies(match: Match, key: RunKey) -> bool:
    """Whether an override applies to a run."""
    return all(getattr(key, part) in names for part, names in match if names)


def registered_methods() -> Mapping[str, registry.Description]:
    """Losses and procedures except standard training, in alphabetical order."""
    components = {**registry.descriptions("loss"), **registry.descriptions("procedure")}
    return {id: components[id] for id in sorted(components) if id != STANDARD}


# runs
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A network, or several, with logits of val and test.

    Attributes
    ----------
    checkpoints : tested checkpoints, such as ``best`` and ``last``.
    disjoint_validation : whether calibrators are fitted on a part of the validation rows.
    sees_validation : whether validation data were used in training, or in that of a first stage.
    draws_validation : whether the validation images are drawn by the seed.
    """

    key: RunKey
    checkpoints: tuple[str, ...] = (EXTERNAL_CHECKPOINT,)
    disjoint_validation: bool = False
    sees_validation: bool = False
    draws_validation: bool = False


@dataclass(frozen=True, kw_only=True)
class Run(Predicted):
    """A run with all options resolved; ``protocol`` is the protocol of its own stage, and
    ``checkpoint`` is a file of weights in the place of a training.
    """

    protocol: Protocol
    method: Method
    first_stage: RunKey | None
    checkpoint: CheckpointFile | None

    @property
    def gpus(self) -> int:
        """GPUs that share each training batch."""
        return self.protocol.gpus if isinstance(self.protocol, TrainingProtocol) else 1


@dataclass(frozen=True, kw_only=True)
class ExternalRun(Predicted):
    """External logits, in the place of a run; ``external`` as in
    :class:`calgrid.storage.specs.ExternalSpec`, with files below ``root``.
    """

    root: Path
    external: Options


@dataclass(frozen=True, kw_only=True)
class Ensemble(Predicted):
    """An ensemble of trained or external runs, in the place of a run.

    ``pool`` names the averaged quantity; if it is ``calibrated``, ``calibrator`` is applied first.
    Members that draw their validation images form no ensemble.
    """

    members: tuple[RunKey, ...]
    pool: Pool
    calibrator: Calibrator | None


@dataclass(frozen=True)
class Evaluation:
    """Calibrators and probes by name, seeds of stochastic calibrators, shift families and
    ``fit_on`` of one run.
    """

    calibrators: Mapping[str, Calibrator] = field(default_factory=dict)
    calibrator_seeds: Sequence[int] = ()
    families: Sequence[str] = ()
    fit_on: Sequence[str] = ()
    probes: Mapping[str, NamedComponent] = field(default_factory=dict)


class EnsembleName(NamedTuple):
    """Parts of the identifier of an ensemble; ``then`` is ``logit``, a calibrator or None."""

    size: int
    method: str
    then: str | None

    @property
    def pool(self) -> Pool:
        """The averaged quantity."""
        if self.then is None:
            return "probability"
        return "logit" if self.then == LOGIT else "calibrated"


def ensemble_name(method: str, where: str = "methods") -> EnsembleName | None:
    """Parts of the identifier of an ensemble; None for another method.

    Raises
    ------
    ConfigError : it begins like one but is none.
    """
    if "(" not in method:
        return None
    found = _ENSEMBLE.fullmatch(method)
    if found is None or int(found[1]) < 1:
        raise ConfigError(
            f"{where}: '{method}' is no method; an ensemble is written ens3(METHOD), "
            "ens3(METHOD,logit) or ens3(METHOD,CALIBRATOR)."
        )
    return EnsembleName(int(found[1]), found[2], found[3])


def groups(
    runs: Iterable[RunKey], method: str, name: EnsembleName, where: str
) -> Iterator[tuple[RunKey, Sequence[RunKey]]]:
    """Keys of the ensembles of a method, with their members.

    The sorted seeds of a protocol, data set and backbone are cut into disjoint groups; the seed of
    an ensemble is the number of its group, from 1.

    Raises
    ------
    ConfigError : nowhere are as many seeds as members.
    """
    alike: dict[RunKey, list[RunKey]] = {}
    for key in runs:
        if key.method == name.method:
            alike.setdefault(key._replace(method=method, seed=0), []).append(key)
    most = max(map(len, alike.values()), default=0)
    if name.size > most:
        raise ConfigError(
            f"{where}.methods: '{method}' needs {name.size} seeds of '{name.method}', and there "
            f"are at most {most}; add seeds or take fewer members."
        )
    for key, members in alike.items():
        members.sort(key=lambda member: member.seed)
        for number in range(len(members) // name.size):
            chosen = members[number * name.size : (number + 1) * name.size]
            yield key._replace(seed=number + 1), chosen
