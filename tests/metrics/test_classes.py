"""Metrics of classes that count alike, against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from calgrid import metrics
from calgrid.metrics.classes import class_auroc
from calgrid.metrics.intervals import resampled


def imbalanced(n=400):
    """Probabilities with ties, and labels of four classes, the last with about 40 samples."""
    rng = np.random.default_rng(0)
    labels = rng.choice(4, n, p=[0.6, 0.3, 0.09, 0.01])
    labels[:160] = np.arange(160) % 4
    scores = np.round(rng.normal(size=(n, 4)) + 2 * np.eye(4)[labels])
    probs = np.exp(scores)
    return probs / probs.sum(axis=1, keepdims=True), labels


def test_values_are_those_of_scikit_learn():
    probs, labels = imbalanced()
    expected = balanced_accuracy_score(labels, probs.argmax(axis=1))
    assert metrics.balanced_accuracy(probs, labels) == pytest.approx(expected, abs=1e-12)
    assert expected < metrics.accuracy(probs, labels) - 0.01
    areas = [roc_auc_score(labels == k, probs[:, k]) for k in range(4)]
    macro = roc_auc_score(labels, probs, multi_class="ovr", average="macro")
    assert metrics.macro_auroc(probs, labels) == pytest.approx(macro, abs=1e-12)
    found, _ = class_auroc(metrics.check_probabilities(probs, labels))
    np.testing.assert_allclose(found, areas, atol=1e-12)


def test_classes_without_samples_are_left_out():
    probs, labels = imbalanced()
    kept = labels != 3
    probs, labels = probs[kept], labels[kept]
    with pytest.warns(UserWarning, match="y_pred contains classes not in y_true"):
        expected = balanced_accuracy_score(labels, probs.argmax(axis=1))
    assert metrics.balanced_accuracy(probs, labels) == pytest.approx(expected, abs=1e-12)
    areas = [roc_auc_score(labels == k, probs[:, k]) for k in range(3)]
    assert metrics.macro_auroc(probs, labels) == pytest.approx(np.mean(areas), abs=1e-12)
    assert np.isnan(metrics.macro_auroc(probs[:5], [1] * 5))
    assert metrics.balanced_accuracy(probs[:1], labels[:1]) == metrics.accuracy(
        probs[:1], labels[:1]
    )


def test_probabilities_that_round_to_0_or_1_keep_their_order():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    logits = rng.normal(size=(200, 2)) + np.eye(2)[labels]
    margin = logits[:, 1] - logits[:, 0]
    output = metrics.from_logits(1e4 * logits)
    assert metrics.macro_auroc(output, labels) == pytest.approx(roc_auc_score(labels, margin))
    assert metrics.macro_auroc(output.probs, labels) < roc_auc_score(labels, margin) - 0.01


@pytest.mark.parametrize("name", ["balanced_accuracy", "macro_auroc"])
def test_resamples_have_the_derivative(name):
    """By rows that stand a thousand times, but for one resample that is added to them."""
    probs, labels = imbalanced(300)
    value = getattr(metrics, name)(probs, labels)
    draws = resampled(probs, labels, n_resamples=3).drawn[name]
    rng = np.random.default_rng([0, 0])
    for number, drawn in enumerate(draws):
        counts = 1000 + np.bincount(rng.integers(0, 300, 300), minlength=300)
        rows = np.repeat(np.arange(300), counts)
        change = 1001 * (getattr(metrics, name)(probs[rows], labels[rows]) - value)
        if number % 2 == 0:  # every second resample has further errors
            assert drawn == pytest.approx(value + change, abs=2e-3)


def test_an_interval_ends_at_one():
    probs, labels = imbalanced(300)
    probs = 0.999 * np.eye(4)[labels] + 0.001 * probs
    probs[0] = [0.2, 0.4, 0.2, 0.2]
    draws = resampled(probs, labels, n_resamples=100).drawn["balanced_accuracy"]
    assert draws.max() > 1
    assert metrics.bootstrap(probs, labels, n_resamples=100)["balanced_accuracy"][1] == 1
