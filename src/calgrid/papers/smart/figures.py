"""Figures after those of SMART, for every study with their data."""

from calgrid.papers.smart import (
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
from calgrid.report.figure import FigureKind

FIGURES = (
    FigureKind(
        "backbone_bars",
        "Adaptive calibration error by backbone",
        "Calibrators",
        backbone_bars,
        each="dataset",
    ),
    FigureKind("val_size", "Validation rows", "Calibrators", val_size, each="study"),
    FigureKind("fit_course", "Course of the fit", "Appendix", fit_course),
    FigureKind("fit_objectives", "Objectives of the fit", "Calibrators", fit_objectives),
    FigureKind(
        "solved_temperature", "Temperature for a fixed confidence", "Appendix", solved_temperature
    ),
    FigureKind("margin_temperature", "Temperature by margin", "Appendix", margin_temperature),
    FigureKind("margin_reliability", "Reliability by margin", "Calibrators", margin_reliability),
    FigureKind(
        "corruption_reduction", "Reduction of errors by corruption", "Shift", corruption_reduction
    ),
    FigureKind("fgsm_margin", "Attack distance by margin", "Probes", fgsm_margin),
)
