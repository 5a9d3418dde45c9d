"""Figures of SMART about fits of calibrators and margins of images, for one run of each group (see
``papers.smart.diagnostics``), and about the attack distance.
"""

import functools

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calgrid.papers.smart.diagnostics import COMPARED, CONFIDENCE, MAIN, Floats, indicators
from calgrid.papers.smart.errors import names_with_looks
from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import points, style
from calgrid.report.selections import on_most_rows, probed, seeds
from calgrid.report.study import UNCALIBRATED, Group, StudyData, among
from calgrid.statistics.paired import wilson_interval
from calgrid.storage.schema import FITS, MARGINS

COLOUR = "#0173b2"


def diagnosed(data: StudyData, group: Group, name: str) -> pd.DataFrame:
    """Rows of a file of ``papers.smart.diagnostics`` for a group's reference run; empty if another
    group has more validation rows.
    """
    rows = data.rows(name, group)
    return rows if on_most_rows(data, group) else rows.iloc[:0]


def whose(frame: FigureData) -> str:
    """Run of the figure, for captions: ``ce on digits, resnet8 (seed 1 alone)``."""
    method, seed = frame.rows[["method", "seed"]].iloc[0]
    return f"{method} on {frame.label} (seed {seed:.0f} alone)"


# Figure 2: path of a calibrator's fit in the plane of ECE and NLL
# --------------------------------------------------------------------------------------------------

#: calibrators whose fit is shown
NAMES = ("ts", "pts", "smart")


def fit_course_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """ECE and NLL of the validation images at the traced epochs, and after the fit (``kept``)."""
    rows = diagnosed(data, group, FITS)
    return rows[rows["calibrator"].isin((*NAMES, UNCALIBRATED)) & rows["ece"].notna()]


def fit_course_caption(frame: FigureData) -> str:
    rows = frame.rows
    traced = among(NAMES, rows.loc[~rows["kept"], "calibrator"])
    bare = rows[rows["calibrator"] == UNCALIBRATED].iloc[0]
    return (
        f"NLL against ECE (15 bins) of the {bare['n_samples']:,} validation images while "
        f"{text.listed(traced)} {'is' if len(traced) == 1 else 'are'} fitted to them, every 20th "
        f"epoch; {whose(frame)}. Hollow: initial weights; filled: final weights. Without "
        f"calibration: ECE {text.format_with_unit('ece', bare['ece'])}, NLL "
        f"{text.format_with_unit('nll', bare['nll'])}. The calibrators were fitted on these "
        "images; test results, accuracy and the ECE null are in the tables."
    )


def draw_fit_course(frame: FigureData) -> Figure:
    """Draw a path per calibrator that is fitted iteratively, and a point per other calibrator."""
    figure, ax = style.subplots(style.WIDTH, 4.6)
    looks, known = {}, names_with_looks(frame.study)
    for name in among(NAMES, frame.rows["calibrator"]):
        looks[name] = look = style.dot(markersize=6, **style.marker_look(known, name))
        rows = frame.rows[frame.rows["calibrator"] == name]
        rows = rows.assign(ece=100 * rows["ece"])
        path, kept = rows[~rows["kept"]], rows[rows["kept"]]
        if len(path):
            ax.plot(path["ece"], path["nll"], color=look["color"], linewidth=1.2, alpha=0.8)
            hollow = {**look, "markerfacecolor": "none", "markersize": 8}
            ax.plot(path["ece"][:1], path["nll"][:1], **hollow)
        ax.plot(kept["ece"], kept["nll"], **look)
    x, y = (f"{text.in_unit(metric)} of the validation images" for metric in ("ece", "nll"))
    ax.set(xlabel=x, ylabel=y)
    return style.finished(figure, style.handles(looks))


# Figures 2 and 3: SMART's fit with different objectives: loss, gradient, ECE and NLL by epoch
# --------------------------------------------------------------------------------------------------

#: column -> label, factor, and the ratio of values above which the axis is logarithmic
PANELS = {
    "loss": ("Loss / its first value", 1, 15),
    "gradient": ("Norm of the gradient", 1, 15),
    "ece": ("ECE (%)", 100, 15),
    "nll": ("NLL (nats)", 1, 2),
}


def fit_objectives_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Traces of at least two fits that differ in their objective only; losses are divided by their
    first value.

    The column ``best_epoch`` is the epoch whose weights were kept.
    """
    rows = diagnosed(data, group, FITS)
    rows = rows[rows["id"] == MAIN]
    if rows["calibrator"].nunique() < 2:
        return rows.iloc[:0]
    best = rows[rows["kept"]].set_index("calibrator")["epoch"]
    course = rows[~rows["kept"]].assign(best_epoch=rows["calibrator"].map(best))
    return course.assign(
        loss=course["loss"] / course.groupby("calibrator")["loss"].transform("first").abs()
    )


def fit_objectives_caption(frame: FigureData) -> str:
    return (
        f"Fits of {MAIN} that differ in their objective only, by epoch, on the "
        f"{frame.rows['n_samples'].iloc[0]:,} validation images used for fitting; {whose(frame)}. "
        "Objectives are different functions, so each loss is divided by its first value; "
        "gradient: L2 norm with respect to the weights of the network, not scaled; ECE (15 bins) "
        "and NLL every 20th epoch. A fit stops after 200 epochs without a lower loss, and the "
        "weights of its lowest loss are kept (circles). Test results, accuracy and the ECE null "
        "are in the tables."
    )


def draw_fit_objectives(frame: FigureData) -> Figure:
    """Draw one line per objective."""
    names = sorted(frame.rows["calibrator"].unique(), key=frame.study.calibrators.index)
    figure, axes = style.subplots(style.WIDTH, 5.6, 2, 2, sharex=True)
    for ax, (column, (label, factor, span)) in zip(axes.ravel(), PANELS.items(), strict=True):
        for name in names:
            rows = frame.rows[(frame.rows["calibrator"] == name) & frame.rows[column].notna()]
            epochs, values = rows["epoch"].to_numpy(), factor * rows[column].to_numpy()
            look = style.line_look(names, name)
            ax.plot(epochs, values, linewidth=1.3, **look)
            # a circle at the epoch nearest to the one of the kept weights
            kept = [np.abs(epochs - rows["best_epoch"].to_numpy()).argmin()]
            ax.plot(epochs[kept], values[kept], color=look["color"], marker="o", markersize=5)
        ax.set_ylabel(label)
        values = factor * frame.rows[column].to_numpy()
        values = values[values > 0]
        if len(values):
            style.log_if_wide(ax, values, span, 1.3)
    for ax in axes[-1]:
        ax.set_xlabel("Epoch of the fit")
    return style.finished(figure, style.line_handles(names), columns=4)


# Figure 2: temperature for a fixed confidence against inputs of a calibrator
# --------------------------------------------------------------------------------------------------

VECTORS = 1000
#: range of the factors of the random logits, uniform in the logarithm
SCALES = (1.0, 10.0)
SEED = 0
BOUND = "#d55e00"
#: input -> label
INDICATORS = {
    "margin": "Margin",
    "largest_logit": "Largest logit",
    "logit_excess": "Largest minus mean logit",
}


def solved_temperature_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Indicators and solved temperature of random logit vectors and of test images (column
    ``vectors``).
    """
    rows = diagnosed(data, group, MARGINS)
    rows = rows[rows["solved_temperature"].notna() | rows["largest_logit"].notna()]
    if rows.empty:
        return rows
    n_classes = int(rows["n_classes"].iloc[0])
    random = indicators(random_vectors(n_classes)).assign(n_classes=n_classes, seed=SEED)
    parts = [rows.assign(vectors="test images"), random.assign(vectors="random vectors")]
    return pd.concat(parts, ignore_index=True)


def solved_temperature_caption(frame: FigureData) -> str:
    return (
        f"Temperature at which the confidence of a logit vector is {CONFIDENCE:g}, against three "
        f"possible inputs of a calibrator. Above, {VECTORS:,} random vectors of "
        f"{frame.rows['n_classes'].iloc[0]} independent normal logits times a factor between "
        f"{SCALES[0]:g} and {SCALES[1]:g} (the paper does not specify its distribution); below, at "
        f"most {VECTORS:,} evenly chosen images of the clean test split, {whose(frame)}. Lines: "
        "bounds on the temperature from the margin alone. The largest logit also depends on a "
        "constant added to all logits, which does not change the softmax. ρ: Spearman's rank "
        "correlation. The figure shows how well each input determines the temperature for one "
        "confidence; results of calibrators, accuracy, NLL and the ECE null are in the tables."
    )


def draw_solved_temperature(frame: FigureData) -> Figure:
    """Draw one column per indicator; random vectors above, test images below."""
    figure, axes = style.subplots(style.WIDTH, 5.4, 2, len(INDICATORS), sharey="row")
    for line, said in zip(axes, ("random vectors", "test images"), strict=True):
        rows = frame.rows[frame.rows["vectors"] == said]
        for ax, indicator in zip(line, INDICATORS, strict=True):
            shown = rows[np.isfinite(rows[[indicator, "solved_temperature"]]).all(axis=1)]
            x, y = shown[indicator], shown["solved_temperature"]
            ax.scatter(x, y, 5, color=COLOUR, alpha=0.35, linewidths=0, rasterized=True)
            ax.set_yscale("log")
            rho = points.correlation(shown, indicator, "solved_temperature")
            ax.set_title(f"ρ = {rho}")
            if indicator == "margin":
                # m / -log(S / (K - 1)) <= T <= m / -log S, S = 1 / confidence - 1 (Sec. 3.2)
                known = rows.loc[np.isfinite(rows["margin"]) & (rows["margin"] > 0), "margin"]
                reach, odds = np.geomspace(known.min(), known.max(), 100), 1 / CONFIDENCE - 1
                for share in (odds / (rows["n_classes"].iloc[0] - 1), odds):
                    ax.plot(reach, reach / -np.log(share), color=BOUND, linewidth=1)
        line[0].set_ylabel(f"Temperature\n({said})")
    for ax, label in zip(axes[-1], INDICATORS.values(), strict=True):
        ax.set_xlabel(label)
    looks = {
        "logit vector": style.dot(color=COLOUR, markersize=4),
        "bounds by the margin": {"color": BOUND},
    }
    return style.finished(figure, style.handles(looks))


def random_vectors(n_classes: int) -> Floats:
    """Return 1,000 random logit vectors (1000, K), the same for the same K."""
    rng = np.random.default_rng([SEED, n_classes])
    factor = np.exp(rng.uniform(np.log(SCALES[0]), np.log(SCALES[1]), size=(VECTORS, 1)))
    return factor * rng.normal(size=(VECTORS, n_classes))


# Figure 16: temperature learned by SMART against its input, the logit margin
# --------------------------------------------------------------------------------------------------

MARGIN_BINS = 40


def margin_temperature_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Margin of each validation and test image, temperature of each test image, and the one of
    temperature scaling.
    """
    rows = diagnosed(data, group, MARGINS)
    rows = rows[np.isfinite(rows["margin"])]
    fitted = diagnosed(data, group, FITS)
    single = fitted.loc[(fitted["calibrator"] == "ts") & fitted["kept"], "temperature"]
    return rows.assign(single=single.iloc[0] if len(single) else np.nan)


def margin_temperature_caption(frame: FigureData) -> str:
    return (
        f"Temperature of smart against the margin between the two largest logits, {whose(frame)}, "
        f"for the {frame.images} of the clean test split: above 1 softens, below 1 sharpens. "
        "Outside the margins of the validation images (shaded), smart extrapolates. Dashed: the "
        "temperature of temperature scaling. r: Pearson's correlation of margin and temperature "
        "over test images. Below, the share of test images by margin. Accuracy, NLL and ECE are "
        "in the tables."
    )


def draw_margin_temperature(frame: FigureData) -> Figure:
    """Draw the curve over a histogram of the margins."""
    test = frame.rows[frame.rows["split"] == "test"]
    seen = frame.rows.loc[frame.rows["split"] == "val", "margin"]
    margin, temperature = test["margin"].to_numpy(), test["temperature"].to_numpy()
    figure, (upper, lower) = style.subplots(
        style.WIDTH, 5.0, 2, sharex=True, gridspec_kw={"height_ratios": [3, 1]}
    )
    order = np.argsort(margin)
    upper.axvspan(seen.min(), seen.max(), color="0.94", zorder=0)
    upper.plot(margin[order], temperature[order], color=COLOUR, linewidth=1.8)
    r = points.correlation(test, "margin", "temperature", "pearson")
    handles = [style.handle(color=COLOUR, label=f"smart (r = {r})")]
    single = frame.rows["single"].iloc[0]
    if not np.isnan(single):
        upper.axhline(single, color=style.GREY, linestyle="--", linewidth=1)
        handles.append(style.handle(color=style.GREY, linestyle="--", label=f"ts ({single:.2f})"))
    upper.set(ylabel="Temperature", ylim=(0, None))
    shares = np.full(len(margin), 100 / len(margin))
    lower.hist(margin, MARGIN_BINS, weights=shares, color="0.55", edgecolor="white")
    lower.set(ylabel="Images (%)", xlabel="Margin (logits)")
    figure.align_ylabels()
    return style.finished(figure, handles)


# Figures 1 and 15: reliability by groups of the logit margin
# --------------------------------------------------------------------------------------------------

#: groups of equal size by margin, and bins of equal size by confidence within each group
GROUPS, GROUP_BINS = 4, 6
#: from the smallest margins to the largest
COLOURS = ("#d55e00", "#de8f05", "#029e73", "#0173b2")
LEVEL = 0.95


def margin_reliability_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Sums over images of similar margin: one row per calibrator, margin group and bin of the
    confidence.

    Columns: calibrator, quarter (0 = the smallest margins), bin (-1 = all images of the group), low
    and high (ends of the margins), count, confidence, correct.
    """
    rows = diagnosed(data, group, MARGINS)
    rows = rows[rows["split"] == "test"]
    parts = []
    for name in COMPARED:
        confidence = rows[f"confidence_{name}"]
        if confidence.notna().any():
            parts.append(_sums(rows, confidence.to_numpy()).assign(calibrator=name))
    return pd.concat(parts).assign(**rows[["method", "seed"]].iloc[0]) if parts else pd.DataFrame()


def _sums(rows: pd.DataFrame, confidence: np.ndarray) -> pd.DataFrame:
    """Rows of all groups and bins; groups and bins have nearly equal sizes, ties in the order of
    the images.
    """
    margin, correct = rows["margin"].to_numpy(), rows["correct"].to_numpy()
    found = []
    for quarter, own in enumerate(np.array_split(np.argsort(margin, kind="stable"), GROUPS)):
        bins = np.array_split(own[np.argsort(confidence[own], kind="stable")], GROUP_BINS)
        for place, images in enumerate([own, *bins], start=-1):
            if len(images):
                sums = (len(images), confidence[images].sum(), correct[images].sum())
                found.append((quarter, place, margin[own[0]], margin[own[-1]], *sums))
    return pd.DataFrame(
        found, columns=["quarter", "bin", "low", "high", "count", "confidence", "correct"]
    )


def margin_reliability_caption(frame: FigureData) -> str:
    return (
        f"Reliability by margin between the two largest logits, {whose(frame)}: the {frame.images} "
        f"of the clean test split in {GROUPS} groups of equal size by the margin of the "
        f"uncalibrated logits. Above, accuracy against confidence in {GROUP_BINS} bins of equal "
        "size per group; dashed: perfect calibration. Below, mean confidence minus accuracy of "
        "each group (percentage points; above 0 is over-confident) with 95 % intervals for the "
        "sampling error of the accuracy (Wilson). The calibrators shown do not change predicted "
        "classes, so all columns have the same accuracy; NLL, Brier score and the ECE null are in "
        "the tables."
    )


def draw_margin_reliability(frame: FigureData) -> Figure:
    """Draw one column per calibrator."""
    shown = frame.parts("calibrator")
    ratios, ticks = {"height_ratios": [3, 2]}, (0, 50, 100)
    figure, axes = style.subplots(
        style.WIDTH, 5.4, 2, len(shown), sharey="row", squeeze=False, gridspec_kw=ratios
    )
    for upper, lower, (name, rows) in zip(*axes, shown.items(), strict=True):
        upper.plot([0, 100], [0, 100], color=style.GREY, linestyle="--", linewidth=1)
        for quarter, bins in rows[rows["bin"] >= 0].groupby("quarter"):
            confidence = 100 * bins["confidence"] / bins["count"]
            accuracy = 100 * bins["correct"] / bins["count"]
            upper.plot(confidence, accuracy, linewidth=1, **_look(quarter))
        upper.set(xlim=(0, 102), ylim=(0, 102), xticks=ticks, yticks=ticks)
        upper.set_xlabel("Confidence (%)")
        _gaps(lower, rows[rows["bin"] < 0])
        upper.set_title("uncalibrated" if name == UNCALIBRATED else name)
    axes[0, 0].set_ylabel("Accuracy (%)")
    axes[1, 0].set_ylabel("Confidence −\naccuracy (points)")
    figure.align_ylabels()
    handles = [
        style.handle(label=f"{row.low:.1f} to {row.high:.1f}", **_look(row.quarter))
        for row in frame.rows.drop_duplicates("quarter").itertuples()
    ]
    return style.finished(figure, handles, title="margin (logits)")


def _look(quarter: int) -> style.Look:
    return {"color": COLOURS[quarter], "marker": "o", "markersize": 4}


def _gaps(ax: Axes, groups: pd.DataFrame) -> None:
    for place, row in enumerate(groups.itertuples()):
        gap = 100 * (row.confidence - row.correct) / row.count
        ax.bar([place], gap, 0.7, color=COLOURS[row.quarter], alpha=0.75)
        accuracies = np.array(wilson_interval(row.correct / row.count, row.count, LEVEL))
        ends = 100 * (row.confidence / row.count - accuracies)
        ax.vlines([place], *ends, color="black", linewidth=1.2)
    ax.axhline(0, color=style.GREY, linewidth=1)
    ax.grid(axis="x", visible=False)
    labels = ["smallest", *[""] * (len(groups) - 2), "largest"]
    ax.set_xticks(range(len(groups)), labels[: len(groups)])
    ax.set_xlabel("Margin")


# Figure 1a: smallest FGSM perturbation that changes the class, against the margin
# --------------------------------------------------------------------------------------------------

CENSORED: style.Look = {
    "marker": "^",
    "facecolors": "none",
    "edgecolors": "0.35",
    "linewidths": 0.7,
    "s": 14,
}


#: margin and smallest perturbation of each image
fgsm_margin_rows = functools.partial(probed, id="margin_attack", options=("eps_max",))


def fgsm_margin_caption(frame: FigureData) -> str:
    images = frame.rows.groupby(["name", "seed"]).size().max()
    return (
        f"Smallest FGSM perturbation that changes the predicted class on {frame.label}, against "
        f"the margin between the two largest logits. Shown: {images:,} images of the clean test "
        f"split, the same for every network; {seeds(frame.rows)}, at most {points.POINTS:,} "
        "evenly chosen points per panel. The perturbation is the L-infinity norm in pixel values "
        "from 0 to 1, along the sign of the gradient for the predicted class, even if that class "
        "is wrong. ρ: Spearman's rank correlation over the n images of a run; r: Pearson's "
        "correlation over the flipped images; for several seeds, mean ± standard "
        "deviation. Open triangles: not "
        f"flipped up to {frame.rows['eps_max'].iloc[0]:g}, which is ranked as the largest in ρ. A "
        "correlation of the margin with the distance to the decision boundary does not imply "
        "calibration."
    )


def draw_fgsm_margin(frame: FigureData) -> Figure:
    """Draw one panel per method."""
    figure, panels = points.panels(frame.parts("name"), height=2.4)
    for ax, name, table in panels:
        chosen = points.spread_out(table)
        points.scatter_answers(ax, chosen[~chosen["censored"]], "margin", "epsilon")
        rest = chosen[chosen["censored"]]
        ax.scatter(rest["margin"], rest["epsilon"], rasterized=True, **CENSORED)
        rho = points.correlation(table, "margin", "epsilon")
        r = points.correlation(table[~table["censored"]], "margin", "epsilon", "pearson")
        images = f"n = {table['seed'].value_counts().min():,}"
        if share := 100 * table["censored"].mean():
            images += f", not flipped {share:.1f} %"
        points.title(ax, name, f"ρ = {rho}", f"r = {r}", images)
    figure.axes[0].set(xlim=(0, None), ylim=(0, None))
    handles = points.answer_handles()
    if frame.rows["censored"].any():
        look = {"markerfacecolor": "none", "markeredgecolor": CENSORED["edgecolors"]}
        handles += style.handles({"not flipped": style.dot(marker="^", markersize=5, **look)})
    names = "Margin (logits)", "Smallest perturbation (pixel value)"
    return style.finished(figure, handles, *names)
