"""Smallest FGSM perturbation that changes the predicted class, against the logit margin (SMART,
Figure 1a).
"""

import pandas as pd
from matplotlib.figure import Figure

from calgrid.report.figure import FigureData
from calgrid.report.plotting import points, style
from calgrid.report.probes import probed, seeds
from calgrid.report.study import Group, StudyData

CENSORED: style.Look = {
    "marker": "^",
    "facecolors": "none",
    "edgecolors": "0.35",
    "linewidths": 0.7,
    "s": 14,
}


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Margin and smallest perturbation of each image."""
    return probed(data, group, "margin_attack", ("eps_max",))


def caption(frame: FigureData) -> str:
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


def draw(frame: FigureData) -> Figure:
    """Draw one panel per method."""
    tables = frame.parts("name")
    figure, axes = points.panels(len(tables), height=2.4)
    for ax, (name, table) in zip(axes, tables.items(), strict=True):
        chosen = points.spread_out(table)
        points.scatter_answers(ax, chosen[~chosen["censored"]], "margin", "epsilon")
        rest = chosen[chosen["censored"]]
        ax.scatter(rest["margin"], rest["epsilon"], rasterized=True, **CENSORED)
        points.title(ax, name, _facts(table))
    axes[0].set_xlim(0, None)
    axes[0].set_ylim(0, None)
    handles = points.answer_handles()
    if frame.rows["censored"].any():
        look = {"markerfacecolor": "none", "markeredgecolor": CENSORED["edgecolors"]}
        handles += style.handles({"not flipped": style.dot(marker="^", markersize=5, **look)})
    names = "Margin (logits)", "Smallest perturbation (pixel value)"
    return points.finished(figure, handles, *names)


def _facts(table: pd.DataFrame) -> str:
    rho = points.correlation(table, "margin", "epsilon")
    r = points.correlation(table[~table["censored"]], "margin", "epsilon", "pearson")
    images = f"{table['seed'].value_counts().min():,}"
    share = 100 * table["censored"].mean()
    return f"ρ = {rho}\nr = {r}\nn = {images}" + (f", not flipped {share:.1f} %" if share else "")
