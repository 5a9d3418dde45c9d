"""Draw ``speed.png`` from ``speed.json``: images a second of three networks, by loop."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

FOLDER = Path(__file__).parent
LOOPS = {
    "usual": "DataLoader and PIL",
    "by_hand": "loop by hand",
    "calgrid": "calgrid, no graph",
    "as_graph": "calgrid, CUDA graph",
}


def main() -> None:
    """Write the figure."""
    rows = pd.DataFrame(json.loads((FOLDER / "speed.json").read_text())["rows"])
    speeds = rows.pivot(index="backbone", columns="loop", values="images_s")[list(LOOPS)]
    order = ["resnet18", "resnet50", "resnet110"]
    axes = speeds.loc[order].rename(columns=LOOPS).div(1000).plot.bar(rot=0, figsize=(7, 3.2))
    axes.set(xlabel="", ylabel="thousand images a second")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    plt.tight_layout()
    plt.savefig(FOLDER / "speed.png", dpi=150)


if __name__ == "__main__":
    main()
