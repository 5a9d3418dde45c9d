"""The board: one self-contained HTML file in which a reader chooses metric, calibrator and data of
a study, and opens the bins of reliability diagrams.
"""

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from calgrid import __version__
from calgrid.components.metrics import find_metric, metric_names
from calgrid.errors import DataError
from calgrid.metrics.binning import BinSums
from calgrid.reporting import captions, text
from calgrid.reporting.bin_images import DRAWN, listed_images, pictures
from calgrid.reporting.html import facts_of, template
from calgrid.reporting.results import Results
from calgrid.reporting.run import bin_frame
from calgrid.reporting.study import Group, StudyData, among
from calgrid.statistics.verdicts import NO_VERDICT
from calgrid.storage.atomic import write_text
from calgrid.storage.schema import BINS, CLASSES, MEAN_SHIFT, SUMMARY

#: most bytes of the data of a page; parts with which it would be larger are left out
MOST_BYTES = 3_000_000
#: metric shown first, if the study has it
FIRST_METRIC = "ece_debiased"
NO_LOGITS = "The logits of this run are not beside the study, or damaged."
#: section of the data -> entries that a part adds to it
Part = Mapping[str, Mapping[str, Any]]


def write_board(results: Results, out: Path) -> list[str]:
    """Write the board of a study; returns sentences on what it leaves out.

    Parameters
    ----------
    out : the HTML file.

    Raises
    ------
    DataError : a file of the study is missing or damaged.
    """
    content, left_out = board_data(results)
    context = {
        "study": results.data.manifest["configuration"]["study"],
        "version": __version__,
        "facts": facts_of(results.data),
        "reading": captions.reading(results.data),
        "drawn": DRAWN,
        "left_out": left_out,
        # no text of a user ends the script
        "data": _json(content).replace("<", "\\u003c"),
    }
    write_text(out, template("board.html.j2").render(context))
    return left_out


def board_data(results: Results) -> tuple[dict[str, Any], list[str]]:
    """Data of the page, and sentences on what is left out of it."""
    data = results.data
    present = data.distinct(SUMMARY, ["metric"])["metric"]
    groups, about = {}, {}
    averages: dict[str, Any] = {}
    for group in data.groups:
        name = data.slug(group)
        groups[name], about[name] = group, _group(data, group)
        averages |= _values(_averaged(data, group), name, about[name])
    content: dict[str, Any] = {
        "baseline": data.baseline,
        "n_bins": data.bins,
        "metrics": {name: _metric(name) for name in among(metric_names(), present)},
        "first": {"metric": FIRST_METRIC, "calibrator": data.few_calibrators()[-1]},
        "groups": about,
        "values": averages,
        "images": {},
        "pictures": {},
    }
    left_out = []
    for what, part in _further(results, groups, about):
        grown = content | {name: content[name] | entries for name, entries in part.items()}
        if len(_json(grown).encode()) <= MOST_BYTES:
            content = grown
        else:
            left_out.append(
                f"{what} are left out: with them the data of the page would have more "
                f"than {MOST_BYTES / 1e6:g} MB."
            )
    without = [run for run, images in content["images"].items() if NO_LOGITS in images.values()]
    if without:
        left_out.append(
            f"Images of {len(without)} of {len(content['images'])} networks are left out, because "
            f"their logits are not beside the study, or damaged; the first is {without[0]}."
        )
    return content, left_out


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _metric(name: str) -> dict[str, Any]:
    """Heading, decimals, direction of better values (1, -1, or 0 for none), and the metric whose
    verdicts it has.
    """
    metric = find_metric(name)
    return {
        "name": text.name(name),
        "heading": text.heading(name),
        "decimals": text.decimals(name),
        "better": {True: -1, False: 1, None: 0}[metric.lower_is_better],
        "decided_by": text.name(metric.decided_by),
    }


def _group(data: StudyData, group: Group) -> dict[str, Any]:
    """What the page knows of a group beside its values and images.

    ``methods`` : method -> its name with marks. ``shifts`` : shift -> what it is. ``bins`` :
    method -> seed -> calibrator -> number, images, mean confidence and accuracy in percent of each
    bin that has images.
    """
    rows = _averaged(data, group)
    named = data.distinct(CLASSES, ["class", "name"], group).sort_values("class")
    methods = among(data.methods, rows["method"])
    return {
        "label": data.label(group),
        "dataset": group.dataset,
        "methods": {name: data.marked(name) for name in methods},
        "calibrators": among(data.calibrators, rows["calibrator"]),
        "shifts": _shifts(data, group),
        "interval": captions.interval(data, rows, "Lines"),
        "classes": list(named["name"]),
        "bins": _bins(data, group),
    }


def _averaged(data: StudyData, group: Group) -> pd.DataFrame:
    """Summary of the clean test split, means over corruptions, and out-of-distribution sets."""
    clean, ood = data.tidy(group, "test"), data.tidy(group, "ood")
    return pd.concat([clean, data.shift_tidy(group), ood])


def _shifts(data: StudyData, group: Group) -> dict[str, str]:
    """Shift -> what it is, in the order of the choices."""
    means = data.shift_tidy(group)
    single = data.distinct(SUMMARY, ["shift"], group, split="shift")["shift"]
    sets = data.distinct(SUMMARY, ["shift"], group, split="ood")["shift"]
    shifts = {"": f"none: {text.count(data.test_samples(group), 'clean test image')}"}
    if MEAN_SHIFT in set(means["shift"]):
        shifts[MEAN_SHIFT] = f"mean over {text.count(int(means['n_shifts'].max()), 'corruption')}"
    shifts |= {name: name for name in sorted(single)}
    return shifts | {name: f"out of distribution: {name}" for name in sets}


def _bins(data: StudyData, group: Group) -> dict[str, dict[str, dict[str, list[list[float]]]]]:
    bins: dict[str, dict[str, dict[str, list[list[float]]]]] = {}
    for (method, seed), diagrams in _diagrams(data, group).items():
        of_seed = bins.setdefault(method, {}).setdefault(str(seed), {})
        for calibrator, rows in diagrams.items():
            sums = BinSums(*rows[["count", "confidence", "correct"]].to_numpy(float).T)
            of_seed[calibrator] = [
                [row.Index, row.count, round(100 * row.confidence, 2), round(100 * row.accuracy, 2)]
                for row in bin_frame(sums).itertuples()
                if row.count
            ]
    return bins


def _diagrams(data: StudyData, group: Group) -> dict[tuple[str, int], dict[str, pd.DataFrame]]:
    """(method, seed) -> calibrator -> rows of ``bins.parquet``, in the order of the bins."""
    rows = data.rows(BINS, group, n_bins=data.bins).sort_values("bin", kind="stable")
    return {
        key: dict(iter(part.groupby("calibrator", sort=False)))
        for key, part in rows.groupby(["method", "seed"], sort=False)
    }


def _values(rows: pd.DataFrame, name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """``group/shift`` -> severity -> metric -> cells of all methods and calibrators.

    Cells are in the order of the methods, then of the calibrators; 0 where there is no value.
    """
    methods, calibrators = list(about["methods"]), about["calibrators"]
    values: dict[str, Any] = {}
    for row in rows.itertuples():
        of_shift = values.setdefault(f"{name}/{row.shift}", {})
        of_severity = of_shift.setdefault(str(row.severity), {})
        cells = of_severity.setdefault(row.metric, [0] * (len(methods) * len(calibrators)))
        place = methods.index(row.method) * len(calibrators) + calibrators.index(row.calibrator)
        cells[place] = _cell(row)
    return values


def _cell(row: Any) -> list[Any]:
    """Mean, interval, difference to the baseline, and verdict in words if there is one."""
    numbers = (row.mean, row.ci_low, row.ci_high, row.diff_vs_baseline)
    cell: list[Any] = [_shown(row.metric, value) for value in numbers]
    if row.verdict in ("", NO_VERDICT):
        return cell
    said = text.verdict(row.verdict, row.decided_by, row.detectable)
    return [*cell, f"{said}; Holm p {text.p_value(row.p_holm)}"]


def _shown(metric: str, value: float) -> float | None:
    """A value in the unit and with the decimals of the tables; None if it is unknown."""
    return float(text.format_metric(metric, value)) if math.isfinite(value) else None


def _further(
    results: Results, groups: Mapping[str, Group], about: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, Part]]:
    """Parts of the data that may be left out, the most important first, with their names."""
    corruptions: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    for name, group in groups.items():
        rows = results.data.rows(SUMMARY, group, split="shift")
        corruptions |= _values(rows[rows["severity"] > 0], name, about[name])
        shown[group.dataset] = pictures(group.dataset)
    first, *others = _images(results, groups) or [{}]
    yield "Images of the first seed of each method", {"images": first, "pictures": shown}
    yield "Single corruptions", {"values": corruptions}
    for number, images in enumerate(others, start=2):
        yield f"Images of seed number {number} of each method", {"images": images}


def _images(results: Results, groups: Mapping[str, Group]) -> list[dict[str, Any]]:
    """For the first seed of each method, the second and so on: ``group/method/seed`` -> calibrator
    -> bin -> images, or a sentence.
    """
    found: list[dict[str, Any]] = []
    for name, group in groups.items():
        seeds: Counter[str] = Counter()
        for (method, seed), bins in sorted(_diagrams(results.data, group).items()):
            if seeds[method] == len(found):
                found.append({})
            images: dict[str, Any] = dict.fromkeys(bins, NO_LOGITS)
            with contextlib.suppress(DataError):
                run = results.run(method, seed, **group._asdict())
                images = listed_images(run, group.checkpoint, bins)
            found[seeds[method]][f"{name}/{method}/{seed}"] = images
            seeds[method] += 1
    return found
