"""Figures after those of MaC-Cal, for every study with their data."""

from calgrid.papers.maccal import (
    confidence_histogram,
    embedding,
    masked_inference,
    method_means,
    prototype_angles,
    retention,
)
from calgrid.report.figure import FigureKind

FIGURES = (
    FigureKind(
        "method_means", "Means over data sets and backbones", "Methods", method_means, each="study"
    ),
    FigureKind("retention", "Masking of MaC-Cal", "Training", retention, each="setting"),
    FigureKind(
        "confidence_histogram",
        "Confidence before and after masked retraining",
        "Training",
        confidence_histogram,
    ),
    FigureKind("masked_inference", "Masked heads", "Probes", masked_inference),
    FigureKind("embedding", "Images in the plane", "Appendix", embedding),
    FigureKind("prototype_angles", "Angles between classes", "Probes", prototype_angles),
)
