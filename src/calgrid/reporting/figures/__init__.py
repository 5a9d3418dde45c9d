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
    backbone_bars,
    confidence_histogram,
    corruption_reduction,
    critical_difference,
    embedding,
    feature_profiles,
    fgsm_margin,
    fit_course,
    fit_objectives,
    gate,
    intervals,
    margin_reliability,
    margin_temperature,
    masked_inference,
    method_means,
    over_under,
    prototype_angles,
    reliability,
    retention,
    saturation,
    scatter,
    sensitivity,
    severity,
    smoothing_curve,
    solved_temperature,
    training,
    val_size,
)
from calgrid.reporting.index import write_index
from calgrid.reporting.papers.figures import figure_lists
from calgrid.reporting.study import Group, StudyData
from calgrid.storage.atomic import replacing, write_text

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
    each : what it is drawn for: each tested ``checkpoint``, each ``condition`` (protocol, data set and backbone), each
        ``dataset`` (with its protocol and checkpoint; it is then given the first of their groups), or once for the
        whole ``study`` (it is then given the first group).
    """

    id: str
    title: str
    category: str
    caption: Callable[[StudyData, Group], str]
    draw: Callable[[StudyData, Group], Figure | None]
    each: Literal["checkpoint", "condition", "dataset", "study"] = "checkpoint"


FIGURES = (
    FigureKind("nll_intervals", "NLL and Brier score", "Methods", intervals.nll_caption, intervals.draw_nll),
    FigureKind("reliability", "Reliability diagrams", "Methods", reliability.caption, reliability.draw),
    FigureKind("over_under", "Over- and under-confidence", "Methods", over_under.caption, over_under.draw),
    FigureKind(
        "method_means",
        "Means over data sets and backbones",
        "Methods",
        method_means.caption,
        method_means.draw,
        each="study",
    ),
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
    FigureKind(
        "backbone_bars",
        "Adaptive calibration error by backbone",
        "Calibrators",
        backbone_bars.caption,
        backbone_bars.draw,
        each="dataset",
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
        "fit_objectives",
        "Objectives of the fit",
        "Calibrators",
        fit_objectives.caption,
        fit_objectives.draw,
    ),
    FigureKind(
        "solved_temperature",
        "Temperature for a fixed confidence",
        "Calibrators",
        solved_temperature.caption,
        solved_temperature.draw,
    ),
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
    FigureKind(
        "corruption_reduction",
        "Reduction of errors by corruption",
        "Shift",
        corruption_reduction.caption,
        corruption_reduction.draw,
    ),
    FigureKind("training", "Training curves", "Training", training.caption, training.draw, each="condition"),
    FigureKind("gate", "Gate of FeDLaS", "Training", gate.caption, gate.draw, each="condition"),
    FigureKind(
        "smoothing_curve",
        "Smoothing of FeDLaS",
        "Training",
        smoothing_curve.caption,
        smoothing_curve.draw,
        each="condition",
    ),
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

    For each paper that the study names, ``{paper}_figures.csv`` and ``.md`` list its printed figures and ours.

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
    paths = [Path(out, entry["file"]) for entry in entries]
    for table in figure_lists(data, entries):
        for suffix, content in table.files.items():
            paths.append(Path(out, f"{table.id}.{suffix}"))
            write_text(paths[-1], content)
    return [*paths, write_index(out, entries)]


def _groups(kind: FigureKind, data: StudyData) -> Sequence[Group]:
    """Groups that a figure is drawn for."""
    if kind.each == "dataset":
        return list({group._replace(backbone=""): group for group in reversed(data.groups)}.values())[::-1]
    return {"checkpoint": data.groups, "condition": data.conditions, "study": data.groups[:1]}[kind.each]


def _entry(kind: FigureKind, data: StudyData, group: Group) -> dict[str, Any]:
    """What the index says of a figure: ``figure`` is its kind, and its place names what of the study it is about."""
    name, label = _name(kind, data, group)
    whole = kind.each == "study"
    alike = _alike(kind, data, group)
    seeing = captions.sees_validation(data, alike)
    place = {} if whole else group._asdict()
    for dropped in {"dataset": ("backbone",), "condition": ("checkpoint",)}.get(kind.each, ()):
        place.pop(dropped)
    return {
        "id": name,
        "file": f"{name}.png",
        "title": f"{kind.title}: {label}" if label else kind.title,
        "caption": f"{kind.caption(data, group)} {seeing}".strip(),
        "category": kind.category,
        "figure": kind.id,
        "place": place,
    }


def _name(kind: FigureKind, data: StudyData, group: Group) -> tuple[str, str]:
    """Name of a figure's file without suffix, and what its title says of the place."""
    if kind.each == "study":
        return kind.id, ""
    checkpoint, backbone = kind.each != "condition", kind.each != "dataset"
    slug, label = data.slug(group, checkpoint, backbone), data.label(group, checkpoint, backbone)
    return f"{kind.id}_{slug}", label


def _alike(kind: FigureKind, data: StudyData, group: Group) -> Sequence[Group]:
    """Groups whose numbers a figure shows."""
    if kind.each == "dataset":
        return [other for other in data.groups if other._replace(backbone=group.backbone) == group]
    return data.groups if kind.each == "study" else [group]


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as temporary:
        # without the version of matplotlib in it the same picture has the same bytes
        figure.savefig(temporary, format="png", dpi=_style.DPI, metadata={"Software": None})
