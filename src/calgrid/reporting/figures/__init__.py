"""Figures of a study as reproducible PNG, SVG and PDF files, and an index for the report."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from calgrid.reporting.figure import FigureKind, Frame
from calgrid.reporting.figures import (
    critical_difference,
    histories,
    intervals,
    over_under,
    pareto,
    reliability,
    scatter,
    sensitivity,
    severity,
)
from calgrid.reporting.index import APPENDIX, write_index
from calgrid.reporting.papers.fedlas import feature_profiles, misjudged, saturation, smoothing_curve
from calgrid.reporting.papers.figure_lists import figure_lists
from calgrid.reporting.papers.maccal import (
    confidence_histogram,
    embedding,
    masked_inference,
    method_means,
    prototype_angles,
)
from calgrid.reporting.papers.smart import (
    backbone_bars,
    corruption_reduction,
    fgsm_margin,
    fit_course,
    fit_objectives,
    margin_reliability,
    margin_temperature,
    solved_temperature,
    val_size,
)
from calgrid.reporting.plotting import style
from calgrid.reporting.study import StudyData
from calgrid.specs import Manifest
from calgrid.storage.atomic import replacing, write_text

__all__ = ["FIGURES", "write_figures"]

#: suffix of a format -> metadata left out, so that the same figure has the same bytes
FORMATS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}


METHODS, CALIBRATORS, TRAINING = "Methods", "Calibrators", "Training"
FIGURES = (
    FigureKind("nll_intervals", "NLL and Brier score", METHODS, intervals.NLL),
    FigureKind("reliability", "Reliability diagrams", METHODS, reliability),
    FigureKind("over_under", "Over- and under-confidence", METHODS, over_under),
    FigureKind(
        "method_means", "Means over data sets and backbones", METHODS, method_means, each="study"
    ),
    FigureKind("sensitivity", "Hyper-parameters of methods", METHODS, sensitivity.METHODS),
    FigureKind(
        "critical_difference",
        "Critical differences of methods",
        METHODS,
        critical_difference.METHODS,
        each="study",
    ),
    FigureKind("ece_intervals", "Calibration error and accuracy", CALIBRATORS, intervals.ECE),
    FigureKind(
        "backbone_bars",
        "Adaptive calibration error by backbone",
        CALIBRATORS,
        backbone_bars,
        each="dataset",
    ),
    FigureKind("accuracy_ece", "Accuracy against ECE", CALIBRATORS, scatter),
    FigureKind("pareto", "NLL against the time of training", "Costs", pareto),
    FigureKind(
        "calibrator_sensitivity",
        "Hyper-parameters of calibrators",
        CALIBRATORS,
        sensitivity.CALIBRATORS,
    ),
    FigureKind("val_size", "Validation rows", CALIBRATORS, val_size, each="study"),
    FigureKind("fit_course", "Course of the fit", APPENDIX, fit_course),
    FigureKind("fit_objectives", "Objectives of the fit", CALIBRATORS, fit_objectives),
    FigureKind(
        "solved_temperature", "Temperature for a fixed confidence", APPENDIX, solved_temperature
    ),
    FigureKind("margin_temperature", "Temperature by margin", APPENDIX, margin_temperature),
    FigureKind("margin_reliability", "Reliability by margin", CALIBRATORS, margin_reliability),
    FigureKind(
        "calibrator_critical_difference",
        "Critical differences of calibrators",
        CALIBRATORS,
        critical_difference.CALIBRATORS,
        each="study",
    ),
    FigureKind("shift_severity", "Severity of corruptions", "Shift", severity),
    FigureKind(
        "corruption_reduction", "Reduction of errors by corruption", "Shift", corruption_reduction
    ),
    FigureKind("training", "Training curves", TRAINING, histories.TRAINING, each="condition"),
    FigureKind("gate", "Gate of FeDLaS", TRAINING, histories.GATE, each="condition"),
    FigureKind(
        "smoothing_curve", "Smoothing of FeDLaS", TRAINING, smoothing_curve, each="condition"
    ),
    FigureKind("saturation", "Softmax saturation", TRAINING, saturation, each="condition"),
    FigureKind("retention", "Masking of MaC-Cal", TRAINING, histories.RETENTION, each="condition"),
    FigureKind(
        "confidence_histogram",
        "Confidence before and after masked retraining",
        TRAINING,
        confidence_histogram,
    ),
    FigureKind("fgsm_margin", "Attack distance by margin", "Probes", fgsm_margin),
    FigureKind("masked_inference", "Masked heads", "Probes", masked_inference),
    FigureKind("embedding", "Images in the plane", APPENDIX, embedding),
    FigureKind("prototype_angles", "Angles between classes", "Probes", prototype_angles),
    FigureKind("feature_profiles", "Features of easy and hard images", "Probes", feature_profiles),
    FigureKind("misjudged", "Images that the feature norm misjudges", APPENDIX, misjudged),
)


def write_figures(
    study: Path, manifest: Manifest, out: Path, formats: Sequence[str] = tuple(FORMATS)
) -> list[Path]:
    """Draw all figures for which there are data, and write ``index.json``.

    For each paper that the study names, ``{paper}_figures.csv`` and ``.md`` list its printed
    figures and ours. Returns the paths of the files written, the index last. Raises DataError: a
    file of the study is missing or damaged.

    Parameters
    ----------
    study : folder with the files that ``aggregate`` wrote.
    manifest : manifest of the study (``calgrid.configuration.plan.Plan.manifest``).
    out : folder for the figures.
    formats : suffixes of FORMATS; the report needs ``.png``.
    """
    data = StudyData(study, manifest)
    entries = []
    for kind in FIGURES:
        for group in kind.groups(data):
            rows = kind.content.collect(data, group)
            if len(rows):
                frame = Frame(data, group, rows)
                entries.append(kind.entry(frame))
                with mpl.rc_context(style.RC):
                    _save(kind.content.draw(frame), Path(out, entries[-1]["file"]), formats)
    paths = [
        Path(out, entry["file"]).with_suffix(suffix) for entry in entries for suffix in formats
    ]
    for table in figure_lists(data, entries):
        for suffix, content in table.files.items():
            paths.append(Path(out, f"{table.id}.{suffix}"))
            write_text(paths[-1], content)
    return [*paths, write_index(out, entries)]


def _save(figure: Figure, path: Path, formats: Sequence[str]) -> None:
    for suffix in formats:
        with replacing(path.with_suffix(suffix)) as temporary:
            figure.savefig(
                temporary, format=suffix[1:], dpi=style.DPI, metadata={FORMATS[suffix]: None}
            )
        figure.set_layout_engine("none")  # the layout is computed once, for all formats
