"""Draw calibrators.png, survey_cifar10.png, survey_cifar100.png and efficientnet_lite.png from the
Parquet files beside it.

python docs/published_networks/figure.py           # or with a folder for the pictures
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from scipy.stats import t

from calgrid.report.figure import FigureData
from calgrid.report.figures import survey
from calgrid.report.plotting import style
from calgrid.report.study import Group, StudyData

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
STATISTICS = {"baseline": "ce", "level": 0.95, "bins": 15}


def calibrators(means: pd.Series) -> mpl.figure.Figure:
    """Error and NLL of the calibrators, means and intervals over the networks."""
    ece = 100 * means["ece_debiased"].unstack("calibrator")[SHOWN]
    nll = means["nll"].unstack("calibrator")
    difference = 1000 * nll.sub(nll["ts"], axis=0)[SHOWN]
    quantile = t.ppf(0.975, len(ece) - 1) / np.sqrt(len(ece))
    figure = style.new_figure(style.WIDTH, 3.4)
    left, right = figure.subplots(1, 2, sharey=True)
    for ax in (left, right):
        style.stripes(ax, SHOWN[::-1])
    inside = difference.loc[:, difference.mean() < 40]
    bars = {"fmt": "o", "markersize": 4.5, "elinewidth": 1.4, "color": style.PALETTE[0]}
    for ax, table in ((left, ece), (right, inside)):
        places = [SHOWN[::-1].index(name) for name in table]
        ax.errorbar(table.mean(), places, xerr=quantile * table.std(), **bars)
    left.set(xlabel="ECE debiased (%)", xlim=(0, None), title="Calibration error")
    right.axvline(0, color=style.GREY, linewidth=1, zorder=0)
    right.set(xlabel="NLL - NLL of ts (0.001 nats)", title="Below 0: better than ts")
    return figure


def surveyed(means: pd.Series) -> mpl.figure.Figure:
    """Survey of networks, from means by metric, backbone and calibrator."""
    data = StudyData(HERE, {"configuration": {"statistics": STATISTICS}, "runs": []})
    rows = means.unstack("metric")[["accuracy", "ece"]].add_suffix("_mean").reset_index()
    return survey.draw(FigureData(data, Group("", "", "", ""), rows))


@mpl.rc_context(style.RC)
def draw(folder: Path) -> None:
    """Draw the pictures."""
    runs = pd.read_parquet(HERE / "metrics.parquet").query("split == 'test'")
    keys = ["metric", "backbone", "calibrator"]
    means = {}
    for name in ("cifar10", "cifar100"):
        own = runs[runs["dataset"] == name].astype(dict.fromkeys(keys, "str"))
        means[name] = own.groupby(keys, sort=False)["value"].mean()
    lite = pd.read_parquet(HERE / "efficientnet_lite.parquet")
    figures = {
        "calibrators": calibrators(means["cifar10"]),
        "survey_cifar10": surveyed(means["cifar10"]),
        "survey_cifar100": surveyed(means["cifar100"]),
        "efficientnet_lite": surveyed(lite.set_index(keys)["mean"]),
    }
    for name, figure in figures.items():
        style.say_scales(figure)
        figure.savefig(folder / f"{name}.png", metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
