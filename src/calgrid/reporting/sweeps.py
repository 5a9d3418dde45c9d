"""Sweeps: methods or calibrators of a study that differ in one numeric option."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from calgrid.configuration.components import PLAIN, CalibratorCatalog, MethodCatalog, RunContext
from calgrid.reporting.study import Group, StudyData
from calgrid.storage.schema import METRICS

#: values that an option must take for its course to be seen
FEWEST_VALUES = 3


class Key(NamedTuple):
    """Place of an option: of which component of a method or calibrator it is, and its name."""

    place: int
    component: str
    option: str

    def __str__(self) -> str:
        return f"{self.component} {self.option}"


@dataclass(frozen=True)
class Candidate:
    """A method or calibrator with its components and all options."""

    name: str
    components: tuple[str, ...]
    options: Mapping[Key, Any]

    @classmethod
    def of(cls, name: str, parts: Sequence[tuple[str, Mapping[str, Any]]]) -> "Candidate":
        """Make one from identifiers of components, each with its options."""
        options = {Key(place, id, key): value for place, (id, each) in enumerate(parts) for key, value in each.items()}
        return cls(name, tuple(id for id, _ in parts), options)


@dataclass(frozen=True)
class Sweep:
    """Members that agree in everything but one option.

    Attributes
    ----------
    option : what they differ in, with its component: ``mixup alpha``.
    label : of the sweep, unlike that of any other of the same option.
    members : value -> name, ascending.
    """

    option: str
    label: str
    members: Mapping[float, str]


def method_sweeps(data: StudyData, group: Group) -> list[Sweep]:
    """Sweeps of the trained methods of a group; the configuration's variants tell what they are."""
    configuration = data.manifest["configuration"]
    variants = configuration.get("methods", {})
    present = {run["key"]["method"] for run in data.runs(group) if not run["external"]}
    if not variants:
        return []
    catalog = MethodCatalog(variants, tuple(configuration.get("overrides", ())))
    place = RunContext(group.protocol, group.dataset, group.backbone)
    names = [name for name in data.methods if name in present]
    return _sweeps([Candidate.of(name, list(_parts(catalog, place, name))) for name in names])


def calibrator_sweeps(data: StudyData, group: Group) -> list[Sweep]:
    """Sweeps of the calibrators of a group that were fitted on val."""
    variants = data.manifest["configuration"].get("calibrators", {})
    if not variants:
        return []
    catalog = CalibratorCatalog(variants)
    names = data.distinct(METRICS, ["calibrator"], group, fit_on="val")["calibrator"]
    resolved = [catalog.resolve(name, "calibrators") for name in names]
    return _sweeps([Candidate.of(each["name"], [(each["id"], each["options"])]) for each in resolved])


def _parts(catalog: MethodCatalog, place: RunContext, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Components of a method and of its first stage; without plain training and its loss, where something remains."""
    method = catalog.resolve(name, place)
    plain = method.procedure == "standard"
    if not plain:
        yield method.procedure, method.procedure_options
    if plain or method.loss != PLAIN:
        yield method.loss, method.loss_options
    if method.first_stage not in (None, PLAIN):
        yield from _parts(catalog, place, method.first_stage)


def _sweeps(candidates: Sequence[Candidate]) -> list[Sweep]:
    """Sweeps by option, in the order in which the options appear."""
    sweeps = []
    for option in dict.fromkeys(str(key) for each in candidates for key in each.options):
        found = list(_sweeps_of(option, candidates))
        sweeps += [Sweep(option, _label(each, found), _members(each)) for each in found]
    return sweeps


@dataclass(frozen=True)
class _Alike:
    """Candidates that agree in all but the option at ``varied``."""

    varied: Key
    candidates: Sequence[Candidate]

    @property
    def rest(self) -> Mapping[Key, Any]:
        """Options that they share."""
        return {key: value for key, value in self.candidates[0].options.items() if key != self.varied}


def _sweeps_of(option: str, candidates: Sequence[Candidate]) -> Iterator[_Alike]:
    alike: dict[tuple[Any, ...], list[Candidate]] = defaultdict(list)
    for each in candidates:
        for key, value in each.options.items():
            if str(key) == option and isinstance(value, int | float) and not isinstance(value, bool):
                rest = frozenset(item for item in each.options.items() if item[0] != key)
                alike[key, each.components, rest].append(each)
    for (key, *_), members in alike.items():
        if len({each.options[key] for each in members}) >= FEWEST_VALUES:
            yield _Alike(key, members)


def _members(alike: _Alike) -> dict[float, str]:
    """Value -> name; of candidates that do not differ at all, the first."""
    names: dict[float, str] = {}
    for each in alike.candidates:
        names.setdefault(each.options[alike.varied], each.name)
    return dict(sorted(names.items()))


def _label(alike: _Alike, sweeps: Sequence[_Alike]) -> str:
    """Components of a sweep, and the shared options in which others of the same components differ."""
    components = alike.candidates[0].components
    others = [each.rest for each in sweeps if each.candidates[0].components == components]
    differing = [
        f"{key.option} {value}" for key, value in alike.rest.items() if any(other.get(key) != value for other in others)
    ]
    return ", ".join(["+".join(components), *differing])
