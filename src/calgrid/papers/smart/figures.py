"""Figures modelled on the SMART paper's, for every study with their data."""

from calgrid.papers.smart import errors, fits
from calgrid.report.figure import FigureKind

FIGURES = (
    FigureKind(
        "backbone_bars",
        "Adaptive calibration error by backbone",
        "Calibrators",
        errors.backbone_bars_rows,
        errors.draw_backbone_bars,
        errors.backbone_bars_caption,
        each="dataset",
    ),
    FigureKind(
        "val_size",
        "Validation rows",
        "Calibrators",
        errors.val_size_rows,
        errors.draw_val_size,
        errors.val_size_caption,
        each="study",
    ),
    FigureKind(
        "fit_course",
        "Course of the fit",
        "Appendix",
        fits.fit_course_rows,
        fits.draw_fit_course,
        fits.fit_course_caption,
    ),
    FigureKind(
        "fit_objectives",
        "Objectives of the fit",
        "Calibrators",
        fits.fit_objectives_rows,
        fits.draw_fit_objectives,
        fits.fit_objectives_caption,
    ),
    FigureKind(
        "solved_temperature",
        "Temperature for a fixed confidence",
        "Appendix",
        fits.solved_temperature_rows,
        fits.draw_solved_temperature,
        fits.solved_temperature_caption,
    ),
    FigureKind(
        "margin_temperature",
        "Temperature by margin",
        "Appendix",
        fits.margin_temperature_rows,
        fits.draw_margin_temperature,
        fits.margin_temperature_caption,
    ),
    FigureKind(
        "margin_reliability",
        "Reliability by margin",
        "Calibrators",
        fits.margin_reliability_rows,
        fits.draw_margin_reliability,
        fits.margin_reliability_caption,
    ),
    FigureKind(
        "corruption_reduction",
        "Reduction of errors by corruption",
        "Shift",
        errors.corruption_reduction_rows,
        errors.draw_corruption_reduction,
        errors.corruption_reduction_caption,
    ),
    FigureKind(
        "fgsm_margin",
        "Attack distance by margin",
        "Probes",
        fits.fgsm_margin_rows,
        fits.draw_fgsm_margin,
        fits.fgsm_margin_caption,
    ),
)
