"""Draw reliability.png, ece_intervals.png and shift_severity.png from the Parquet files beside it.

python docs/photographs/figure.py                  # or with a folder for the pictures
"""

import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from calgrid.report.figure import FigureData
from calgrid.report.figures import intervals, reliability, severity
from calgrid.report.plotting import style
from calgrid.report.study import StudyData
from calgrid.storage.schema import RUN_KEY

HERE = Path(__file__).parent
SHOWN = ["none", "ts", "ets", "smart"]


@mpl.rc_context(style.RC)
def draw(folder: Path) -> None:
    """Draw the pictures."""
    keys = pd.read_parquet(HERE / "metrics.parquet")[list(RUN_KEY)].drop_duplicates()
    manifest = {
        "configuration": {"statistics": {"baseline": "ce", "level": 0.95, "bins": 15}},
        "runs": [{"key": key} for key in keys.to_dict("records")],
    }
    data = StudyData(HERE, manifest)
    (group,) = data.groups
    rows = data.test(group)
    uncalibrated = reliability.collect(data, group).query("calibrator == 'none'")
    shifted = data.select(pd.read_parquet(HERE / "shift.parquet"), group)
    drawn = {
        "reliability": (reliability, uncalibrated),
        "ece_intervals": (intervals.ECE, rows[rows["calibrator"].isin(SHOWN)]),
        "shift_severity": (
            severity,
            pd.concat([rows.assign(severity=0), shifted[shifted["severity"] > 0]]),
        ),
    }
    for name, (content, shown) in drawn.items():
        figure = content.draw(FigureData(data, group, shown))
        style.say_scales(figure)
        figure.savefig(folder / f"{name}.png", metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
