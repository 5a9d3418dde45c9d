"""Neither the order of classes nor that of samples is information."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrid import metrics
from calgrid.calibrators._probabilities import softmax, top_label
from calgrid.metrics.table import LABELLED, OOD, OOD_NETWORK, SOFT

#: of logits and of features
OF_LOGITS = [
    metric for metric in OOD_NETWORK.values() if metric.score in (metrics.energy, metrics.max_logit)
]


#: metrics in which the order of samples decides between ties
BY_ORDER = ("ece_sweep", "l1_", "l2_")


def tied_logits(rng: np.random.Generator, n_samples: int, n_classes: int) -> np.ndarray:
    """Logits (N, K) that differ within a row; most rows are permutations of three others."""
    profiles = np.array([rng.choice(99, n_classes, replace=False) for _ in range(3)]) / 7
    rows = rng.permuted(profiles[rng.integers(0, 3, n_samples)], axis=1)
    rows[: n_samples // 4] *= 40  # confidences that round to 1
    return rows


def values_of(logits: np.ndarray, labels: np.ndarray, votes: np.ndarray) -> dict[str, float]:
    """Every metric of the table, of logits and of their probabilities."""
    output = metrics.from_logits(logits)
    half = len(logits) // 2
    found = {}
    for kind, probs in (("logits", output), ("probabilities", output.probs)):
        labelled = metrics.evaluate(probs, labels)
        soft = metrics.evaluate_soft(probs, votes)
        ood = metrics.evaluate_ood(probs[:half], probs[half:])
        found |= {f"{name} of {kind}": value for name, value in (labelled | soft | ood).items()}
    for metric in OF_LOGITS:
        found[metric.id] = metric.function(metric.score(logits[:half]), metric.score(logits[half:]))
    assert len(found) == 2 * (len(LABELLED) + len(SOFT) + len(OOD)) + len(OF_LOGITS)
    return found


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(4, 60), st.integers(2, 9))
def test_an_order_of_the_classes_changes_no_bit_of_any_metric(seed, n_samples, n_classes):
    rng = np.random.default_rng(seed)
    logits = tied_logits(rng, n_samples, n_classes)
    labels = rng.integers(0, n_classes, n_samples)
    votes = rng.random(logits.shape)
    order = rng.permutation(n_classes)
    permuted = values_of(logits[:, order], np.argsort(order)[labels], votes[:, order])
    np.testing.assert_equal(permuted, values_of(logits, labels, votes))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(8, 60), st.integers(2, 9), st.booleans())
def test_an_order_of_samples_changes_only_the_rounding_of_sums(seed, n_samples, n_classes, tied):
    """But for the bin of the sweep, or the fold, of a tie, which the stable order decides."""
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(n_samples, n_classes))
    if tied:
        logits = tied_logits(rng, n_samples, n_classes)
    labels = rng.integers(0, n_classes, n_samples)
    votes = rng.random(logits.shape)
    half = n_samples // 2  # in and out of distribution
    order = np.append(rng.permutation(half), half + rng.permutation(n_samples - half))
    found, permuted = (
        {
            name: value
            for name, value in values_of(logits[rows], labels[rows], votes[rows]).items()
            if not (tied and name.startswith(BY_ORDER))
        }
        for rows in (slice(None), order)
    )
    assert permuted == pytest.approx(found, abs=1e-9, nan_ok=True)


def test_rows_with_the_same_numbers_are_ties_in_metrics_and_calibrators():
    logits = np.array([[0.1, 0.2, 0.3, 1.7], [0.3, 0.1, 1.7, 0.2], [1.7, 0.3, 0.2, 0.1]]) - 1.7
    confidence = softmax(logits).max(axis=1)
    assert len(set(confidence)) == 1
    assert (top_label(logits)[1] == confidence).all()
    assert (metrics.from_logits(logits).probs.max(axis=1) == confidence).all()
    # an error among three ties: each order of them counts alike
    assert metrics.auroc_failure(metrics.from_logits(logits), [3, 2, 1]) == 0.5
