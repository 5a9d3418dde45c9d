"""Draw before_after.png from the Parquet files beside it.

python docs/cifar10/figure.py                      # or with a folder for the picture
"""

import sys
import zipfile
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from scipy.stats import t

from calgrid.report.plotting import style

HERE = Path(__file__).parent
LOSSES = ["ce", "ls", "fedlas_ls", "mbls", "fedlas_mbls"]
#: calibrator -> label and height above the line of a method
CALIBRATORS = {"none": ("before", -0.14), "ts": ("after one temperature", 0.14)}


@mpl.rc_context(style.RC)
def draw(folder: Path) -> None:
    """Draw the picture."""
    crops, second, fit = (
        pd.read_parquet(HERE / f"{name}.parquet").query("shift == '' and against == 'ce'")
        for name in ("crops", "second", "fit")
    )
    again = second[second["method"].isin(["acls", "tst", "maccal"])]
    name = "bank_93/summary.parquet"
    with zipfile.ZipFile(HERE / "bank_93.zip") as bank, bank.open(name) as file:
        wide = pd.read_parquet(file).query("split == 'test'")
    at_93 = ["ce", "ls", "fedlas_ls", "maccal"]
    parts = {
        "93 % accuracy: crops and flips, a wider network": (wide, at_93),
        "89 %: crops and flips": (pd.concat([crops, again]), [*LOSSES, "acls", "tst", "maccal"]),
        "85 %: training images fitted": (fit, [*LOSSES, "tst", "maccal", "maccal+mbls"]),
    }
    figure = style.new_figure(style.WIDTH, 6.8)
    heights = [len(methods) for _, methods in parts.values()]
    axes = figure.subplots(3, 2, sharex="col", sharey="row", height_ratios=heights)
    for line, (title, (frame, methods)) in zip(axes, parts.items(), strict=True):
        rows = frame.set_index(["method", "calibrator", "metric"]).sort_index()
        for ax, metric, scale in zip(line, ("ece_debiased", "nll"), (100, 1), strict=True):
            style.stripes(ax, methods)
            for calibrator, (label, above) in CALIBRATORS.items():
                points = rows.loc[[(method, calibrator, metric) for method in methods]]
                root = points["n_seeds"] ** 0.5
                half = t.ppf(0.975, points["n_seeds"] - 1) * points["std"] / root
                places = [place + above for place in range(len(methods))]
                look = style.marker_look(list(CALIBRATORS), calibrator)
                bars = {"xerr": scale * half, "linestyle": "", "markersize": 4.5, "label": label}
                ax.errorbar(scale * points["mean"], places, elinewidth=1.4, **bars, **look)
        line[0].set_title(title, loc="left")
    axes[0, 0].set_xlim(left=0)
    for ax, label in zip(axes[-1], ("ECE debiased (%)", "NLL (nats)"), strict=True):
        ax.set_xlabel(label)
    style.finished(figure, axes[0, 0].get_legend_handles_labels()[0])
    figure.savefig(folder / "before_after.png", metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
