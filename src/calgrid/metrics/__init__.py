"""Calibration metrics on arrays: probabilities ``(N, K)`` and labels ``(N,)`` in, a float out; NumPy and SciPy only."""

from calgrid.metrics._inputs import Predictions, check_probabilities
from calgrid.metrics.calibration import aece, cece, ece, ece_debiased, mce, o_ece, u_ece
from calgrid.metrics.evaluation import evaluate, evaluate_ood
from calgrid.metrics.intervals import bootstrap, bootstrap_difference, bootstrap_ood, resampled_metrics
from calgrid.metrics.null import ece_null
from calgrid.metrics.ood import auroc, fpr95, fpr95_oodpos, max_softmax, negative_entropy
from calgrid.metrics.scoring import accuracy, brier, nll, top5
from calgrid.metrics.smooth import smce
from calgrid.metrics.table import METRICS, Metric

__all__ = [
    "METRICS",
    "Metric",
    "Predictions",
    "accuracy",
    "aece",
    "auroc",
    "bootstrap",
    "bootstrap_difference",
    "bootstrap_ood",
    "brier",
    "cece",
    "check_probabilities",
    "ece",
    "ece_debiased",
    "ece_null",
    "evaluate",
    "evaluate_ood",
    "fpr95",
    "fpr95_oodpos",
    "max_softmax",
    "mce",
    "negative_entropy",
    "nll",
    "o_ece",
    "resampled_metrics",
    "smce",
    "top5",
    "u_ece",
]
