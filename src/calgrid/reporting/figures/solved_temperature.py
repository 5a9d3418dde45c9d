"""Temperature that gives a logit vector a fixed confidence, against what a calibrator could read (SMART, Figure 2)."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from calgrid.calibrators._indicators import margin, max_minus_mean
from calgrid.reporting import text
from calgrid.reporting.figures import _fits, _style
from calgrid.reporting.study import Group, StudyData

Floats = NDArray[np.float64]
CONFIDENCE = 0.8
VECTORS = 1000
#: factors of the random logits, drawn evenly by their logarithm
SCALES = (1.0, 10.0)
SEED = 0
#: temperatures between which a solution is looked for, as powers of ten, and halvings of that interval
POWERS, HALVINGS = (-6.0, 6.0), 60
COLOUR, BOUND = "#0173b2", "#d55e00"
#: what is read -> label
INDICATORS = {"margin": "Margin", "largest": "Largest logit", "excess": "Largest minus mean logit"}


def caption(data: StudyData, group: Group) -> str:
    """Say what the points are."""
    test = _fits.fits(data, group).logits("test")
    return (
        f"Temperature at which the confidence of a logit vector is {CONFIDENCE:g}, against three numbers that a "
        f"calibrator could read. Above, {VECTORS:,} random vectors of {test.logits.shape[1]} independent normal logits "
        f"times a factor between {SCALES[0]:g} and {SCALES[1]:g} (the paper does not say how it drew its vectors); "
        f"below, at most {VECTORS:,} evenly chosen images of the clean test split, {_fits.whose(data, group)}. Lines: "
        "the bounds that the margin alone puts on the temperature. The largest logit by itself also depends on the "
        "level of the logits, which the softmax does not see. ρ: Spearman's rank correlation. The figure says "
        "how far a number determines the temperature for one confidence; how well a calibrator that reads it does is "
        "in the tables, with accuracy, NLL and the ECE null."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one column an indicator; random vectors above, test images below."""
    fits = _fits.fits(data, group)
    if fits is None:
        return None
    images = fits.logits("test").logits.astype(np.float64)
    images = images[np.linspace(0, len(images) - 1, min(VECTORS, len(images))).round().astype(int)]
    rows = {"random vectors": random_vectors(images.shape[1]), "test images": images}
    figure = _style.new_figure(_style.WIDTH, 5.4)
    axes = figure.subplots(len(rows), len(INDICATORS), sharey="row", squeeze=False)
    for line, (said, logits) in zip(axes, rows.items(), strict=True):
        temperature = solved(logits, CONFIDENCE)
        for ax, (indicator, values) in zip(line, _read(logits).items(), strict=True):
            _points(ax, values, temperature)
            if indicator == "margin":
                _bounds(ax, values, logits.shape[1])
        line[0].set_ylabel(f"Temperature\n({said})")
    for ax, label in zip(axes[-1], INDICATORS.values(), strict=True):
        ax.set_xlabel(label)
    handles = [
        Line2D([], [], color=COLOUR, marker="o", linestyle="", markersize=4, label="logit vector"),
        Line2D([], [], color=BOUND, label="bounds by the margin"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return figure


def random_vectors(n_classes: int) -> Floats:
    """Return 1,000 random logit vectors (1000, K), the same for the same K."""
    rng = np.random.default_rng([SEED, n_classes])
    factor = np.exp(rng.uniform(*np.log(SCALES), size=(VECTORS, 1)))
    return factor * rng.normal(size=(VECTORS, n_classes))


def solved(logits: Floats, confidence: float) -> Floats:
    """Temperature (N,) at which ``softmax(z / T)`` of logits (N, K) has its largest entry at ``confidence``.

    The largest entry falls from 1 to 1/K as T rises, so that the solution is unique: it is found by bisection of log T
    to 1 part in 10^15. NaN where there is none: two largest logits, or a confidence of 1/K or less.
    """
    below = logits - logits.max(axis=1, keepdims=True)
    low, high = (np.full(len(logits), power) for power in POWERS)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        too_sure = np.exp(below / 10.0 ** middle[:, None]).sum(axis=1) < 1 / confidence
        low, high = np.where(too_sure, middle, low), np.where(too_sure, high, middle)
    found = (low > POWERS[0]) & (high < POWERS[1])
    return np.where(found, 10.0 ** ((low + high) / 2), np.nan)


def _read(logits: Floats) -> dict[str, Floats]:
    """Numbers (N,) that a calibrator could read, in the order of ``INDICATORS``."""
    largest = logits.max(axis=1)
    below = logits - largest[:, None]
    return {"margin": margin(below)[0], "largest": largest, "excess": max_minus_mean(below)[0]}


def _points(ax: Axes, values: Floats, temperature: Floats) -> None:
    known = np.isfinite(values) & np.isfinite(temperature)
    ax.scatter(values[known], temperature[known], 5, color=COLOUR, alpha=0.35, linewidths=0, rasterized=True)
    ax.set_yscale("log")
    ranks = pd.DataFrame({"value": values[known], "temperature": temperature[known]}).rank()
    ax.set_title(f"ρ = {text.decimal(ranks['value'].corr(ranks['temperature']), 2)}")


def _bounds(ax: Axes, margins: Floats, n_classes: int) -> None:
    """Draw ``m / -log(S / (K - 1)) <= T <= m / -log S`` with ``S = 1 / confidence - 1`` (Sec. 3.2)."""
    odds = 1 / CONFIDENCE - 1
    known = margins[np.isfinite(margins) & (margins > 0)]
    reach = np.geomspace(known.min(), known.max(), 100)
    for share in (odds / (n_classes - 1), odds):
        ax.plot(reach, reach / -np.log(share), color=BOUND, linewidth=1)
