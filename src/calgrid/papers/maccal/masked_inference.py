"""Masks on a trained head, at inference and during retraining, by masking ratio (MaC-Cal, Figure 1b
and c).
"""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import lines, style
from calgrid.report.probes import probed, retrained, seeds
from calgrid.report.study import UNCALIBRATED, Group, StudyData
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
#: options of a run that retrains the first stage's own head at a fixed masking ratio, and keeps the
#: last mask
FIXED = {"head": "linear", "sparsity": "fixed", "gradient": "masked", "eval_mask": "last"}


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Scores by masking ratio of the masked heads and of heads that were retrained under masks
    (mode ``retrained``).

    The ``method`` of a retrained head is that of its first stage.
    """
    rows = probed(data, group, "masking", ("batch", "draws"))
    return pd.concat([rows, _retrained(data, group)], ignore_index=True) if len(rows) else rows


def _retrained(data: StudyData, group: Group) -> pd.DataFrame:
    """Ratio and scores of the runs whose head was retrained at a fixed ratio, one row per run."""
    run = ["method", "seed"]
    scores = data.rows(METRICS, group, split="test", calibrator=UNCALIBRATED, fit_on="val")
    values = scores.pivot(index=run, columns="metric", values="value")
    bins = data.rows(BINS, group, n_bins=data.bins, calibrator=UNCALIBRATED)
    sums = bins.groupby(run)[["confidence", "count"]].sum()
    values = values.assign(confidence=sums["confidence"] / sums["count"]).reindex(columns=PANELS)
    rows = []
    for key, first, options in retrained(data, group):
        if FIXED.items() <= options.items():
            ratio = round(1 - options["p0"], 6)
            place = {"method": first["method"], "mode": "retrained", "ratio": ratio}
            rows.append({**place, **values.loc[(key["method"], key["seed"])]})
    columns = ["method", "mode", "ratio", *PANELS]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(("ratio", *PANELS), float))


def caption(frame: FigureData) -> str:
    batch, draws = frame.rows[["batch", "draws"]].iloc[0].astype(int)
    return (
        f"Scores of the uncalibrated network on {frame.label}, clean test split ({frame.images}), "
        f"when a share of the weights of its linear head is masked; {seeds(frame.rows)}. Lines: "
        f"masked at inference without retraining, a new random mask for every "
        f"{text.count(batch, 'image')}; mean over {text.count(draws, 'pass', 'passes')} per seed, "
        "shaded from the lowest to the highest. Diamonds: the same head retrained with that share "
        "masked, with the mask of the last epoch at inference; mean over seeds. Ticks in the ECE "
        "panel: "
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
            own = trained[trained["method"] == table["method"].iloc[0]]
            means = own.groupby("ratio")[column].mean()
            ax.plot(means.index, factor * means, color=shade, **RETRAINED)
            if column == "ece":
                null = 100 * table[table["mode"] == "random"].groupby("ratio")["ece_null"].mean()
                ax.plot(null.index, null, markersize=7, **{**lines.NULL_TICK, "color": shade})
        ax.set_ylabel(label)
        values = frame.rows[column].dropna().to_numpy(float)
        if column != "nll" or not style.log_if_wide(ax, values, 15, 1.25):
            ax.set_ylim(0, 103 if column in ("accuracy", "confidence") else None)
    for ax in axes[2:]:
        ax.set_xlabel("Masking ratio")
    figure.align_ylabels()
    one = len(names) == 1
    colour = style.colour(names, names[0]) if one else style.GREY
    looks = {label: {"color": colour, "linestyle": line} for line, label in MODES.values()}
    if len(trained):
        looks["masked retraining"] = {"color": colour, **RETRAINED}
    handles = [*style.handles(looks), style.null_handle(lines.NULL_TICK)]
    handles += [] if one else style.line_handles(names)
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return figure
