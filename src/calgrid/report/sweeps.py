"""Sweeps: methods or calibrators of a study that differ in one numeric option."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from calgrid.report.study import Group, StudyData, among
from calgrid.storage.layout import RunKey
from calgrid.storage.schema import METRICS
from calgrid.study.datasets import DatasetCatalog
from calgrid.study.model import Override
from calgrid.study.runs import PLAIN, CalibratorCatalog, MethodCatalog

#: least number of values of an option that make a sweep
FEWEST_VALUES = 3
#: identifiers of components, each with its options
Components = Sequence[tuple[str, Mapping[str, Any]]]
#: place of a component, its identifier, and the name of an option
Key = tuple[int, str, str]


class Sweep(NamedTuple):
    """Methods or calibrators that differ in one option only.

    ``option`` is the component and its option: ``mixup alpha``; ``label`` is unique among the
    sweeps of this option; ``members`` maps values, ascending, to names.
    """

    option: str
    label: str
    members: Mapping[float, str]


def method_sweeps(data: StudyData, group: Group) -> list[Sweep]:
    """Sweeps of the trained methods of a group, found from the variants in the configuration."""
    configuration = data.manifest["configuration"]
    variants = configuration.get("methods", {})
    if not variants:
        return []
    overrides = [Override.model_validate(each) for each in configuration.get("overrides", ())]
    datasets = DatasetCatalog(configuration.get("datasets", {}))
    catalog = MethodCatalog(variants, overrides, datasets)
    place = RunKey(*group[:3], method="", seed=0)
    trained = [run["key"]["method"] for run in data.runs(group) if not run["external"]]
    parts = {}
    for name in among(data.methods, trained):
        parts[name] = list(_parts(catalog, place, name))
    return _sweeps(parts)


def calibrator_sweeps(data: StudyData, group: Group) -> list[Sweep]:
    """Sweeps of the calibrators of a group that were fitted on val."""
    variants = data.manifest["configuration"].get("calibrators", {})
    if not variants:
        return []
    catalog = CalibratorCatalog(variants)
    parts = {}
    for name in data.distinct(METRICS, ["calibrator"], group, fit_on="val")["calibrator"]:
        found = catalog.resolve(name, "calibrators")
        parts[found["name"]] = [(found["id"], found["options"])]
    return _sweeps(parts)


def _parts(
    catalog: MethodCatalog, place: RunKey, name: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Components of a method and of its first stage, without standard training and plain loss if
    others remain.
    """
    method = catalog.resolve(place._replace(method=name))
    plain = method.procedure == "standard"
    if not plain:
        yield method.procedure, method.procedure_options
    if plain or method.loss != PLAIN:
        yield method.loss, method.loss_options
    if method.first_stage not in (None, PLAIN):
        yield from _parts(catalog, place, method.first_stage)


def _sweeps(candidates: Mapping[str, Components]) -> list[Sweep]:
    """Sweeps by option, in the order in which the options appear; of identical candidates the first
    is used.
    """
    # option -> components and all other options -> value -> name
    found: dict[str, dict[Any, dict[float, str]]] = defaultdict(lambda: defaultdict(dict))
    for name, parts in candidates.items():
        components = "+".join(id for id, _ in parts)
        options: dict[Any, Any] = {}
        for place, (id, chosen) in enumerate(parts):
            options |= {(place, id, key): value for key, value in chosen.items()}
        for varied, value in options.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                rest = tuple(item for item in options.items() if item[0] != varied)
                found[f"{varied[1]} {varied[2]}"][varied, components, rest].setdefault(value, name)
    sweeps = []
    for option, alike in found.items():
        long = {where: names for where, names in alike.items() if len(names) >= FEWEST_VALUES}
        for where, names in long.items():
            sweeps.append(Sweep(option, _label(where, long), dict(sorted(names.items()))))
    return sweeps


def _label(where: tuple[Key, str, tuple[tuple[Key, Any], ...]], sweeps: Mapping[Any, Any]) -> str:
    """Components of a sweep, and its fixed options in which other sweeps of the same components
    differ.
    """
    _, components, fixed = where
    words = [components]
    for key, value in fixed:
        for _, other_components, other in sweeps:
            if other_components == components and dict(other).get(key) != value:
                words.append(f"{key[2]} {value}")
                break
    return ", ".join(words)
