"""Course of SMART's fit under different objectives: loss, gradient, ECE and NLL by epoch (SMART, Figures 2 and 3)."""

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.calibrators import build_calibrator
from calgrid.configuration.calibrators import CalibratorBook
from calgrid.reporting.figures import _fits, _style
from calgrid.reporting.study import Group, StudyData

#: key of the trace -> label, factor
PANELS = {
    "loss": ("Loss / its first value", 1),
    "trace_gradient": ("Norm of the gradient", 1),
    "trace_ece": ("ECE (%)", 100),
    "trace_nll": ("NLL (nats)", 1),
}
#: values that differ by more than this factor stand on a logarithmic axis
LOG_FACTOR = {"loss": 15, "trace_gradient": 15, "trace_ece": 15, "trace_nll": 2}
#: fits that differ in nothing else -> traces of them
Traces = Mapping[str, Mapping[str, list[float]]]


def caption(data: StudyData, group: Group) -> str:
    """Say what the lines are."""
    fits = _fits.fits(data, group)
    return (
        f"Fits of {_fits.MAIN} that differ in their objective alone, by epoch, on the {len(fits.logits('val')):,} "
        f"validation images that fit them; {_fits.whose(data, group)}. Objectives are different functions, so each "
        "loss is shown as a share of its first value; gradient: L2 norm in the weights of the network, of the "
        "objective as it is; ECE (15 bins) and NLL every 20th epoch. A fit stops after 200 epochs without a lower "
        "loss, and the weights of its lowest loss are kept (circles). What holds on new images is in the tables, with "
        "accuracy and the ECE null."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one line an objective, where the study has at least two."""
    traces = _traces(data, group)
    if len(traces) < 2:
        return None
    names = list(traces)
    figure = _style.new_figure(_style.WIDTH, 5.6)
    for ax, (key, (label, factor)) in zip(figure.subplots(2, 2, sharex=True).ravel(), PANELS.items(), strict=True):
        for name, trace in traces.items():
            _line(ax, names, name, trace, key, factor)
        ax.set_ylabel(label)
        _limits(ax, LOG_FACTOR[key])
    for ax in figure.axes[-2:]:
        ax.set_xlabel("Epoch of the fit")
    handles = [Line2D([], [], label=name, **_look(names, name)) for name in names]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 4))
    return figure


_KNOWN: WeakKeyDictionary[StudyData, dict[Group, Traces]] = WeakKeyDictionary()


def _traces(data: StudyData, group: Group) -> Traces:
    """Name of each calibrator of the group that is ``MAIN`` but for its objective -> history of its fit."""
    known = _KNOWN.setdefault(data, {})
    if group not in known:
        known[group] = _fit(data, group)
    return known[group]


def _fit(data: StudyData, group: Group) -> Traces:
    fits = _fits.fits(data, group)
    objectives = {} if fits is None else _objectives(data, group)
    if len(objectives) < 2:
        return {}
    val = fits.logits("val")
    options = {"seed": fits.fit_seed, "trace": True}
    return {
        name: build_calibrator(_fits.MAIN, objective=objective, **options).fit(val.logits, val.label).fit_history
        for name, objective in objectives.items()
    }


def _objectives(data: StudyData, group: Group) -> dict[str, str]:
    """Name of each calibrator that is ``MAIN`` with an objective of its own, ``MAIN`` itself first."""
    book = CalibratorBook(data.manifest["configuration"].get("calibrators", {}))
    rows = data.select(data.metrics, group)
    present = set(rows.loc[rows["fit_on"] == "val", "calibrator"])
    plain = book.resolve(_fits.MAIN, "calibrators")
    found = {}
    for name in [_fits.MAIN, *book.variants]:
        each = book.resolve(name, "calibrators")
        if name in present and each["id"] == plain["id"]:
            objective = each["options"]["objective"]
            if {**plain["options"], "objective": objective} == each["options"]:
                found[name] = objective
    return found


def _line(ax: Axes, names: list[str], name: str, trace: Mapping[str, list[float]], key: str, factor: float) -> None:
    """Draw a course, and a circle at its entry nearest to the epoch whose weights are kept."""
    values = factor * np.array(trace[key])
    if key == "loss":
        epochs, values = np.arange(len(values)), values / abs(values[0])
    else:
        epochs = np.array(trace["trace_epoch"])
    look = _look(names, name)
    ax.plot(epochs, values, linewidth=1.3, **look)
    kept = int(np.abs(epochs - trace["best_epoch"]).argmin())
    ax.plot(epochs[kept : kept + 1], values[kept : kept + 1], color=look["color"], marker="o", markersize=5)


def _limits(ax: Axes, factor: float) -> None:
    values = np.concatenate([line.get_ydata() for line in ax.lines])
    values = values[values > 0]
    if len(values) and _style.spans(values, factor):
        _style.log_axis(ax, "y", values.min() / 1.3, values.max() * 1.3)


def _look(names: list[str], name: str) -> dict[str, object]:
    return {"color": _style.colour(names, name), "linestyle": _style.line(names, name)}
