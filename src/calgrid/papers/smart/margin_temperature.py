"""Temperature learned by SMART against its input, the logit margin (SMART, Figure 16)."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from calgrid.papers.smart.diagnostics import FITS, MARGINS
from calgrid.papers.smart.fits import diagnosed, whose
from calgrid.report.figure import FigureData
from calgrid.report.plotting import points, style
from calgrid.report.study import Group, StudyData

BINS = 40
COLOUR = "#0173b2"


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Margin of each validation and test image, the temperature of the latter, and that of
    temperature scaling.
    """
    rows = diagnosed(data, group, MARGINS)
    rows = rows[np.isfinite(rows["margin"])]
    fitted = diagnosed(data, group, FITS)
    single = fitted.loc[(fitted["calibrator"] == "ts") & fitted["kept"], "temperature"]
    return rows.assign(single=single.iloc[0] if len(single) else np.nan)


def caption(frame: FigureData) -> str:
    return (
        f"Temperature of smart against the margin between the two largest logits, {whose(frame)}, "
        f"for the {frame.images} of the clean test split: above 1 softens, below 1 sharpens. "
        "Outside the margins of the validation images (shaded), smart extrapolates. Dashed: the "
        "temperature of temperature scaling. r: Pearson's correlation of margin and temperature "
        "over test images. Below, the share of test images by margin. Accuracy, NLL and ECE are "
        "in the tables."
    )


def draw(frame: FigureData) -> Figure:
    """Draw the curve over a histogram of the margins."""
    test = frame.rows[frame.rows["split"] == "test"]
    seen = frame.rows.loc[frame.rows["split"] == "val", "margin"]
    margin, temperature = test["margin"].to_numpy(), test["temperature"].to_numpy()
    figure = style.new_figure(style.WIDTH, 5.0)
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1]})
    order = np.argsort(margin)
    upper.axvspan(seen.min(), seen.max(), color="0.94", zorder=0)
    upper.plot(margin[order], temperature[order], color=COLOUR, linewidth=1.8)
    r = points.correlation(test, "margin", "temperature", "pearson")
    handles = [style.handle(color=COLOUR, label=f"smart (r = {r})")]
    single = frame.rows["single"].iloc[0]
    if not np.isnan(single):
        upper.axhline(single, color=style.GREY, linestyle="--", linewidth=1)
        handles.append(style.handle(color=style.GREY, linestyle="--", label=f"ts ({single:.2f})"))
    upper.set_ylabel("Temperature")
    upper.set_ylim(0, None)
    shares = np.full(len(margin), 100 / len(margin))
    lower.hist(margin, BINS, weights=shares, color="0.55", edgecolor="white")
    lower.set_ylabel("Images (%)")
    lower.set_xlabel("Margin (logits)")
    figure.align_ylabels()
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return figure
