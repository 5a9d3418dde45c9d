"""Figures of a study as PNG files with fixed bytes, and an index for the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.figure import Figure

from calgrid.reporting import captions
from calgrid.reporting.figures import (
    _style,
    confidence_histogram,
    critical_difference,
    embedding,
    feature_profiles,
    fgsm_margin,
    fit_course,
    gate,
    intervals,
    margin_reliability,
    margin_temperature,
    masked_inference,
    over_under,
    prototype_angles,
    reliability,
    retention,
    saturation,
    scatter,
    sensitivity,
    severity,
    training,
    val_size,
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
    id : its files are ``{id}_{dataset}_{backbone}.png``, or ``{id}.png`` for the whole study.
    title, category : as shown.
    caption : says what is shown, how many seeds, which split and interval.
    draw : returns None where the study has nothing to show.
    each : what it is drawn for: each tested ``checkpoint``, each ``condition`` (protocol, data set and backbone), or
        once for the whole ``study`` (it is then given the first group).
    """

    id: str
    title: str
    category: str
    caption: Callable[[StudyData, Group], str]
    draw: Callable[[StudyData, Group], Figure | None]
    each: Literal["checkpoint", "condition", "study"] = "checkpoint"


FIGURES = (
    FigureKind("nll_intervals", "NLL and Brier score", "Methods", intervals.nll_caption, intervals.draw_nll),
    FigureKind("reliability", "Reliability diagrams", "Methods", reliability.caption, reliability.draw),
    FigureKind("over_under", "Over- and under-confidence", "Methods", over_under.caption, over_under.draw),
    FigureKind(
        "sensitivity", "Hyper-parameters of methods", "Methods", sensitivity.method_caption, sensitivity.draw_methods
    ),
    FigureKind(
        "critical_difference",
        "Critical differences of methods",
        "Methods",
        critical_difference.method_caption,
        critical_difference.draw_methods,
        each="study",
    ),
    FigureKind(
        "ece_intervals", "Calibration error and accuracy", "Calibrators", intervals.ece_caption, intervals.draw_ece
    ),
    FigureKind("accuracy_ece", "Accuracy against ECE", "Calibrators", scatter.caption, scatter.draw),
    FigureKind(
        "calibrator_sensitivity",
        "Hyper-parameters of calibrators",
        "Calibrators",
        sensitivity.calibrator_caption,
        sensitivity.draw_calibrators,
    ),
    FigureKind("val_size", "Validation rows", "Calibrators", val_size.caption, val_size.draw, each="study"),
    FigureKind("fit_course", "Course of the fit", "Calibrators", fit_course.caption, fit_course.draw),
    FigureKind(
        "margin_temperature",
        "Temperature by margin",
        "Calibrators",
        margin_temperature.caption,
        margin_temperature.draw,
    ),
    FigureKind(
        "margin_reliability",
        "Reliability by margin",
        "Calibrators",
        margin_reliability.caption,
        margin_reliability.draw,
    ),
    FigureKind(
        "calibrator_critical_difference",
        "Critical differences of calibrators",
        "Calibrators",
        critical_difference.calibrator_caption,
        critical_difference.draw_calibrators,
        each="study",
    ),
    FigureKind("shift_severity", "Severity of corruptions", "Shift", severity.caption, severity.draw),
    FigureKind("training", "Training curves", "Training", training.caption, training.draw, each="condition"),
    FigureKind("gate", "Gate of FeDLaS", "Training", gate.caption, gate.draw, each="condition"),
    FigureKind("saturation", "Softmax saturation", "Training", saturation.caption, saturation.draw, each="condition"),
    FigureKind("retention", "Masking of MaC-Cal", "Training", retention.caption, retention.draw, each="condition"),
    FigureKind(
        "confidence_histogram",
        "Confidence before and after masked retraining",
        "Training",
        confidence_histogram.caption,
        confidence_histogram.draw,
    ),
    FigureKind("fgsm_margin", "Attack distance by margin", "Probes", fgsm_margin.caption, fgsm_margin.draw),
    FigureKind("masked_inference", "Masked heads", "Probes", masked_inference.caption, masked_inference.draw),
    FigureKind("embedding", "Images in the plane", "Probes", embedding.caption, embedding.draw),
    FigureKind("prototype_angles", "Angles between classes", "Probes", prototype_angles.caption, prototype_angles.draw),
    FigureKind(
        "feature_profiles",
        "Features of easy and hard images",
        "Probes",
        feature_profiles.caption,
        feature_profiles.draw,
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
        for group in _groups(kind, data):
            with mpl.rc_context(_style.RC):
                figure = kind.draw(data, group)
                if figure is not None:
                    entries.append(_entry(kind, data, group))
                    _save(figure, Path(out, entries[-1]["file"]))
    return [*(Path(out, entry["file"]) for entry in entries), write_index(out, entries)]


def _groups(kind: FigureKind, data: StudyData) -> Sequence[Group]:
    """Groups that a figure is drawn for."""
    return {"checkpoint": data.groups, "condition": data.conditions, "study": data.groups[:1]}[kind.each]


def _entry(kind: FigureKind, data: StudyData, group: Group) -> dict[str, str]:
    whole, checkpoint = kind.each == "study", kind.each == "checkpoint"
    name = kind.id if whole else f"{kind.id}_{data.slug(group, checkpoint)}"
    seeing = captions.sees_validation(data, data.groups if whole else [group])
    return {
        "id": name,
        "file": f"{name}.png",
        "title": kind.title if whole else f"{kind.title}: {data.label(group, checkpoint)}",
        "caption": f"{kind.caption(data, group)} {seeing}".strip(),
        "category": kind.category,
    }


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as temporary:
        # without the version of matplotlib in it the same picture has the same bytes
        figure.savefig(temporary, format="png", dpi=_style.DPI, metadata={"Software": None})
