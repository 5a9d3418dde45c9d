"""Figures of a study as PNG files with fixed bytes, and an index for the report."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from calgrid.reporting import captions
from calgrid.reporting.figures import (
    _style,
    gate,
    intervals,
    over_under,
    reliability,
    saturation,
    scatter,
    severity,
    training,
)
from calgrid.reporting.index import write_index
from calgrid.reporting.study import Group, StudyData
from calgrid.storage.atomic import replacing

__all__ = ["FIGURES", "FigureKind", "write_figures"]


@dataclass(frozen=True)
class FigureKind:
    """A figure of the report.

    Attributes
    ----------
    id : its files are ``{id}_{dataset}_{backbone}.png``. title, category : as shown.
    caption : says what is shown, how many seeds, which split and interval.
    draw : returns None where the study has nothing to show.
    per_checkpoint : drawn for each tested checkpoint, or once.
    """

    id: str
    title: str
    category: str
    caption: Callable[[StudyData, Group], str]
    draw: Callable[[StudyData, Group], Figure | None]
    per_checkpoint: bool = True


FIGURES = (
    FigureKind("nll_intervals", "NLL and Brier score", "Methods", intervals.nll_caption, intervals.draw_nll),
    FigureKind("reliability", "Reliability diagrams", "Methods", reliability.caption, reliability.draw),
    FigureKind("over_under", "Over- and under-confidence", "Methods", over_under.caption, over_under.draw),
    FigureKind("ece_intervals", "ECE and accuracy", "Calibrators", intervals.ece_caption, intervals.draw_ece),
    FigureKind("accuracy_ece", "Accuracy against ECE", "Calibrators", scatter.caption, scatter.draw),
    FigureKind("shift_severity", "Severity of corruptions", "Shift", severity.caption, severity.draw),
    FigureKind("training", "Training curves", "Training", training.caption, training.draw, per_checkpoint=False),
    FigureKind("gate", "Gate of FeDLaS", "Training", gate.caption, gate.draw, per_checkpoint=False),
    FigureKind(
        "saturation",
        "Softmax saturation",
        "Training",
        saturation.caption,
        saturation.draw,
        per_checkpoint=False,
    ),
)


def write_figures(study: Path, manifest: Mapping[str, Any], out: Path) -> list[Path]:
    """Draw all figures for which there are data, and write ``index.json``.

    Parameters
    ----------
    study : folder with ``metrics.parquet``, ``summary.parquet`` and ``costs.parquet``.
    manifest : what was run (``calgrid.configuration.plan.Plan.manifest``); logits and histories are found through it.
    out : folder for the figures.

    Returns
    -------
    Paths of the files written, the index last.

    Raises
    ------
    DataError : a file of the study or of a run is missing or damaged.
    """
    data = StudyData(study, manifest)
    entries = []
    for kind in FIGURES:
        for group in data.groups if kind.per_checkpoint else data.conditions:
            with mpl.rc_context(_style.RC):
                figure = kind.draw(data, group)
                if figure is not None:
                    entries.append(_entry(kind, data, group))
                    _save(figure, Path(out, entries[-1]["file"]))
    return [*(Path(out, entry["file"]) for entry in entries), write_index(out, entries)]


def _entry(kind: FigureKind, data: StudyData, group: Group) -> dict[str, str]:
    name = f"{kind.id}_{data.slug(group, kind.per_checkpoint)}"
    return {
        "id": name,
        "file": f"{name}.png",
        "title": f"{kind.title}: {data.label(group, kind.per_checkpoint)}",
        "caption": f"{kind.caption(data, group)} {captions.sees_validation(data, group)}".strip(),
        "category": kind.category,
    }


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as temporary:
        # without the version of matplotlib in it the same picture has the same bytes
        figure.savefig(temporary, format="png", dpi=_style.DPI, metadata={"Software": None})
