"""Figures after those of FeDLaS, for every study with their data."""

from calgrid.papers.fedlas import (
    feature_profiles,
    gate,
    misjudged,
    saturation,
    smoothing_curve,
)
from calgrid.report.figure import FigureKind

FIGURES = (
    FigureKind("gate", "Gate of FeDLaS", "Training", gate, each="setting"),
    FigureKind(
        "smoothing_curve", "Smoothing of FeDLaS", "Training", smoothing_curve, each="setting"
    ),
    FigureKind("saturation", "Softmax saturation", "Training", saturation, each="setting"),
    FigureKind("feature_profiles", "Features of easy and hard images", "Probes", feature_profiles),
    FigureKind("misjudged", "Images that the feature norm misjudges", "Appendix", misjudged),
)
