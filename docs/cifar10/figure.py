"""Draw before_after.png from the Parquet files beside it.

python docs/cifar10/figure.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from scipy.stats import t

HERE = Path(__file__).parent

crops, second, fit = (
    pd.read_parquet(HERE / f"{name}.parquet").query("shift == '' and against == 'ce'")
    for name in ("crops", "second", "fit")
)
again = second[second["method"].isin(["acls", "tst", "maccal"])]
losses = ["ce", "ls", "fedlas_ls", "mbls", "fedlas_mbls"]
frames = {
    "crops and flips": (pd.concat([crops, again]), [*losses, "acls", "tst", "maccal"]),
    "training images fitted": (fit, [*losses, "tst", "maccal", "maccal+mbls"]),
}
figure, axes = plt.subplots(1, 2, figsize=(8, 5.6), sharey=True, layout="constrained")
names, begin = {}, 0.0
for title, (frame, shown) in frames.items():
    rows = frame.set_index(["method", "calibrator", "metric"]).sort_index()
    height = {method: begin - number for number, method in enumerate(shown)}
    names |= {y: method for method, y in height.items()}
    for ax, metric, scale in zip(axes, ("ece_debiased", "nll"), (100, 1), strict=True):
        for calibrator, colour, shift in (("none", "#de8f05", 0.13), ("ts", "#0173b2", -0.13)):
            points = rows.loc[[(method, calibrator, metric) for method in shown]]
            half = t.ppf(0.975, points["n_seeds"] - 1) * points["std"] / points["n_seeds"] ** 0.5
            label = {"none": "before", "ts": "after one temperature"}[calibrator]
            ax.errorbar(
                scale * points["mean"],
                [height[method] + shift for method in shown],
                xerr=scale * half,
                fmt="o",
                ms=4.5,
                color=colour,
                capsize=2,
                label=label if begin == 0 else None,
            )
    axes[1].annotate(
        title.replace(" ", "\n", 1),
        (1.01, begin - (len(shown) - 1) / 2),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=9,
        color="0.3",
    )
    begin -= len(shown) + 1
for ax, title in zip(axes, ("Debiased ECE, %", "NLL, nats"), strict=True):
    ax.set(xlabel=title, xlim=(0 if title.startswith("Debiased") else None, None))
    ax.grid(axis="x", color="0.9")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_yticks(list(names), names.values())
axes[1].legend(frameon=False, fontsize=9, loc="upper right")
figure.savefig(HERE / "before_after.png", dpi=150)
