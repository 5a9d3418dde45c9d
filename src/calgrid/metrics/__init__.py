"""Calibration metrics of probabilities ``(N, K)`` and labels ``(N,)``, with NumPy and SciPy only.

    probabilities, labels = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]), np.array([0, 1, 1])
    ece(probabilities, labels, n_bins=15)
    evaluate(probabilities, labels)  # all metrics by name

A new metric is a function here and a row of :data:`METRICS` (``metrics/table.py``).
"""

from calgrid.metrics._inputs import Output, Predictions, check_probabilities, from_logits
from calgrid.metrics.calibration import (
    aece,
    aece_eq,
    aece_left_out,
    cece,
    ece,
    ece_debiased,
    ece_sweep,
    ks,
    mce,
    o_ece,
    rmsce,
    rmsce_debiased,
    squared_ce,
    u_ece,
)
from calgrid.metrics.classes import balanced_accuracy, macro_auroc
from calgrid.metrics.failure import augrc, aupr_failure, aurc, auroc_failure, e_aurc, fpr95_failure
from calgrid.metrics.human import ece_human, kl_human, tv_human
from calgrid.metrics.intervals import (
    bootstrap,
    bootstrap_difference,
    bootstrap_ood,
    bootstrap_soft,
)
from calgrid.metrics.kernel import smece
from calgrid.metrics.null import ece_null
from calgrid.metrics.ood import (
    aupr,
    aupr_oodpos,
    auroc,
    energy,
    fit_vim,
    fpr95,
    fpr95_oodpos,
    knn,
    max_logit,
    max_softmax,
    negative_entropy,
    vim,
)
from calgrid.metrics.recalibration import (
    l1_iso,
    l1_ts,
    l2_iso,
    l2_ts,
    nll_calibration,
    nll_refinement,
)
from calgrid.metrics.scoring import (
    accuracy,
    brier,
    brier_calibration,
    brier_refinement,
    brier_top_label,
    nll,
    top5,
)
from calgrid.metrics.smooth import smce
from calgrid.metrics.table import METRICS, Metric, evaluate, evaluate_ood, evaluate_soft

__all__ = [
    "METRICS",
    "Metric",
    "Output",
    "Predictions",
    "accuracy",
    "aece",
    "aece_eq",
    "aece_left_out",
    "augrc",
    "aupr",
    "aupr_failure",
    "aupr_oodpos",
    "aurc",
    "auroc",
    "auroc_failure",
    "balanced_accuracy",
    "bootstrap",
    "bootstrap_difference",
    "bootstrap_ood",
    "bootstrap_soft",
    "brier",
    "brier_calibration",
    "brier_refinement",
    "brier_top_label",
    "cece",
    "check_probabilities",
    "e_aurc",
    "ece",
    "ece_debiased",
    "ece_human",
    "ece_null",
    "ece_sweep",
    "energy",
    "evaluate",
    "evaluate_ood",
    "evaluate_soft",
    "fit_vim",
    "fpr95",
    "fpr95_failure",
    "fpr95_oodpos",
    "from_logits",
    "kl_human",
    "knn",
    "ks",
    "l1_iso",
    "l1_ts",
    "l2_iso",
    "l2_ts",
    "macro_auroc",
    "max_logit",
    "max_softmax",
    "mce",
    "negative_entropy",
    "nll",
    "nll_calibration",
    "nll_refinement",
    "o_ece",
    "rmsce",
    "rmsce_debiased",
    "smce",
    "smece",
    "squared_ce",
    "top5",
    "tv_human",
    "u_ece",
    "vim",
]
