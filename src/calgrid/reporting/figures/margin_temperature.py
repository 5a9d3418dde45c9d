"""Temperature that SMART learned, against the logit margin that it reads (SMART, Figure 16)."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.reporting import text
from calgrid.reporting.figures import _fits, _style
from calgrid.reporting.study import Group, StudyData

BINS = 40
COLOUR = "#0173b2"


def caption(data: StudyData, group: Group) -> str:
    """Say what the curve shows."""
    return (
        f"Temperature of smart against the margin between the two largest logits, {_fits.whose(data, group)}, for the "
        f"{data.test_samples(group):,} images of the clean test split: above 1 softens, below 1 sharpens. Where the "
        "curve leaves the margins of the validation images (shaded), the network extrapolates. Dashed: the "
        "temperature of temperature scaling. r: Pearson's correlation of margin and temperature over test images. "
        "Below, the share of test images by margin. The curve says nothing of accuracy, NLL or ECE, which are in the "
        "tables."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw the curve over a histogram of the margins."""
    fits = _fits.fits(data, group)
    if fits is None:
        return None
    seen, margin = (_finite(_fits.margins(fits.logits(split))) for split in ("val", "test"))
    temperature = fits.calibrators[_fits.MAIN].temperature(margin)
    figure = _style.new_figure(_style.WIDTH, 5.0)
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1]})
    order = np.argsort(margin)
    upper.axvspan(seen.min(), seen.max(), color="0.94", zorder=0)
    upper.plot(margin[order], temperature[order], color=COLOUR, linewidth=1.8)
    handles = [Line2D([], [], color=COLOUR, label=f"smart (r = {_correlation(margin, temperature)})")]
    if "ts" in fits.calibrators:
        single = fits.calibrators["ts"].fit_history["temperature"]
        upper.axhline(single, color=_style.GREY, linestyle="--", linewidth=1)
        handles.append(Line2D([], [], color=_style.GREY, linestyle="--", label=f"ts ({single:.2f})"))
    upper.set_ylabel("Temperature")
    upper.set_ylim(0, None)
    lower.hist(margin, BINS, weights=np.full(len(margin), 100 / len(margin)), color="0.55", edgecolor="white")
    lower.set_ylabel("Images (%)")
    lower.set_xlabel("Margin (logits)")
    figure.align_ylabels()
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return figure


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _correlation(margin: np.ndarray, temperature: np.ndarray) -> str:
    varies = margin.std() > 0 and temperature.std() > 0
    return text.decimal(float(np.corrcoef(margin, temperature)[0, 1]) if varies else float("nan"), 2)
