"""Masks on a trained head, at inference and during retraining, by masking ratio (MaC-Cal, Figure 1b
and c).
"""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.reporting import text
from calgrid.reporting.figure import FigureData
from calgrid.reporting.plotting import lines, style
from calgrid.reporting.probes import probed, retrained, seeds
from calgrid.reporting.study import UNCALIBRATED, Group, StudyData
from calgrid.storage.schema import BINS, METRICS

#: panels: column -> label and factor
PANELS = {
    "accuracy": ("Accuracy (%)", 100),
    "confidence": ("Mean confidence (%)", 100),
    "ece": ("ECE (%)", 100),
    "nll": ("NLL (nats)", 1),
}
#: mode of the masks -> style of the line, label
MODES: dict[str, tuple[Any, str]] = {
    "random": ("-", "random masks at inference"),
    "magnitude": ("--", "smallest weights masked at inference"),
}
RETRAINED: style.Look = {"marker": "D", "linestyle": ":", "markersize": 4.5, "linewidth": 1.1}
#: options of a run that retrains the first stage's own head at a fixed masking ratio
FIXED = {"head": "linear", "sparsity": "fixed", "gradient": "masked"}


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Scores by masking ratio of the masked heads and of heads that were retrained under masks
    (mode ``retrained``).

    The ``method`` of a retrained head is that of its first stage.
    """
    rows = probed(data, group, "masking", ("batch", "draws"))
    return pd.concat([rows, _retrained(data, group)], ignore_index=True) if len(rows) else rows


def _retrained(data: StudyData, group: Group) -> pd.DataFrame:
    """Ratio and scores of the runs whose head was retrained at a fixed ratio, one row per run."""
    rows = []
    scores = data.rows(METRICS, group, split="test", calibrator=UNCALIBRATED, fit_on="val")
    bins = (
        data.rows(BINS, group, n_bins=data.bins, calibrator=UNCALIBRATED)
        .groupby(["method", "seed"])[["confidence", "count"]]
        .sum()
    )
    for key, first, options in retrained(data, group):
        if (
            all(options[name] == value for name, value in FIXED.items())
            and options["eval_mask"] == "last"
        ):
            method, seed = key["method"], key["seed"]
            own = scores[(scores["method"] == method) & (scores["seed"] == seed)]
            values = own.set_index("metric")["value"].to_dict()
            values["confidence"] = (
                bins.loc[(method, seed), "confidence"] / bins.loc[(method, seed), "count"]
            )
            ratio = round(1 - options["p0"], 6)
            place = {"method": first["method"], "ratio": ratio, "mode": "retrained"}
            rows.append({**place, **{name: values.get(name) for name in PANELS}})
    columns = ["method", "mode", "ratio", *PANELS]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(("ratio", *PANELS), float))


def caption(frame: FigureData) -> str:
    batch, draws = (int(frame.rows[name].iloc[0]) for name in ("batch", "draws"))
    return (
        f"Scores of the uncalibrated network on {frame.label}, clean test split ({frame.images}), "
        "when a share of the weights of its linear head is masked: at inference without "
        f"retraining (a new random mask for every {text.count(batch, 'image')}; mean over "
        f"{text.count(draws, 'pass', 'passes')} per seed, shaded from the lowest to the highest; "
        f"{seeds(frame.rows)}), and with the same head retrained with that share masked, with the "
        "mask of the last epoch at inference (diamonds, mean over seeds). Ticks in the ECE panel: "
        "expected ECE of a perfectly calibrated network with the confidences under random masks. "
        "The NLL axis is logarithmic if the range is wide."
    )


def draw(frame: FigureData) -> Figure:
    """Draw four panels with one line per method and mode, and the runs that were retrained from
    each method.
    """
    trained = frame.rows[frame.rows["mode"] == "retrained"]
    tables = frame.parts("name")
    names = list(tables)
    figure = style.new_figure(style.WIDTH, 5.6)
    axes = figure.subplots(2, 2, sharex=True).ravel()
    for ax, (column, (label, factor)) in zip(axes, PANELS.items(), strict=True):
        for name, table in tables.items():
            shade = style.colour(names, name)
            for mode, (line, _) in MODES.items():
                look = {"color": shade, "linestyle": line, "linewidth": 1.4}
                part = table[table["mode"] == mode]
                lines.course(ax, part, "ratio", column, factor, look, mode == "random")
            own = (
                trained[trained["method"] == table["method"].iloc[0]]
                .groupby("ratio")[column]
                .mean()
            )
            ax.plot(own.index, factor * own, color=shade, **RETRAINED)
            if column == "ece":
                null = 100 * table[table["mode"] == "random"].groupby("ratio")["ece_null"].mean()
                ax.plot(null.index, null, markersize=7, **{**lines.NULL_TICK, "color": shade})
        ax.set_ylabel(label)
        _scale(ax, column, frame.rows)
    for ax in axes[2:]:
        ax.set_xlabel("Masking ratio")
    figure.align_ylabels()
    figure.legend(handles=_handles(names, len(trained) > 0), loc="outside upper center", ncols=2)
    return figure


def _scale(ax: Axes, column: str, rows: pd.DataFrame) -> None:
    if column == "nll":
        values = rows[column].dropna().astype(float)
        if style.spans(values.to_numpy(), 15):
            style.log_axis(ax, "y", 0.8 * values.min(), 1.25 * values.max())
            return
    ax.set_ylim(0, 103 if column in ("accuracy", "confidence") else None)


def _handles(names: list[str], trained: bool) -> list[Line2D]:
    one = len(names) == 1
    shade = style.colour(names, names[0]) if one else style.GREY
    handles = [
        style.handle(color=shade, linestyle=line, label=label) for line, label in MODES.values()
    ]
    if trained:
        handles.append(style.handle(color=shade, label="masked retraining", **RETRAINED))
    handles.append(lines.null_handle())
    return handles if one else [*handles, *style.line_handles(names, names)]
