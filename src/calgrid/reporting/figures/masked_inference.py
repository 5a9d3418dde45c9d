"""Masks on a trained head, at inference and while it is retrained, by masking ratio (MaC-Cal, Figure 1b and c)."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.reporting import text
from calgrid.reporting.figures import _lines, _style
from calgrid.reporting.probes import Probed, predictions, probed, retrained, seeds
from calgrid.reporting.study import UNCALIBRATED, Group, StudyData

PROBE = "masking"
#: panels: column -> label and factor
PANELS = {
    "accuracy": ("Accuracy (%)", 100),
    "confidence": ("Mean confidence (%)", 100),
    "ece": ("ECE (%)", 100),
    "nll": ("NLL (nats)", 1),
}
#: mode of the masks -> style of the line, label
MODES = {"random": ("-", "random masks at inference"), "magnitude": ("--", "smallest weights masked at inference")}
RETRAINED = {"marker": "D", "linestyle": ":", "markersize": 4.5, "linewidth": 1.1}
#: what a run must be to be masked retraining of the first stage's own head at one ratio
FIXED = {"head": "linear", "sparsity": "fixed", "gradient": "masked"}


def caption(data: StudyData, group: Group) -> str:
    """Say what the lines are."""
    tables = probed(data, group, PROBE)
    options = next(iter(tables.values())).options
    return (
        f"Scores of the uncalibrated network on {data.label(group)}, clean test split "
        f"({data.test_samples(group):,} images), when a share of the weights of its linear head is masked: at "
        f"inference without retraining (a new random mask for every {text.count(options['batch'], 'image')}; mean over "
        f"{text.count(options['draws'], 'pass', 'passes')} a seed, shaded from the lowest to the highest; "
        f"{seeds(tables)}), and while the same head is retrained with that share masked, with "
        "the mask of the last epoch at inference (diamonds, mean over seeds). Ticks in the ECE panel: the ECE that a "
        "perfectly calibrated network with the confidences under random masks would score. The axis of the NLL is "
        "logarithmic where values span much."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw four panels of one line a method and mode, and the runs that were retrained from each method."""
    tables = probed(data, group, PROBE)
    if not tables:
        return None
    names = list(tables)
    trained = _retrained(data, group)
    figure = _style.new_figure(_style.WIDTH, 5.6)
    axes = figure.subplots(2, 2, sharex=True).ravel()
    for ax, (column, (label, factor)) in zip(axes, PANELS.items(), strict=True):
        for name, part in tables.items():
            shade = _style.colour(names, name)
            for mode, (style, _) in MODES.items():
                _line(ax, part, mode, column, factor, {"color": shade, "linestyle": style})
            own = trained[trained["first"] == part.method].groupby("ratio").mean(numeric_only=True)
            ax.plot(own.index, factor * own[column], color=shade, **RETRAINED)
            if column == "ece":
                _null(ax, part.table[part.table["mode"] == "random"], shade)
        ax.set_ylabel(label)
        _scale(ax, column, tables, trained)
    for ax in axes[2:]:
        ax.set_xlabel("Masking ratio")
    figure.align_ylabels()
    figure.legend(handles=_handles(names, trained), loc="outside upper center", ncols=2)
    return figure


def _retrained(data: StudyData, group: Group) -> pd.DataFrame:
    """First stage, ratio and scores of the runs whose head was retrained at a fixed ratio, one row a run."""
    rows = []
    scores = data.select(data.metrics, group)
    scores = scores[(scores["split"] == "test") & (scores["calibrator"] == UNCALIBRATED)]
    for run, options in retrained(data, group):
        if all(options[name] == value for name, value in FIXED.items()) and options["eval_mask"] == "last":
            key = run["key"]
            own = scores[(scores["method"] == key["method"]) & (scores["seed"] == key["seed"])]
            values = own.set_index("metric")["value"].to_dict()
            values["confidence"] = float(predictions(run["run"], group.checkpoint).confidence.mean())
            first, ratio = run["first_stage"]["method"], round(1 - options["p0"], 6)
            rows.append({"first": first, "ratio": ratio, **{name: values.get(name) for name in PANELS}})
    return pd.DataFrame(rows, columns=["first", "ratio", *PANELS]).astype(
        {"ratio": float, **dict.fromkeys(PANELS, float)}
    )


def _line(ax: Axes, part: Probed, mode: str, column: str, factor: float, look: Mapping[str, Any]) -> None:
    by_ratio = part.table[part.table["mode"] == mode].groupby("ratio")[column].agg(["mean", "min", "max"]) * factor
    ax.plot(by_ratio.index, by_ratio["mean"], linewidth=1.4, **look)
    if mode == "random":
        ax.fill_between(by_ratio.index, by_ratio["min"], by_ratio["max"], color=look["color"], alpha=0.12, linewidth=0)


def _null(ax: Axes, table: pd.DataFrame, shade: Any) -> None:
    null = 100 * table.groupby("ratio")["ece_null"].mean()
    ax.plot(null.index, null, markersize=7, **{**_lines.NULL_TICK, "color": shade})


def _scale(ax: Axes, column: str, tables: Mapping[str, Probed], trained: pd.DataFrame) -> None:
    if column == "nll":
        values = pd.concat([*(part.table[column] for part in tables.values()), trained[column].dropna()]).astype(float)
        if _style.spans(values.to_numpy(), 15):
            _style.log_axis(ax, "y", 0.8 * values.min(), 1.25 * values.max())
            return
    ax.set_ylim(0, 103 if column in ("accuracy", "confidence") else None)


def _handles(names: list[str], trained: pd.DataFrame) -> list[Line2D]:
    one = len(names) == 1
    shade = _style.colour(names, names[0]) if one else _style.GREY
    handles = [Line2D([], [], color=shade, linestyle=style, label=label) for style, label in MODES.values()]
    if len(trained):
        handles.append(Line2D([], [], color=shade, label="masked retraining", **RETRAINED))
    handles.append(_lines.null_handle())
    return handles if one else [*handles, *_style.line_handles(names, names)]
