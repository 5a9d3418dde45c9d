"""ECE against accuracy of many networks on one data set, before and after calibration."""

from typing import Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from calgrid.report import captions, text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.study import UNCALIBRATED, Group, StudyData, wide

#: fewest networks of a survey, and most whose names are shown
FEWEST, NAMED = 3, 20
#: distances of a name from its marker in points, and its alignment
PLACES: tuple[tuple[int, int, Literal["left", "right"]], ...] = (
    (5, 4, "left"),
    (-5, 4, "right"),
    (5, -10, "left"),
    (-5, -10, "right"),
    (5, 14, "left"),
    (-5, 14, "right"),
    (5, 24, "left"),
    (-5, 24, "right"),
)
#: errors that differ by more than this factor are shown on a logarithmic axis
LOG_FACTOR = 3


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Wide rows of the first method of each network, one row a calibrator; none if there are few
    networks.
    """
    alike = data.networks(group)
    if len(alike) < FEWEST:
        return pd.DataFrame()
    parts = []
    for other in alike:
        rows = data.tidy(other, "test")
        of_method = rows[rows["method"] == data.reference(other)]
        parts.append(wide(of_method, ["backbone", "method", "calibrator"]))
    return pd.concat(parts, ignore_index=True)


def caption(frame: FigureData) -> str:
    after = _shown_calibrator(frame)
    filled = f", filled: after {after}" if after else ""
    return (
        f"ECE against accuracy of {frame.rows['backbone'].nunique()} networks on "
        f"{frame.study.label(frame.group, backbone=False)}, clean test split ({frame.images}), "
        f"{captions.seeds(frame.rows)}. Hollow: uncalibrated{filled}; dots: all other calibrators. "
        "Lines join both values of a network. Even perfectly calibrated networks of different "
        "accuracy have different ECE (ECE null in the tables)."
    )


def _shown_calibrator(frame: FigureData) -> str:
    few = frame.study.few_calibrators()
    return few[1] if len(few) > 1 else ""


def draw(frame: FigureData) -> Figure:
    """Draw one hollow and one filled marker per network, and a dot for each other calibrator."""
    figure, ax = style.subplots(frame.width, 4.6)
    rows = frame.rows.assign(
        x=style.statistic(frame.rows, "accuracy"), y=style.statistic(frame.rows, "ece")
    )
    networks, after = list(dict.fromkeys(rows["backbone"])), _shown_calibrator(frame)
    shade = style.PALETTE[0]
    for _, part in rows.groupby("backbone", sort=False):
        each = part.set_index("calibrator")
        others = each.drop(index=[UNCALIBRATED, after], errors="ignore")
        ax.plot(others["x"], others["y"], ".", color=style.GREY, markersize=3, alpha=0.6, zorder=1)
        shown = each[each.index.isin([UNCALIBRATED, after])]
        ax.plot(shown["x"], shown["y"], color=shade, linewidth=0.8, alpha=0.5, zorder=2)
        for name, row in shown.iterrows():
            face = "white" if name == UNCALIBRATED else shade
            look = {"color": face, "markeredgecolor": shade, "markersize": 6, "zorder": 3}
            ax.plot(row["x"], row["y"], "o", **look)
    if not style.log_if_wide(ax, rows["y"].to_numpy(), LOG_FACTOR, 1.3):
        ax.set_ylim(0, rows["y"].max() * 1.1)
    ax.set(xlabel=text.in_unit("accuracy"), ylabel=text.in_unit("ece"))
    looks = {}
    if after:
        looks["uncalibrated"] = style.dot(color="white", markeredgecolor=shade)
        looks[f"after {after}"] = style.dot(color=shade, markeredgecolor=shade)
    if len(frame.calibrators()) > 2:
        looks["other calibrators"] = style.dot(marker=".", color=style.GREY)
    if looks:
        style.finished(figure, style.handles(looks), columns=3)
    if len(networks) <= NAMED:
        figure.draw_without_rendering()  # sets the size of the axes
        name_networks(ax, rows)
    return figure


def name_networks(ax: Axes, rows: pd.DataFrame) -> None:
    """Name each network at its largest error, where its name covers the fewest points and names."""
    points = ax.transData.transform(rows[["x", "y"]].to_numpy())
    taken: list[Bbox] = []
    for network, part in rows.groupby("backbone", sort=False):
        highest = part.loc[part["y"].idxmax()]
        place = (highest["x"], highest["y"])
        name = ax.annotate(str(network), place, (0, 0), textcoords="offset points", fontsize=8)
        covered = []
        for number in range(len(PLACES)):
            box = _put(name, number)
            outside = sum(not ax.bbox.contains(*corner) for corner in box.corners())
            worst = outside + box.count_overlaps(taken)
            covered.append((worst, box.count_contains(points)))
        taken.append(_put(name, covered.index(min(covered))))


def _put(name: Annotation, number: int) -> Bbox:
    """Put a name at one of its places, and return its bounding box in pixels."""
    right, up, align = PLACES[number]
    name.set_position((right, up))
    name.set_horizontalalignment(align)
    return name.get_window_extent()
