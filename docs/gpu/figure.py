"""Draw speed.png from speed.json: images a second of three networks, by loop.

python docs/gpu/figure.py                          # or with a folder for the picture
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from calgrid.report.plotting import style

HERE = Path(__file__).parent
LOOPS = {
    "usual": "DataLoader and PIL",
    "by_hand": "loop by hand",
    "calgrid": "calgrid, no graph",
    "as_graph": "calgrid, CUDA graph",
}


@mpl.rc_context(style.RC)
def draw(folder: Path) -> None:
    """Draw the picture."""
    rows = pd.DataFrame(json.loads((HERE / "speed.json").read_text())["rows"])
    speeds = rows.pivot(index="backbone", columns="loop", values="images_s")[list(LOOPS)]
    speeds = speeds.loc[["resnet18", "resnet50", "resnet110"]].rename(columns=LOOPS).div(1000)
    figure = style.new_figure(style.WIDTH, 3.2)
    ax = figure.subplots()
    speeds.plot.bar(ax=ax, rot=0, color=style.PALETTE[: len(LOOPS)])
    ax.set(xlabel="", ylabel="Thousand images a second")
    ax.grid(axis="x", visible=False)
    figure.savefig(folder / "speed.png", metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
