"""Temperature for a fixed confidence against candidate inputs of a calibrator (SMART, Figure 2)."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from calgrid.papers.smart.diagnostics import MARGINS
from calgrid.papers.smart.fits import diagnosed, whose
from calgrid.papers.smart.margins import CONFIDENCE, indicators
from calgrid.report.figure import FigureData
from calgrid.report.plotting import points, style
from calgrid.report.study import Group, StudyData

Floats = NDArray[np.float64]
VECTORS = 1000
#: range of the factors of the random logits, uniform in the logarithm
SCALES = (1.0, 10.0)
SEED = 0
COLOUR, BOUND = "#0173b2", "#d55e00"
#: input -> label
INDICATORS = {
    "margin": "Margin",
    "largest_logit": "Largest logit",
    "logit_excess": "Largest minus mean logit",
}


def collect(data: StudyData, group: Group) -> pd.DataFrame:
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


def caption(frame: FigureData) -> str:
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


def draw(frame: FigureData) -> Figure:
    """Draw one column per indicator; random vectors above, test images below."""
    figure = style.new_figure(style.WIDTH, 5.4)
    axes = figure.subplots(2, len(INDICATORS), sharey="row", squeeze=False)
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
                _bounds(ax, rows[indicator].to_numpy(), int(rows["n_classes"].iloc[0]))
        line[0].set_ylabel(f"Temperature\n({said})")
    for ax, label in zip(axes[-1], INDICATORS.values(), strict=True):
        ax.set_xlabel(label)
    looks = {
        "logit vector": style.dot(color=COLOUR, markersize=4),
        "bounds by the margin": {"color": BOUND},
    }
    figure.legend(handles=style.handles(looks), loc="outside upper center", ncols=2)
    return figure


def random_vectors(n_classes: int) -> Floats:
    """Return 1,000 random logit vectors (1000, K), the same for the same K."""
    rng = np.random.default_rng([SEED, n_classes])
    factor = np.exp(rng.uniform(np.log(SCALES[0]), np.log(SCALES[1]), size=(VECTORS, 1)))
    return factor * rng.normal(size=(VECTORS, n_classes))


def _bounds(ax: Axes, margins: Floats, n_classes: int) -> None:
    """Draw ``m / -log(S / (K - 1)) <= T <= m / -log S``, ``S = 1 / confidence - 1`` (Sec. 3.2)."""
    odds = 1 / CONFIDENCE - 1
    known = margins[np.isfinite(margins) & (margins > 0)]
    reach = np.geomspace(known.min(), known.max(), 100)
    for share in (odds / (n_classes - 1), odds):
        ax.plot(reach, reach / -np.log(share), color=BOUND, linewidth=1)
