"""Failure prediction against loops over samples and against scikit-learn."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import average_precision_score, roc_auc_score
from tests.metrics.cases import calibrated, predictions, with_confidence

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


def test_ties_count_with_the_mean_over_their_orders():
    correct = [1, 0, 1, 0, 1]
    tied = with_confidence([0.9, 0.7, 0.7, 0.7, 0.5], correct)
    over_orders = [
        metrics.aurc(
            *with_confidence([0.9, *np.array([0.71, 0.7, 0.69])[list(order)], 0.5], correct)
        )
        for order in itertools.permutations(range(3))
    ]
    assert metrics.aurc(*tied) == pytest.approx(np.mean(over_orders), abs=1e-12)


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


def test_only_the_order_of_confidences_matters():
    probs, labels = calibrated(200, k=2)
    flatter = 0.5 + (probs - 0.5) / 2
    for name in ("aurc", "e_aurc", "augrc", "auroc_failure", "aupr_failure", "fpr95_failure"):
        assert getattr(metrics, name)(flatter, labels) == pytest.approx(
            getattr(metrics, name)(probs, labels)
        )
