"""Figures of SMART about errors of calibrators: by backbone, by corruption, by number of validation
rows.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from calgrid.calibrators.base import DRAWN_SHARE
from calgrid.papers.cells import printed_cells
from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import lines, style
from calgrid.report.selections import val_rows
from calgrid.report.study import UNCALIBRATED, Group, StudyData, among
from calgrid.storage.schema import MEAN_SHIFT, METRICS, SAME_SHIFT

#: value of ``fit_on`` -> words, in the order in which they are shown
FITTED: Mapping[str, str] = {
    "val": "fitted on clean val",
    SAME_SHIFT: f"fitted on {100 * DRAWN_SHARE:g} % of the same corruption",
}


def plain(names: Iterable[str]) -> list[str]:
    """Names of calibrators as in the configuration, without the rows of their fits."""
    return [name.partition(" (")[0] for name in names]


def plain_names(data: StudyData) -> list[str]:
    """Names of all calibrators of a study, in its order, without the rows of their fits."""
    return list(dict.fromkeys(plain(data.calibrators)))


def names_with_looks(data: StudyData) -> list[str]:
    """Names of calibrators whose places set their looks, as in the other figures of the report."""
    return [*data.calibrators, *plain_names(data)]


# Figures 4, 6 to 10: AECE of calibrators for each backbone, with published numbers
# --------------------------------------------------------------------------------------------------

METRIC = "aece"
#: largest number of calibrators with bars; with more, named variants are left out
MOST = 12
#: share of the width of a backbone that its bars take
SHARE = 0.84
#: mark of a published number, with a white outline to be visible on dark bars
PRINTED: style.Look = {
    "color": "black",
    "marker": "_",
    "linestyle": "",
    "markersize": 9,
    "markeredgewidth": 1.4,
    "path_effects": [withStroke(linewidth=3, foreground="white")],
}
#: largest length of a line of a backbone's name
LETTERS = 15


def backbone_bars_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Rows of the metric with the columns ``panel`` (its title), ``shown_std`` and ``published``.

    Empty for data sets with a single backbone, whose calibrators are in other figures.
    """
    alike = data.networks(group)
    if len(alike) < 2:
        return pd.DataFrame()
    parts = []
    for each in alike:
        rows = pd.concat([data.tidy(each, "test"), data.shift_tidy(each)])
        parts.append(rows[(rows["method"] == data.reference(each)) & (rows["metric"] == METRIC)])
    chosen = pd.concat(parts, ignore_index=True)
    chosen = chosen.assign(shown_std=lines.deviation(chosen))
    panels = [chosen[chosen["split"] == "test"].assign(panel="clean test split")]
    shifted = chosen[(chosen["shift"] == MEAN_SHIFT) & (chosen["severity"] > 0)]
    if len(shifted):
        worst = shifted[shifted["severity"] == shifted["severity"].max()]
        severity = int(worst["severity"].iloc[0])
        # published numbers without suspect ones
        place = ["dataset", "backbone", "method", "calibrator", "metric", "shift"]
        cells = printed_cells(data)
        known = cells.loc[cells["severity"] == severity, [*place, "published"]]
        beside = worst[place].merge(known.drop_duplicates(place), on=place, how="left")
        worst = worst.assign(
            published=beside["published"].to_numpy(), calibrator=plain(worst["calibrator"])
        )
        for fit_on, words in FITTED.items():
            rows = worst[worst["fit_on"] == fit_on]
            if len(rows):
                count = text.count(int(rows["n_shifts"].max()), "corruption")
                panel = f"mean over {count} at severity {severity}, {words}"
                panels.append(rows.assign(panel=panel))
    return pd.concat(panels, ignore_index=True)


def backbone_bars_caption(frame: FigureData) -> str:
    rows = frame.rows
    shown, all_names = _names(frame.study, rows), set(rows["calibrator"])
    left = spread = ""
    if len(shown) < len(all_names):
        left = f" Shown are {len(shown)} of {len(all_names)} calibrators."
    if rows["n_seeds"].max() > 1:
        spread = "Lines: ± one standard deviation over seeds. "
    elif rows["n_fits"].max() > 1:
        spread = (
            "Lines: ± one standard deviation over seeds of the calibrator, on one network and one "
            "test set. "
        )
    printed = "Black ticks: published numbers. " if rows["published"].notna().any() else ""
    return (
        f"Adaptive calibration error ({frame.study.bins} adaptive bins) of the calibrators on "
        f"{frame.group.dataset} by backbone, networks of "
        f"{text.listed(sorted(set(rows['method'])))}; {'; '.join(rows['panel'].unique())}. "
        f"{spread}{printed}The AECE of a perfectly calibrated network is above 0, too, and "
        "falls with the number of images. Accuracy, NLL, Brier score and ECE with its null are in "
        f"the other figures.{left}"
    )


def draw_backbone_bars(frame: FigureData) -> Figure:
    """Draw one group of bars per backbone; clean test split above, then corrupted images for each
    way of fitting.
    """
    panels = frame.parts("panel")
    names, known = _names(frame.study, frame.rows), names_with_looks(frame.study)
    height = 2.6 * len(panels) + 0.8
    figure, axes = style.subplots(style.WIDTH, height, len(panels), squeeze=False)
    for ax, (said, rows) in zip(axes[:, 0], panels.items(), strict=True):
        _bars(ax, rows, names, known)
        ax.set_title(said, loc="left")
        ax.set_ylabel(text.in_unit(METRIC))
    handles: list[Line2D | Patch] = [
        Patch(label=style.calibrator_label(name), **_look(known, name)) for name in names
    ]
    if frame.rows["published"].notna().any():
        handles.append(style.handle(label="in print", **PRINTED))
    return style.finished(figure, handles, columns=4)


def _names(data: StudyData, rows: pd.DataFrame) -> list[str]:
    """Calibrators in the order of the study, without named variants if there are too many."""
    names = among(plain_names(data), rows["calibrator"])
    if len(names) > MOST:
        variants = data.manifest["configuration"].get("calibrators", {})
        names = [name for name in names if name not in variants]
    return names[:MOST]


def _bars(ax: Axes, rows: pd.DataFrame, names: Sequence[str], known: Sequence[str]) -> None:
    backbones = list(dict.fromkeys(rows["backbone"]))
    present = among(names, rows["calibrator"])
    width = SHARE / len(present)
    for place, name in enumerate(present):
        part = rows[rows["calibrator"] == name]
        x = part["backbone"].map(backbones.index) + (place - (len(present) - 1) / 2) * width
        mean, std, printed = text.shown(METRIC, part[["mean", "shown_std", "published"]].T)
        ax.bar(x, mean, width, linewidth=0.4, edgecolor="white", **_look(known, name))
        spread = ~np.isnan(std)
        low, high = (mean - std).clip(0), mean + std
        ax.vlines(x[spread], low[spread], high[spread], color="black", linewidth=1)
        ax.plot(x, printed, **PRINTED)
    labels = []  # names of backbones in lines that fit below their bars
    for name in backbones:
        wrapped = textwrap.wrap(name.replace("_", "_ "), LETTERS)
        labels.append("\n".join(wrapped).replace("_ ", "_"))
    ax.set_xticks(range(len(backbones)), labels)
    ax.set_xlim(-0.5, len(backbones) - 0.5)
    ax.grid(axis="x", visible=False)


def _look(names: Sequence[str], name: str) -> style.Look:
    """Bars of a name; the hatch changes where colours repeat."""
    hatch = "" if style.line(names, name) == "-" else "////"
    return {"facecolor": style.colour(names, name), "hatch": hatch}


# Figures 11 to 14: reduction of ECE and AECE by each calibrator under each corruption
# --------------------------------------------------------------------------------------------------

REDUCED = ("ece", "aece")


def corruption_reduction_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Tidy rows with ``reduction``, a fraction, for each corruption at the highest severity,
    calibrator and seed.
    """
    rows = data.rows(
        METRICS,
        group,
        split="shift",
        metric=REDUCED,
        method=data.reference(group),
    )
    rows = rows[rows["severity"] > 0]
    rows = rows[rows["severity"] == rows["severity"].max()]
    rows = rows.assign(calibrator=plain(rows["calibrator"]))
    bare = rows["calibrator"] == UNCALIBRATED
    # on val, the uncalibrated network has one value for all fit seeds; under same_shift each seed
    # has its own split
    rows["draw"] = rows["fit_seed"].where(rows["fit_on"] != "val", 0)
    keys = ["fit_on", "shift", "metric", "seed", "draw"]
    found = rows[~bare].merge(rows.loc[bare, [*keys, "value"]], on=keys, suffixes=("", "_bare"))
    return found.assign(reduction=found["value_bare"] - found["value"])


def corruption_reduction_caption(frame: FigureData) -> str:
    rows = frame.rows
    severity = int(rows["severity"].iloc[0])
    seeds, fits = rows["seed"].nunique(), rows.groupby("calibrator")["fit_seed"].nunique().max()
    counts = [text.count(seeds, "seed"), f"{fits} seeds of the calibrators"][: 2 if fits > 1 else 1]
    several = max(seeds, fits) > 1
    mean = "mean over " if several else ""
    lines = " Lines: range over these seeds." if several else ""
    return (
        f"ECE and AECE ({frame.study.bins} bins) of the uncalibrated networks of "
        f"{frame.study.reference(frame.group)} minus those after calibration, on {frame.label} "
        f"under each corruption at severity {severity}, in percentage points: positive values are "
        "an improvement. Each corruption is scored separately; "
        f"{mean}{text.listed(counts)}.{lines} If "
        "calibrators are fitted on a part of the same corruption, both errors are measured on the "
        "rest of it. A reduction cannot exceed the error before calibration. Remaining errors, "
        "accuracy and NLL are in the tables."
    )


def draw_corruption_reduction(frame: FigureData) -> Figure:
    """Draw a line per corruption, a column per error, a row of panels per way of fitting."""
    rows = frame.rows
    fitted = among(FITTED, rows["fit_on"])
    shifts = list(dict.fromkeys(rows["shift"]))
    known = names_with_looks(frame.study)
    looks = {
        name: style.dot(markersize=4, **style.marker_look(known, name))
        for name in among(plain_names(frame.study), rows["calibrator"])
    }
    height = (0.26 * len(shifts) + 0.7) * len(fitted) + 0.6
    figure, axes = style.subplots(
        style.WIDTH, height, len(fitted), len(REDUCED), sharey=True, squeeze=False
    )
    step = 0.8 / max(len(looks), 1)
    for line, fit_on in zip(axes, fitted, strict=True):
        for ax, metric in zip(line, REDUCED, strict=True):
            style.stripes(ax, [shift.replace("_", " ") for shift in shifts])
            ax.axvline(0, color=style.GREY, linewidth=1)
            own = rows[(rows["fit_on"] == fit_on) & (rows["metric"] == metric)]
            for place, (name, look) in enumerate(looks.items()):
                reductions = own[own["calibrator"] == name].groupby("shift")["reduction"]
                part = reductions.agg(["mean", "min", "max"]) * 100
                offset = (place - (len(looks) - 1) / 2) * step
                y = [shifts.index(shift) + offset for shift in part.index]
                ax.hlines(y, part["min"], part["max"], color=look["color"], linewidth=1)
                ax.plot(part["mean"], y, markeredgecolor="white", markeredgewidth=0.3, **look)
            ax.set_xlabel(f"Reduction of {text.name(metric)} (points)")
        if len(fitted) > 1:
            line[0].set_title(FITTED[fit_on], loc="left")
    return style.finished(figure, style.handles(looks), columns=8)


# Figure 5: ECE and NLL of the calibrators against the number of validation rows
# --------------------------------------------------------------------------------------------------

SIZE_METRICS = ("ece", "nll")
NEEDED = (*SIZE_METRICS, "ece_null")
#: values with a larger ratio are shown on a logarithmic axis
LOG_FACTOR = 4


def val_size_rows(data: StudyData, group: Group) -> pd.DataFrame:
    """Tidy rows of networks with several numbers of validation rows; adds ``place``, ``val_rows``
    and ``n_test``.
    """
    parts = []
    for each in data.groups:
        dataset, count = val_rows(data, each)
        if dataset != each.dataset:
            rows, method = data.tidy(each, "test"), data.reference(each)
            chosen = rows[(rows["method"] == method) & rows["metric"].isin(NEEDED)]
            place = f"{dataset}, {each.backbone}, {method}"
            facts = {"place": place, "val_rows": int(count), "n_test": data.test_samples(each)}
            parts.append(chosen.assign(**facts))
    if not parts:
        return pd.DataFrame()
    found = pd.concat(parts)
    return found[found.groupby("place")["val_rows"].transform("nunique") > 1]


def val_size_caption(frame: FigureData) -> str:
    images = text.listed([f"{n:,}" for n in sorted(frame.rows["n_test"].unique())])
    return (
        "ECE and NLL of the calibrators against the number of validation rows used for fitting, "
        f"on the same clean test split ({images} images); "
        f"{lines.spread(frame.rows)}. A seed is a random order of the validation rows, of which "
        f"the first are used. Uncalibrated networks need no validation rows. {lines.NULL} "
        "Accuracy, which some calibrators change, is in the tables."
    )


def draw_val_size(frame: FigureData) -> Figure:
    """Draw one row per data set and backbone."""
    places = frame.parts("place")
    known = names_with_looks(frame.study)
    height, shape = 2.5 * len(places) + 0.6, (len(places), len(SIZE_METRICS))
    figure, axes = style.subplots(style.WIDTH, height, *shape, sharex="row", squeeze=False)
    looks = {
        name: style.marker_look(known, name) | style.line_look(known, name)
        for name in frame.calibrators()
    }
    for line, (place, rows) in zip(axes, places.items(), strict=True):
        table = lines.means(rows, ["calibrator", "val_rows"])
        for ax, metric in zip(line, SIZE_METRICS, strict=True):
            for name, look in looks.items():
                part = table[table["calibrator"] == name].sort_values("val_rows")
                lines.line(ax, part["val_rows"].to_numpy(), part, metric, look, len(looks))
            lines.numeric_axis(ax, table["val_rows"])
            shown = ["ece", "ece_null"] if metric == "ece" else [metric]
            values = np.concatenate([style.statistic(table, each) for each in shown])
            if not style.log_if_wide(ax, values, LOG_FACTOR, 1.25) and metric == "ece":
                ax.set_ylim(bottom=0)
            ax.set_ylabel(text.in_unit(metric))
        line[0].set_title(place, loc="left")
    for ax in axes[-1]:
        ax.set_xlabel("Validation rows")
    handles = style.handles({style.calibrator_label(name): look for name, look in looks.items()})
    handles.append(style.null_handle(lines.NULL_TICK))
    return style.finished(figure, handles, columns=6)
