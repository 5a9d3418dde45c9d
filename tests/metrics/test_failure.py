"""Failure prediction against loops over samples and against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import average_precision_score, roc_auc_score
from tests.metrics.cases import predictions

from calgrid import metrics


def confidence_and_wrong(probs, labels):
    return probs.max(axis=1), (probs.argmax(axis=1) != labels).astype(float)


def mean_over_orders_of_ties(confidence, wrong):
    """Errors from the most confident down, each group of ties shared evenly: the mean over all
    orders of it.
    """
    order = np.argsort(-confidence, kind="stable")
    shared = np.array([wrong[confidence == confidence[i]].mean() for i in order])
    return np.cumsum(shared)


@given(predictions())
@settings(deadline=None, max_examples=60)
def test_areas_equal_a_loop_over_coverages(case):
    errors = mean_over_orders_of_ties(*confidence_and_wrong(*case))
    n = len(errors)
    assert metrics.aurc(*case) == pytest.approx((errors / np.arange(1, n + 1)).mean(), abs=1e-12)
    assert metrics.augrc(*case) == pytest.approx(errors.mean() / n, abs=1e-12)


@given(predictions())
@settings(deadline=None, max_examples=60)
def test_excess_is_over_the_best_order(case):
    _, wrong = confidence_and_wrong(*case)
    n = len(wrong)
    oracle = (np.cumsum(np.sort(wrong)) / np.arange(1, n + 1)).mean()
    assert metrics.e_aurc(*case) == pytest.approx(metrics.aurc(*case) - oracle, abs=1e-12)
    assert metrics.e_aurc(*case) >= -1e-12


@given(predictions())
@settings(deadline=None, max_examples=60)
def test_separation_agrees_with_scikit_learn_and_with_the_metrics_of_two_sets(case):
    confidence, wrong = confidence_and_wrong(*case)
    if wrong.min() == wrong.max():
        functions = metrics.auroc_failure, metrics.aupr_failure, metrics.fpr95_failure
        assert np.isnan([function(*case) for function in functions]).all()
        return
    assert metrics.aupr_failure(*case) == pytest.approx(
        average_precision_score(wrong, -confidence), abs=1e-12
    )
    assert metrics.auroc_failure(*case) == pytest.approx(
        roc_auc_score(1 - wrong, confidence), abs=1e-12
    )
    sets = confidence[wrong == 0], confidence[wrong == 1]
    assert metrics.auroc_failure(*case) == pytest.approx(metrics.auroc(*sets), abs=1e-12)
    assert metrics.fpr95_failure(*case) == pytest.approx(metrics.fpr95(*sets), abs=1e-12)
