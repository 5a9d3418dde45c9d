"""Detection of out-of-distribution samples, and of failures by the confidence, with ties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score
from tests.metrics.cases import calibrated, predictions

from calgrid import metrics
from calgrid.errors import DataError

SCORES = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=40)


@given(SCORES, SCORES)
@settings(deadline=None, max_examples=50)
def test_auroc_counts_pairs_with_ties_as_half_and_aupr_averages_precision(scores_id, scores_ood):
    a, b = np.array(scores_id)[:, None], np.array(scores_ood)[None, :]
    assert metrics.auroc(scores_id, scores_ood) == pytest.approx(
        (a > b).mean() + 0.5 * (a == b).mean()
    )
    truth = [1] * len(scores_id) + [0] * len(scores_ood)
    assert metrics.auroc(scores_id, scores_ood) == pytest.approx(
        roc_auc_score(truth, scores_id + scores_ood)
    )
    both = np.array(scores_id + scores_ood)
    assert metrics.aupr(scores_id, scores_ood) == pytest.approx(
        average_precision_score(truth, both)
    )
    assert metrics.aupr_oodpos(scores_id, scores_ood) == pytest.approx(
        average_precision_score(1 - np.array(truth), -both)
    )


@given(SCORES, SCORES)
@settings(deadline=None, max_examples=50)
def test_fpr95_takes_the_largest_threshold_that_keeps_95_percent(scores_id, scores_ood):
    kept = [t for t in scores_id if np.mean(np.array(scores_id) >= t) >= 0.95 - 1e-12]
    assert metrics.fpr95(scores_id, scores_ood) == pytest.approx(
        np.mean(np.array(scores_ood) >= max(kept))
    )
    flagged = [t for t in scores_ood if np.mean(np.array(scores_ood) <= t) >= 0.95 - 1e-12]
    assert metrics.fpr95_oodpos(scores_id, scores_ood) == pytest.approx(
        np.mean(np.array(scores_id) <= min(flagged))
    )


def test_scores_of_probabilities_and_logits():
    probs = [[1.0, 0.0], [0.5, 0.5]]
    assert metrics.max_softmax(probs).tolist() == [1.0, 0.5]
    assert metrics.negative_entropy(probs) == pytest.approx([0, -np.log(2)])
    logits = [[3, 1, 0], [2, 2, 0]]
    assert metrics.max_logit(logits).tolist() == [3, 2]
    assert metrics.energy(logits) == pytest.approx([3.1698460, 2.7586237])


def test_distance_to_a_training_neighbour_is_that_of_unit_vectors():
    bank = [[1, 0], [0, 1], [1, 1]]
    found = [metrics.knn([[2, 1]], bank, k)[0] for k in (1, 2, 3, 50)]
    assert found == pytest.approx([-0.1026334, -0.2111456, -1.1055728, -1.1055728])
    assert metrics.knn([[0, 0]], bank).tolist() == [-2]


def test_virtual_logit():
    bank = np.array([[2, 0, 0.1], [0, 2, -0.1], [1, 1, 0.2], [-1, 1, 0]])
    weight, bias = np.array([[1, 0, 0], [0, 1, 0]]), np.array([0.5, -0.5])
    fitted = metrics.fit_vim(bank, bank @ weight.T + bias, weight, bias, 2)
    assert fitted.alpha == pytest.approx(19.3044389)
    sample = np.array([[1.0, 0, 1]])
    found = metrics.vim(sample, sample @ weight.T + bias, fitted)
    assert found == pytest.approx([-15.7021035])
    flat = bank * [1, 1, 0]
    with pytest.raises(DataError, match="no variance beyond 2 dimensions"):
        metrics.fit_vim(flat, flat @ weight.T + bias, weight, bias, 2)
    with pytest.raises(DataError, match="no variance beyond 4 dimensions"):
        metrics.fit_vim(bank, bank @ weight.T + bias, weight, bias, 4)


def test_evaluation_uses_both_scores():
    sharp, _ = calibrated(80, sharpness=4)
    flat, _ = calibrated(50, sharpness=1, seed=1)
    found = metrics.evaluate_ood(sharp, flat)
    assert list(found) == list(metrics.table.OOD)
    assert found["auroc"] == metrics.auroc(sharp.max(axis=1), flat.max(axis=1)) > 0.6
    assert found["fpr95_entropy"] == metrics.fpr95(
        metrics.negative_entropy(sharp), metrics.negative_entropy(flat)
    )
    assert found["fpr95_oodpos"] == metrics.fpr95_oodpos(sharp.max(axis=1), flat.max(axis=1))


@pytest.mark.parametrize("function", [metrics.auroc, metrics.fpr95, metrics.aupr])
@pytest.mark.parametrize(
    ("scores_id", "scores_ood", "message"),
    [
        ([], [1.0], r"scores_id must have shape \(N,\) with N >= 1"),
        ([1.0], [[1.0]], "scores_ood must have shape"),
        ([1.0], [0.0, np.nan], "scores_ood must be finite, got nan at position 1"),
        (["a"], [1.0], "scores_id must be a rectangular array of numbers"),
    ],
)
def test_bad_scores_are_named(function, scores_id, scores_ood, message):
    with pytest.raises(DataError, match=message):
        function(scores_id, scores_ood)


def test_sets_of_different_models_and_logits_are_refused():
    with pytest.raises(DataError, match="probs_ood must have the 2 classes of probs_id, got 3"):
        metrics.evaluate_ood([[0.5, 0.5]], [[0.5, 0.25, 0.25]])
    with pytest.raises(DataError, match="probs_ood must hold probabilities"):
        metrics.evaluate_ood([[0.5, 0.5]], [[7.0, -2.0]])


def confidence_and_wrong(probs, labels):
    return probs.max(axis=1), (probs.argmax(axis=1) != labels).astype(float)


def mean_over_orders_of_ties(confidence, wrong):
    """Errors from the most confident down, each group of ties shared evenly."""
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
