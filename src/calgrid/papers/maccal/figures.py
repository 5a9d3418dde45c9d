"""Figures modelled on the MaC-Cal paper's, for every study with their data."""

import functools
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from calgrid.report import text
from calgrid.report.figure import FigureData, FigureKind, functions
from calgrid.report.figures.histories import Curve, Histories
from calgrid.report.plotting import lines, points, style
from calgrid.report.selections import probed, retrained, seeds, settings
from calgrid.report.study import UNCALIBRATED, Group, StudyData
from calgrid.storage.schema import BINS, HISTOGRAM_BINS, METRICS

#: share of weights that the mask keeps by epoch (Figure 8)
RETENTION = Histories(
    {
        "retention": Curve("Weights kept (%)"),
        "masked_accuracy": Curve("Training\naccuracy (%)"),
        "masked_confidence": Curve("Training\nconfidence (%)"),
        "clip": Curve("Largest change\n(points)", high=None),
    },
    "retention",
    7.0,
    "Masking of MaC-Cal on {place}, by epoch of the second stage; {seeds}. Panels: share of "
    "weights that the mask of an epoch keeps; accuracy and mean confidence over its training "
    "batches with the mask, whose weighted difference determines the next share; and the largest "
    "change that the threshold allows (percentage points, 0 for a fixed share). Accuracy and "
    "confidence are measured on training images, not on the test split.",
    align=True,
)


# Figure 4: accuracy, MCE and AECE, averaged over data sets and backbones
# --------------------------------------------------------------------------------------------------

AVERAGED = ("accuracy", "mce", "aece")
BAR = 0.62
COLOUR = "#7fa8cf"
#: margin at each end of the axis, as a share of the range of accuracies
ROOM = 0.06


def method_means_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Tidy means of the methods in all settings; if fewer than two, of all methods in settings with
    all.
    """
    rows = settings(data, "method", AVERAGED)
    parts = []
    for metric in AVERAGED:
        table = rows[rows["metric"] == metric].pivot(index="setting", columns="name", values="mean")
        complete = table.dropna(axis="columns")
        if complete.shape[1] < 2:  # grids with different methods
            complete = table.dropna()
        if min(complete.shape) < 2:
            return pd.DataFrame()
        tidy = complete.melt(ignore_index=False, value_name="mean", var_name="method")
        parts.append(tidy.assign(metric=metric))
    return pd.concat(parts).reset_index()


def method_means_caption(frame: FigureData) -> str:
    accuracy = frame.rows[frame.rows["metric"] == "accuracy"]
    left = [method for method in frame.study.methods if method not in set(accuracy["method"])]
    out = f" Left out, because a setting lacks them: {text.listed(left)}." if left else ""
    return (
        f"Means over {accuracy['setting'].nunique()} settings (protocol, data set and backbone) of "
        "the uncalibrated networks, clean test split of each. Dots: the settings, each a mean "
        f"over its seeds. Methods in the order of the study.{out} Settings differ much more than "
        "methods, so do not read the dots as error bars; paired tests are in the tables. MCE is "
        "the gap of the worst bin, which may have few images; MCE and AECE of perfectly "
        "calibrated networks are above 0, too. NLL, Brier score and ECE with its null are in the "
        "other figures."
    )


def draw_method_means(frame: FigureData) -> Figure:
    """Draw one line of bars per method."""
    methods = frame.methods()
    places, height = range(len(methods)), 0.24 * len(methods) + 1.2
    figure, axes = style.subplots(style.WIDTH, height, 1, len(AVERAGED), sharey=True)
    for ax, metric in zip(axes, AVERAGED, strict=True):
        style.stripes(ax, list(map(frame.study.marked, methods)))
        rows = frame.rows[frame.rows["metric"] == metric]
        rows = rows.assign(mean=text.shown(metric, rows["mean"]))
        values = rows.pivot(index="setting", columns="method", values="mean")[methods]
        for _, row in values.iterrows():
            ax.plot(row, places, "o", color=style.GREY, markersize=2.2, alpha=0.7, zorder=3)
        if metric == "accuracy":
            # bars of accuracy would have to start at 0, which hides the differences
            ax.plot(values.mean(), places, "D", color=COLOUR, markersize=6, zorder=2)
            low, high = values.min(axis=None), values.max(axis=None)
            room = ROOM * max(high - low, 1.0)
            ax.set_xlim(low - room, high + room)
        else:
            ax.barh(places, values.mean(), BAR, color=COLOUR)
            ax.set_xlim(left=0)
        ax.set_xlabel(text.in_unit(metric))
    looks = {
        "mean (bar or diamond)": style.dot(color=COLOUR, marker="D", markersize=6),
        "a setting": style.dot(color=style.GREY, markersize=2.5),
    }
    return style.finished(figure, style.handles(looks))


# Figure 1a: histogram of confidence before and after retraining under masks
# --------------------------------------------------------------------------------------------------

#: stage -> its line or area
LOOKS: dict[str, style.Look] = {
    "before": {"color": "0.72", "fill": True},
    "after": {"color": "#d55e00", "linewidth": 1.4},
}
EDGES = np.linspace(0, 100, HISTOGRAM_BINS + 1)
#: smallest share that the logarithmic axis shows, in percent
LEAST = 0.05


def confidence_histogram_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Bins of the confidence of each retrained run and of its first stage, if the study includes
    the first stage.

    The column ``stage`` is ``before`` or ``after``; ``method`` is the method of the second stage.
    """
    bins = data.rows(BINS, group, n_bins=HISTOGRAM_BINS, calibrator=UNCALIBRATED)
    bins = bins.set_index(["method", "seed"])
    first = {run["train"]: run["key"] for run in data.runs(group)}
    parts = []
    for key, before, _ in retrained(data, group):
        if before["train"] in first:
            for stage, of in (("before", first[before["train"]]), ("after", key)):
                own = bins.loc[[(of["method"], of["seed"])]].reset_index()
                parts.append(own.assign(stage=stage, method=key["method"], seed=key["seed"]))
    return pd.concat(parts) if parts else bins.iloc[:0]


def confidence_histogram_caption(frame: FigureData) -> str:
    seeds = frame.rows["seed"].nunique()
    pooled = f"up to {seeds} seeds together" if seeds > 1 else "one seed"
    return (
        f"Confidence of the uncalibrated networks on {frame.label}, clean test split "
        f"({frame.images}; {pooled}). Shown: the first stage, and the network with its head "
        f"retrained under masks; share of the images in {HISTOGRAM_BINS} bins, logarithmic. "
        "Above each panel: mean confidence and accuracy before and after, which are equal for a "
        "network that is calibrated on average. ECE, its null, NLL and Brier score are in the "
        "tables."
    )


def draw_confidence_histogram(frame: FigureData) -> Figure:
    """Draw one panel per retrained method."""
    figure, panels = points.panels(frame.parts("method"), height=2.3)
    for ax, method, rows in panels:
        parts = dict(list(rows.groupby("stage")))
        for stage, look in LOOKS.items():
            counts = parts[stage].groupby("bin")["count"].sum().to_numpy()
            ax.stairs(100 * counts / counts.sum(), EDGES, baseline=LEAST / 10, **look)
        facts = []
        for label, name in (("confidence", "confidence"), ("accuracy", "correct")):
            before, after = _mean(parts["before"], name), _mean(parts["after"], name)
            facts.append(f"{label} {before:.1f} → {after:.1f} %")
        points.title(ax, method, *facts)
    first = figure.axes[0]
    first.set(yscale="log", xlim=(0, 100), ylim=(LEAST, 130))
    first.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    handles = [
        Patch(facecolor=LOOKS["before"]["color"], label="first stage"),
        style.handle(color=LOOKS["after"]["color"], label="retrained under masks"),
    ]
    return style.finished(figure, handles, "Confidence (%)", "Share of images (%)", columns=2)


def _mean(rows: pd.DataFrame, name: str) -> float:
    """Mean over runs of a sum over bins, in percent of the images."""
    sums = rows.groupby("seed")[[name, "count"]].sum()
    return 100 * float((sums[name] / sums["count"]).mean())


# Figure 1b and c: masks on a trained head, at inference and in retraining, by ratio
# --------------------------------------------------------------------------------------------------

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


def masked_inference_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Scores by masking ratio of the masked heads and of heads that were retrained under masks
    (mode ``retrained``).

    The ``method`` of a retrained head is that of its first stage.
    """
    rows = probed(data, group, "masking", ("batch", "draws"))
    if rows.empty:
        return rows
    run = ["method", "seed"]
    scores = data.rows(METRICS, group, split="test", calibrator=UNCALIBRATED, fit_on="val")
    values = scores.pivot(index=run, columns="metric", values="value")
    bins = data.rows(BINS, group, n_bins=data.bins, calibrator=UNCALIBRATED)
    sums = bins.groupby(run)[["confidence", "count"]].sum()
    values = values.assign(confidence=sums["confidence"] / sums["count"]).reindex(columns=PANELS)
    trained = []
    for key, first, options in retrained(data, group):
        if FIXED.items() <= options.items():
            ratio = round(1 - options["p0"], 6)
            place = {"method": first["method"], "mode": "retrained", "ratio": ratio}
            trained.append({**place, **values.loc[(key["method"], key["seed"])]})
    numbers = ["ratio", *PANELS]
    found = pd.DataFrame(trained, columns=["method", "mode", *numbers])
    return pd.concat([rows, found.astype(dict.fromkeys(numbers, float))], ignore_index=True)


def masked_inference_caption(frame: FigureData) -> str:
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


def draw_masked_inference(frame: FigureData) -> Figure:
    """Draw four panels with one line per method and mode, and the runs that were retrained from
    each method.
    """
    trained = frame.rows[frame.rows["mode"] == "retrained"]
    tables = frame.parts("name")
    names = list(tables)
    figure, axes = style.subplots(style.WIDTH, 5.6, 2, 2, sharex=True)
    for ax, (column, (label, factor)) in zip(axes.ravel(), PANELS.items(), strict=True):
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
    for ax in axes[-1]:
        ax.set_xlabel("Masking ratio")
    figure.align_ylabels()
    one = len(names) == 1
    colour = style.colour(names, names[0]) if one else style.GREY
    looks = {label: {"color": colour, "linestyle": line} for line, label in MODES.values()}
    if len(trained):
        looks["masked retraining"] = {"color": colour, **RETRAINED}
    handles = [*style.handles(looks), style.null_handle(lines.NULL_TICK)]
    handles += [] if one else style.line_handles(names)
    return style.finished(figure, handles, columns=2)


# Figure 2a and d: test images in the plane by t-SNE of features and of logits
# --------------------------------------------------------------------------------------------------

#: largest number of classes with distinct colours and a legend; more classes have colours from a
#: hue circle
NAMED = 10
#: opacity of a point with a certain class, and of a point with equal probabilities
CERTAIN, UNCERTAIN = 0.9, 0.12


def embedding_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Positions of the images of the first seed of each method, by space."""
    rows = probed(data, group, "embedding", ("perplexity",))
    if rows.empty:
        return rows
    return rows[rows["seed"] == rows.groupby("name")["seed"].transform("min")]


def embedding_caption(frame: FigureData) -> str:
    first = frame.rows[frame.rows["name"] == frame.rows["name"].iloc[0]]
    images = first.groupby("space").size().max()
    return (
        f"t-SNE (perplexity {first['perplexity'].iloc[0]:g}) of {images:,} images of the clean "
        f"test split, equally many of each class, on {frame.label}; one seed (seed "
        f"{first['seed'].min()}). Colours are labels; paler points have a larger entropy of the "
        "softmax. Interpret neighbourhoods only, not sizes of clusters or distances between them, "
        "and do not compare positions between panels. Accuracy, NLL and calibration are in the "
        "tables."
    )


def draw_embedding(frame: FigureData) -> Figure:
    """Draw one row per space and one column per method, in blocks of four methods."""
    rows = frame.rows
    spaces, names = list(rows["space"].unique()), list(rows["name"].unique())
    columns = min(points.COLUMNS, len(names))
    blocks = [names[place : place + columns] for place in range(0, len(names), columns)]
    count = len(spaces) * len(blocks)
    figure, axes = style.subplots(
        max(4.2, 2.15 * columns), 0.7 + 2.2 * count, count, columns, squeeze=False
    )
    classes = sorted(map(int, rows["label"].unique()))
    few = len(classes) <= NAMED
    colours = sns.color_palette("tab10") if few else sns.husl_palette(len(classes), s=0.85)
    shades = {label: to_rgb(shade) for label, shade in zip(classes, colours, strict=False)}
    for block, members in enumerate(blocks):
        for row, space in enumerate(spaces):
            line = axes[block * len(spaces) + row]
            for ax, name in zip(line, members, strict=False):
                table = rows[(rows["name"] == name) & (rows["space"] == space)]
                certainty = 1 - table["entropy"].to_numpy() / math.log(max(len(shades), 2))
                opacity = UNCERTAIN + (CERTAIN - UNCERTAIN) * certainty
                opacity = np.clip(opacity, UNCERTAIN, CERTAIN)
                each = np.column_stack([table["label"].map(shades).tolist(), opacity])
                look: style.Look = {"color": each, "linewidths": 0, "rasterized": True}
                ax.scatter(table["x"], table["y"], 8, **look)
                ax.set(xticks=[], yticks=[], title=f"{name}, {space}")
                ax.grid(visible=False)
            for ax in line[len(members) :]:
                ax.remove()
    if not few:
        return figure
    looks = {str(label): style.dot(markersize=5, color=shades[label]) for label in classes}
    return style.finished(figure, style.handles(looks), title="class", columnspacing=0.8)


# Figure 2b and e: angles between the prototypes of classes, one violin per method
# --------------------------------------------------------------------------------------------------

#: kind of prototype -> title of its panel
KINDS = {"features": "mean features", "logits": "mean logits", "head": "rows of the last layer"}
#: largest number of pairs that are also drawn as points
FEW = 200
#: text at the right end of a line of a panel
BESIDE: style.Look = {
    "xycoords": ("axes fraction", "data"),
    "xytext": (-3, 0),
    "textcoords": "offset points",
    "ha": "right",
    "va": "center",
    "fontsize": 8,
}


#: angles of all pairs of classes, by kind of prototype
prototype_angles_rows = functools.partial(probed, id="prototypes")


def prototype_angles_caption(frame: FigureData) -> str:
    return (
        f"Angles between the prototypes of every two classes on {frame.label}, after the mean of "
        f"all prototypes was subtracted; {seeds(frame.rows)}, pairs of all seeds together. "
        "Prototypes: means of the penultimate features and of the logits over the clean test "
        "images of a class, and the rows of the last linear layer. Bars: median; beside each "
        "violin: standard deviation over pairs, mean over seeds, which is 0 if all classes are "
        "equally far apart. Dashed: the angle of such a simplex. A second stage on frozen "
        "features does not change the first panel; a network without a linear last layer is "
        "missing in the third."
    )


def draw_prototype_angles(frame: FigureData) -> Figure:
    """Draw one panel per kind of prototype."""
    rows, names = frame.rows, list(dict.fromkeys(frame.rows["name"]))
    height = 1.3 + 0.42 * len(names)
    figure, axes = style.subplots(style.WIDTH, height, 1, len(KINDS), sharey=True)
    for ax, (kind, title) in zip(axes, KINDS.items(), strict=True):
        _angles_panel(ax, rows[rows["of"] == kind], names)
        ax.set(title=title, xlabel="Angle (degrees)")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    said = "simplex, all classes equally far apart"
    handles = [style.handle(color=style.GREY, linestyle="--", label=said)]
    return style.finished(figure, handles)


def _angles_panel(ax: Axes, table: pd.DataFrame, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        rows = table[table["name"] == name].dropna(subset="angle_centred")
        angles = rows["angle_centred"].to_numpy()
        if len(angles) == 0:
            continue
        shade = style.colour(names, name)
        if np.ptp(angles) > 0:
            shape: style.Look = {"orientation": "horizontal", "widths": 0.8, "showextrema": False}
            violin = ax.violinplot(angles, [place], **shape)
            for body in cast(list[PolyCollection], violin["bodies"]):
                body.set(facecolor=shade, alpha=0.3, linewidth=0)
        if len(angles) <= FEW:
            ax.plot(angles, np.full(len(angles), place), "|", color=shade, markersize=5, alpha=0.5)
        ax.vlines(np.median(angles), place - 0.3, place + 0.3, color=shade, linewidth=2)
        spread = rows.groupby("seed")["angle_centred"].std(ddof=0).mean()
        ax.annotate(f"± {spread:.1f}", (1, place), **BESIDE)
        classes = len(set(rows["class_a"]) | set(rows["class_b"]))
        if classes > 1:
            simplex = math.degrees(math.acos(-1 / (classes - 1)))
            ax.axvline(simplex, color=style.GREY, linestyle="--", linewidth=1, zorder=0)
    low, high = ax.get_xlim()
    ax.set_xlim(low, high + 0.22 * (high - low))  # room for the numbers
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)


FIGURES = (
    FigureKind(
        "method_means",
        "Means over data sets and backbones",
        "Methods",
        method_means_rows,
        draw_method_means,
        method_means_caption,
        each="study",
    ),
    FigureKind(
        "retention", "Masking of MaC-Cal", "Training", *functions(RETENTION), each="setting"
    ),
    FigureKind(
        "confidence_histogram",
        "Confidence before and after masked retraining",
        "Training",
        confidence_histogram_rows,
        draw_confidence_histogram,
        confidence_histogram_caption,
    ),
    FigureKind(
        "masked_inference",
        "Masked heads",
        "Probes",
        masked_inference_rows,
        draw_masked_inference,
        masked_inference_caption,
    ),
    FigureKind(
        "embedding",
        "Images in the plane",
        "Appendix",
        embedding_rows,
        draw_embedding,
        embedding_caption,
    ),
    FigureKind(
        "prototype_angles",
        "Angles between classes",
        "Probes",
        prototype_angles_rows,
        draw_prototype_angles,
        prototype_angles_caption,
    ),
)
