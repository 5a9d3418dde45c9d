"""The table of metrics says what evaluation returns."""

import doctest
import importlib

import pytest
from tests.metrics.cases import B, calibrated

from calgrid import metrics

ROWS = [
    *("accuracy", "top5", "balanced_accuracy", "macro_auroc"),
    *("ece", "ece_debiased", "ece_null", "aece", "aece_eq", "ece_sweep", "cece", "mce"),
    *("rmsce", "rmsce_debiased", "squared_ce", "o_ece", "u_ece", "ks"),
    *("nll", "nll_calibration", "nll_refinement"),
    *("brier", "brier_calibration", "brier_refinement"),
    *("l1_ts", "l1_iso", "l2_ts", "l2_iso", "smce", "smece"),
    *("aurc", "auroc_failure", "aupr_failure", "fpr95_failure"),
]
ROWS_OOD = ["auroc", "fpr95", "auroc_entropy", "fpr95_entropy", "fpr95_oodpos"]
ROWS_OOD += ["aupr", "aupr_oodpos"]
NETWORK_SCORES = ("maxlogit", "energy", "knn", "vim")
ROWS_NETWORK = [
    f"{name}_{score}" for score in NETWORK_SCORES for name in ("auroc", "fpr95", "aupr")
]
SOFT = {"soft_kl": metrics.kl_human, "soft_tv": metrics.tv_human, "soft_ece": metrics.ece_human}


def test_identifiers_and_directions():
    assert list(metrics.METRICS) == [*ROWS, *ROWS_OOD, *ROWS_NETWORK, *SOFT]
    assert all(name == metric.id for name, metric in metrics.METRICS.items())
    higher = {name for name, metric in metrics.METRICS.items() if metric.lower_is_better is False}
    assert higher == {
        *("accuracy", "top5", "balanced_accuracy", "macro_auroc"),
        *("auroc_failure", "aupr_failure"),
        *("auroc", "auroc_entropy", "aupr", "aupr_oodpos"),
        *(name for name in ROWS_NETWORK if not name.startswith("fpr95")),
    }
    neither = [name for name, metric in metrics.METRICS.items() if metric.lower_is_better is None]
    assert neither == ["ece_null", "l1_ts", "l1_iso", "l2_ts", "l2_iso"]


def test_evaluation_is_the_table_applied():
    found = metrics.evaluate(*B, n_bins=5)
    assert list(found) == ROWS
    assert found == {name: getattr(metrics, name)(*B, 5) for name in ROWS}
    assert all(type(value) is float for value in found.values())
    probs, votes = calibrated(20)[0], calibrated(20, seed=1)[0]
    assert metrics.evaluate_soft(probs, votes, n_bins=5) == {
        name: f(probs, votes, 5) for name, f in SOFT.items()
    }


def test_metrics_need_neither_torch_nor_pandas(run_python):
    code = "import sys, calgrid.metrics; print(sorted({'torch', 'pandas'} & set(sys.modules)))"
    assert run_python(code).strip() == "[]"


@pytest.mark.parametrize("module", ["calibration", "ood", "table"])
def test_examples_in_docstrings(module):
    result = doctest.testmod(importlib.import_module(f"calgrid.metrics.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
