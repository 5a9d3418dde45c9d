"""Figures modelled on the FeDLaS paper's, for every study with their data."""

import functools
import io

import matplotlib.image
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import expit

from calgrid.report import text
from calgrid.report.figure import FigureData, FigureKind, functions
from calgrid.report.figures.histories import Curve, Histories
from calgrid.report.plotting import points, style
from calgrid.report.selections import last_samples, loss_options, probed, sampled_epochs, seeds
from calgrid.report.study import Group, StudyData

#: shares of samples in the positive mode of the gate, and with a flipped mode (Figure 3)
GATE = Histories(
    # negative lower limits keep lines at 0 visible, those of fixed gates
    {
        "positive_share": Curve("Positive mode (%)", low=-3),
        "flip_rate": Curve("Mode flipped (%)", low=-1, high=None),
    },
    "positive_share",
    5.2,
    "Gate of FeDLaS on {place}, by epoch; {seeds}. Share of the training samples in positive mode "
    "(gate +1, more smoothing where the indicator is high), and share whose mode differs from that "
    "of the previous epoch. A wide band: seeds converged to opposite modes. A fixed gate stays "
    "at 0 or 100 % and never flips. The modes are the signs of a gate that lowers the training "
    "loss, not labels of over- or under-confidence.",
)


# Figure 2b: smoothing of a sample against its indicator, in both modes of the gate
# --------------------------------------------------------------------------------------------------

#: sign of the gate -> colour and name of the mode, as in the paper
MODES = {1: ("#0173b2", "positive mode"), -1: ("#d55e00", "negative mode")}
#: share of the samples outside each end of the axis, and the least range shown to each side
TAIL, LEAST = 0.005, 3.0
POINTS, BINS = 200, 30


def smoothing_curve_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Training samples of the methods with an adaptive strength, with the columns strength and
    beta.

    The strength of a sample is ``2 strength sigmoid(+-beta nci)``.
    """
    samples = last_samples(data, group)
    parts = []
    for method, rows in samples.groupby("method", sort=False):
        options = loss_options(data, group, str(method))
        # of label smoothing, or of the margin penalty
        strength = options.get("alpha", options.get("lambda_"))
        if strength is not None and "beta" in options:
            parts.append(rows.assign(strength=strength, beta=options["beta"]))
    return pd.concat(parts) if parts else samples.iloc[:0]


def smoothing_curve_caption(frame: FigureData) -> str:
    seeds = int(frame.rows.groupby("method")["seed"].nunique().max())
    return (
        "Strength of the regulariser of FeDLaS for a sample, 2α sigmoid(±βγ), against its "
        f"indicator γ, on {frame.setting}: increasing in positive mode, decreasing in negative "
        "mode, α at γ = 0. Below, the share of training samples by indicator and mode in the last "
        f"sampled epoch ({sampled_epochs(frame.rows)}), {text.count(seeds, 'seed')} together. The "
        "curves follow from the configuration, the bars are measured. Samples in the outer "
        f"{100 * TAIL:g} % at each end lie outside the axes."
    )


def draw_smoothing_curve(frame: FigureData) -> Figure:
    """Draw one column per method: curves above, samples below."""
    methods = frame.parts("method")
    figure, pairs = points.stacked(len(methods), 2, 2.9, 2.4)
    for place, ((upper, lower), (method, samples)) in enumerate(
        zip(pairs, methods.items(), strict=True)
    ):
        strength, beta = samples[["strength", "beta"]].iloc[0]
        # all but the outermost samples, and the curve around 0
        low, high = samples["nci"].quantile([TAIL, 1 - TAIL])
        span = min(low, -LEAST), max(high, LEAST)
        gamma = np.linspace(*span, POINTS)
        for sign, (shade, _) in MODES.items():
            upper.plot(gamma, 2 * strength * expit(sign * beta * gamma), color=shade, linewidth=1.6)
        upper.axhline(strength, color=style.GREY, linestyle=":", linewidth=1)
        upper.set_ylim(0, 2.05 * strength or None)
        upper.tick_params(labelbottom=False)
        parts = [samples.loc[np.sign(samples["gate"]) == sign, "nci"] for sign in MODES]
        weights = [np.full(len(part), 100 / len(samples)) for part in parts]
        edges, shades = list(np.linspace(*span, BINS + 1)), [shade for shade, _ in MODES.values()]
        lower.hist(parts, edges, weights=weights, stacked=True, color=shades, alpha=0.75)
        lower.set_xlim(*span)
        points.title(upper, method, f"α = {strength:g}, β = {beta:g}")
        if place % points.COLUMNS == 0:
            upper.set_ylabel("Strength")
            lower.set_ylabel("Samples\n(%)")
    handles = [style.handle(color=shade, label=said) for shade, said in MODES.values()]
    return style.finished(figure, handles, "Indicator γ (standardised)")


# Figure 1c: saturation of the softmax against the norm of the features of training samples
# --------------------------------------------------------------------------------------------------

#: the indicator that is a norm of the features
INDICATOR = "nci_l1"


def saturation_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Training samples of the runs whose indicator is the norm."""
    samples = last_samples(data, group)
    options = {name: loss_options(data, group, name) for name in samples["method"].unique()}
    shown = [name for name, each in options.items() if each.get("indicator") == INDICATOR]
    return samples[samples["method"].isin(shown)]


def saturation_caption(frame: FigureData) -> str:
    seeds = frame.rows.groupby("method")["seed"].nunique().max()
    pooled = f"Samples of {seeds} seeds together" if seeds > 1 else "One seed"
    spread = ", mean over seeds ± standard deviation" if seeds > 1 else ""
    return (
        f"Largest softmax probability of each training sample on {frame.setting} against the L1 "
        "norm of its features, standardised as in the loss, in the last sampled epoch "
        f"({sampled_epochs(frame.rows)}). {pooled}, at most {points.POINTS:,} evenly chosen points "
        f"per panel. ρ: Spearman's rank correlation over all samples of a run{spread}."
    )


def draw_saturation(frame: FigureData) -> Figure:
    """Draw one panel per method."""
    figure, panels = points.panels(frame.parts("method"))
    for ax, method, samples in panels:
        points.scatter_answers(ax, points.spread_out(samples), "nci", "confidence", 100)
        points.title(ax, method, f"ρ = {points.correlation(samples, 'nci', 'confidence')}")
    names = "Standardised norm of the features", "Largest softmax probability (%)"
    return style.finished(figure, points.answer_handles(), *names)


# Figure 1d: magnitudes of the features of easy and of hard images in descending order
# --------------------------------------------------------------------------------------------------

#: group of images -> its line
LOOKS: dict[str, style.Look] = {
    "easy": {"color": "#029e73", "linestyle": "-", "label": "easy"},
    "hard": {"color": "#d55e00", "linestyle": "-", "label": "hard"},
    "all": {"color": "0.35", "linestyle": "--", "label": "all images"},
}


#: mean and quantiles of each rank of the features, by group of images
feature_profiles_rows = functools.partial(probed, id="profiles")


def feature_profiles_caption(frame: FigureData) -> str:
    rows = frame.rows
    images = int(rows.loc[rows["group"] == "easy", "images"].max())
    right = 100 * rows.groupby("group")["accuracy"].mean()
    return (
        f"Penultimate features of clean test images on {frame.label}, the magnitudes of each image "
        f"in descending order and then averaged; {seeds(rows)}, mean over seeds. Lines: the "
        f"{images:,} images whose label has the highest probability (easy), the {images:,} whose "
        f"label has the lowest (hard), and all {frame.images}. Shaded: from "
        "the 10 % to the 90 % quantile over images. The area under a line is the mean L1 norm, "
        "given above each panel for easy and hard images. Easy and hard images also differ in "
        f"accuracy: over all panels, accuracy is {right['easy']:.1f} % and {right['hard']:.1f} %."
    )


def draw_feature_profiles(frame: FigureData) -> Figure:
    """Draw one panel per method."""
    figure, panels = points.panels(frame.parts("name"))
    for ax, name, table in panels:
        for group, look in LOOKS.items():
            own = table[table["group"] == group]
            by_rank = own.groupby("rank")[["mean", "q10", "q90"]].mean()
            ax.plot(by_rank.index, by_rank["mean"], linewidth=1.4, **look)
            if group != "all":
                shaded = {"color": look["color"], "alpha": 0.15, "linewidth": 0}
                ax.fill_between(by_rank.index, by_rank["q10"], by_rank["q90"], **shaded)
        norms = table.groupby("group")["l1"].mean()
        points.title(ax, name, f"L1: {norms['easy']:.3g} easy, {norms['hard']:.3g} hard")
    figure.axes[0].set(xlim=(1, frame.rows["rank"].max()), ylim=(0, None))
    handles = [style.handle(**look) for look in LOOKS.values()]
    return style.finished(figure, handles, "Rank of the feature", "Magnitude")


# Failure cases of the indicator: wrong answers of large feature norm, right ones of small
# --------------------------------------------------------------------------------------------------

#: group of the probe -> heading
HEADINGS = {
    "wrong": "wrong answers with the largest norms",
    "right": "right answers with the smallest norms",
}


def misjudged_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Images of the first seed."""
    rows = probed(data, group, "misjudged")
    return rows[rows["seed"] == rows["seed"].min()] if len(rows) else rows


def misjudged_caption(frame: FigureData) -> str:
    known = frame.rows.groupby("name", sort=False)[["auroc", "auroc_confidence"]].first()
    shares = "; ".join(
        f"{name} {100 * a:.1f} against {100 * b:.1f} %" for name, a, b in known.itertuples()
    )
    return (
        f"Clean test images of {frame.label} with the worst failures of the indicator of FeDLaS, "
        f"out of {frame.images}; one seed. Wrong answers with the largest L1 norm of the "
        "penultimate features, and right answers with the smallest. Above an image: class, answer "
        "if it differs, and confidence; below: the norm in standard deviations from its mean over "
        "the test images. These are extreme cases. AUROC of the norm for correctness over all "
        f"test images, against that of the confidence: {shares}."
    )


def draw_misjudged(frame: FigureData) -> Figure:
    """Draw two lines of images per method."""
    tables = frame.parts("name")
    columns = int(frame.rows["rank"].max())
    figure = style.new_figure(style.WIDTH, 0.3 + 2.85 * len(tables))
    figure.set_layout_engine("constrained", h_pad=0.06)  # room for the labels below the last line
    for part, (name, table) in zip(
        figure.subfigures(len(tables), 1, squeeze=False).ravel(), tables.items(), strict=True
    ):
        for line, (group, heading) in zip(part.subfigures(2, 1), HEADINGS.items(), strict=True):
            line.suptitle(f"{name}: {heading}", fontsize=9, x=0.01, ha="left")
            axes = line.subplots(1, columns, squeeze=False).ravel()
            rows = table[table["group"] == group]
            for ax, row in zip(axes, rows.to_dict("records"), strict=False):
                picture = matplotlib.image.imread(io.BytesIO(row["picture"]), format="png")
                ax.imshow(picture, interpolation="nearest")
                ax.set(xticks=[], yticks=[])
                right = row["class"] == row["answer"]
                said = row["class"] if right else f"{row['class']}:\n{row['answer']}"
                ax.set_title(f"{said}\n{100 * row['confidence']:.0f} %", fontsize=8, pad=2)
                ax.set_xlabel(f"{row['indicator']:+.1f}", fontsize=8, labelpad=1)
            for ax in axes[len(rows) :]:
                ax.remove()
    return figure


FIGURES = (
    FigureKind("gate", "Gate of FeDLaS", "Training", *functions(GATE), each="setting"),
    FigureKind(
        "smoothing_curve",
        "Smoothing of FeDLaS",
        "Training",
        smoothing_curve_rows,
        draw_smoothing_curve,
        smoothing_curve_caption,
        each="setting",
    ),
    FigureKind(
        "saturation",
        "Softmax saturation",
        "Training",
        saturation_rows,
        draw_saturation,
        saturation_caption,
        each="setting",
    ),
    FigureKind(
        "feature_profiles",
        "Features of easy and hard images",
        "Probes",
        feature_profiles_rows,
        draw_feature_profiles,
        feature_profiles_caption,
    ),
    FigureKind(
        "misjudged",
        "Images that the feature norm misjudges",
        "Appendix",
        misjudged_rows,
        draw_misjudged,
        misjudged_caption,
        photographs=True,
    ),
)
