"""Draw calibrators.png from the Parquet file beside it.

python docs/published_networks/figure.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import t

HERE = Path(__file__).parent
SHOWN = [
    "none",
    "ets",
    "smart",
    "pts",
    "ts",
    "iso",
    "hts",
    "svs",
    "vs",
    "ms_odir",
    "dirichlet",
    "sms",
]

runs = pd.read_parquet(HERE / "metrics.parquet").query("split == 'test' and dataset == 'cifar10'")
value = runs.groupby(["metric", "backbone", "calibrator"], observed=True)["value"].mean()
ece = 100 * value["ece_debiased"].unstack("calibrator")[SHOWN]
nll = value["nll"].unstack("calibrator")
difference = 1000 * nll.sub(nll["ts"], axis=0)[SHOWN]
quantile = t.ppf(0.975, len(ece) - 1) / np.sqrt(len(ece))

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
style = {"fmt": "o", "capsize": 2}
left.errorbar(ece.mean(), SHOWN, xerr=quantile * ece.std(), color="#0173b2", **style)
left.set(xlabel="debiased ECE, %", xlim=(0, None), title="Calibration error")
inside = difference.loc[:, difference.mean() < 40]
bars = quantile * inside.std()
right.errorbar(inside.mean(), inside.columns, xerr=bars, color="#de8f05", **style)
right.axvline(0, color="0.6", linewidth=1, zorder=0)
right.set(
    xlabel="NLL - NLL of ts, thousandths of a nat", title="Quality: below 0 is better than ts"
)
for axes in (left, right):
    axes.grid(axis="y", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
figure.savefig(HERE / "calibrators.png", dpi=150)
