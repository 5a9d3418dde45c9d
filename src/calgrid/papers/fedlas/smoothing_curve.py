"""Smoothing of a sample by FeDLaS against its indicator, in both modes of the gate (FeDLaS, Figure
2b).
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import expit

from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.histories import last_samples, loss_options, sampled_epochs
from calgrid.report.plotting import points, style
from calgrid.report.study import Group, StudyData

#: sign of the gate -> colour and name of the mode, as in the paper
MODES = {1: ("#0173b2", "positive mode"), -1: ("#d55e00", "negative mode")}
#: share of the samples outside each end of the axis, and the least range shown to each side
TAIL, LEAST = 0.005, 3.0
POINTS, BINS = 200, 30


def collect(data: StudyData, group: Group) -> pd.DataFrame:
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


def caption(frame: FigureData) -> str:
    seeds = int(frame.rows.groupby("method")["seed"].nunique().max())
    return (
        "Strength of the regulariser of FeDLaS for a sample, 2α sigmoid(±βγ), against its "
        f"indicator γ, on {frame.setting}: increasing in positive mode, decreasing in negative "
        "mode, α at γ = 0. Below, the share of training samples by indicator and mode in the last "
        f"sampled epoch ({sampled_epochs(frame.rows)}), {text.count(seeds, 'seed')} together. The "
        "curves follow from the configuration, the bars are measured. Samples in the outer "
        f"{100 * TAIL:g} % at each end lie outside the axes."
    )


def draw(frame: FigureData) -> Figure:
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
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    figure.supxlabel("Indicator γ (standardised)", fontsize=9)
    return figure
