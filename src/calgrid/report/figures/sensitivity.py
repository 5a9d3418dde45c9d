"""Accuracy, ECE and NLL against a hyper-parameter (MaC-Cal, Figures 6 and 7; SMART, Tables 13 and
14).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import lines, style
from calgrid.report.selections import Kind
from calgrid.report.study import Group, StudyData, among, calibrated
from calgrid.storage import schema
from calgrid.storage.records import RunKey
from calgrid.study.datasets import DatasetCatalog
from calgrid.study.model import Override
from calgrid.study.runs import PLAIN, CalibratorCatalog, MethodCatalog

METRICS = ("accuracy", "ece", "nll")
NEEDED = (*METRICS, "ece_null")
#: styles of the lines of the calibrators of :meth:`StudyData.few_calibrators`
LINES = ("-", "--")
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


@dataclass(frozen=True)
class Sensitivity:
    """Methods that differ in one option, without and with a calibrator, or such calibrators on one
    method.
    """

    kind: Kind

    def collect(self, data: StudyData, group: Group) -> pd.DataFrame:
        if self.kind == "calibrator":
            rows = data.tidy(group, "test")
            own = rows[rows["method"] == data.reference(group)]
            return _points(calibrator_sweeps(data, group), own, self.kind).assign(said="")
        sweeps, parts = method_sweeps(data, group), []
        for calibrator in data.few_calibrators():
            found = _points(sweeps, data.tidy(group, "test", [calibrator]), self.kind)
            parts.append(found.assign(calibrator=calibrator, said=calibrated(calibrator)))
        return pd.concat(parts)

    def caption(self, frame: FigureData) -> str:
        data, group = frame.study, frame.group
        if self.kind == "calibrator":
            which = f"All calibrate the networks of {data.reference(group)}."
        else:
            after = [f"; dashed: {calibrated(name)}" for name in data.few_calibrators()[1:]]
            which = f"Solid: uncalibrated networks{''.join(after)}."
        return (
            f"Accuracy, ECE and NLL against a hyper-parameter, for {self.kind}s that have all "
            f"others equal, on {frame.label}, clean test split ({frame.images}); "
            f"{lines.spread(data.tidy(group, 'test'))}. {lines.NULL} Do not choose a value from "
            f"this figure: it shows the test split. {which}"
        )

    def draw(self, frame: FigureData) -> Figure:
        """Draw one row of panels per hyper-parameter."""
        rows = frame.rows
        options, said = rows["option"].unique(), rows["said"].unique().tolist()
        labels = rows["sweep"].unique().tolist()
        styles = dict(zip(said, LINES, strict=False))
        height = 2.3 * len(options) + 0.6 + 0.2 * (len(labels) // 3)
        figure, axes = style.subplots(
            style.WIDTH, height, len(options), len(METRICS), sharex="row", squeeze=False
        )
        for option, line in zip(options, axes, strict=True):
            for ax, metric in zip(line, METRICS, strict=True):
                own = rows[rows["option"] == option]
                curves = list(own.groupby(["said", "sweep"], sort=False))
                for (each, label), part in curves:
                    look = {**style.marker_look(labels, label), "linestyle": styles[each]}
                    x = part["value"].to_numpy(float)
                    lines.line(ax, x, part, metric, look, len(curves))
                lines.numeric_axis(ax, own["value"])
                if metric == "ece":
                    ax.set_ylim(bottom=0)
                ax.set_xlabel(option)
        for ax, metric in zip(axes[0], METRICS, strict=True):
            ax.set_title(text.in_unit(metric))
        looks = {label: style.marker_look(labels, label) for label in labels}
        if len(said) > 1:
            looks |= {each: {"color": style.GREY, "linestyle": styles[each]} for each in said}
        handles = [*style.handles(looks), style.null_handle(lines.NULL_TICK)]
        return style.finished(figure, handles, columns=4)


METHODS, CALIBRATORS = Sensitivity("method"), Sensitivity("calibrator")


def _points(sweeps: Iterable[Sweep], rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    """One row per value of each sweep whose members were all scored: option, sweep, value, and wide
    means.
    """
    rows = rows[rows["metric"].isin(NEEDED)]
    if rows.empty:
        return pd.DataFrame()
    table = lines.means(rows, [kind]).set_index(kind)
    parts = []
    for sweep in sweeps:
        names = list(sweep.members.values())
        if set(names) <= set(table.index):
            facts = {"option": sweep.option, "sweep": sweep.label, "value": [*sweep.members]}
            parts.append(table.loc[names].assign(**facts))
    return pd.concat(parts).reset_index() if parts else pd.DataFrame()


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
    names = among(data.methods, trained)
    return _sweeps({name: list(_parts(catalog, place, name)) for name in names})


def calibrator_sweeps(data: StudyData, group: Group) -> list[Sweep]:
    """Sweeps of the calibrators of a group that were fitted on val."""
    variants = data.manifest["configuration"].get("calibrators", {})
    if not variants:
        return []
    catalog = CalibratorCatalog(variants)
    parts = {}
    for name in data.distinct(schema.METRICS, ["calibrator"], group, fit_on="val")["calibrator"]:
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
    alike = [dict(other) for _, others, other in sweeps if others == components]
    words = [components]
    for key, value in fixed:
        if any(each.get(key) != value for each in alike):
            words.append(f"{key[2]} {value}")
    return ", ".join(words)
