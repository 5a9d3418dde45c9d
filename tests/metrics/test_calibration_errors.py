"""Binned errors and the split of the Brier score equal loops over bins; their invariants."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.metrics.cases import calibrated, predictions

from calgrid import metrics
from calgrid.metrics import binning

BINS = st.sampled_from([1, 2, 5, 15, 40])


def loop_over_bins(confidence, correct, edges):
    """(count, mean confidence - accuracy) of each filled (low, high]; 0 is in the first."""
    found = []
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if low == 0:
            inside |= confidence == 0
        if inside.any():
            found.append((inside.sum(), confidence[inside].mean() - correct[inside].mean()))
    return found


def confidence_and_correct(probs, labels):
    return probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(float)


@given(predictions(), BINS)
@settings(deadline=None, max_examples=50)
def test_equal_width_errors_equal_a_loop(case, n_bins):
    confidence, correct = confidence_and_correct(*case)
    bins = loop_over_bins(confidence, correct, np.linspace(0, 1, n_bins + 1))
    n = len(confidence)
    assert metrics.ece(*case, n_bins) == pytest.approx(
        sum(c * abs(gap) for c, gap in bins) / n, abs=1e-12
    )
    assert metrics.o_ece(*case, n_bins) == pytest.approx(
        sum(c * max(gap, 0) for c, gap in bins) / n, abs=1e-12
    )
    assert metrics.u_ece(*case, n_bins) == pytest.approx(
        sum(c * max(-gap, 0) for c, gap in bins) / n, abs=1e-12
    )
    assert metrics.mce(*case, n_bins) == pytest.approx(max(abs(gap) for _, gap in bins), abs=1e-12)
    square = sum(c * gap**2 for c, gap in bins) / n
    assert metrics.rmsce(*case, n_bins) == pytest.approx(square**0.5, abs=1e-12)


@given(predictions(), BINS)
@settings(deadline=None, max_examples=50)
def test_adaptive_error_equals_a_loop_over_interpolated_edges(case, n_bins):
    confidence, correct = confidence_and_correct(*case)
    n = len(confidence)
    edges = np.interp(np.linspace(0, n, n_bins + 1), np.arange(n), np.sort(confidence))
    inside = [(confidence > low) & (confidence <= high) for low, high in itertools.pairwise(edges)]
    expected = sum(abs((confidence - correct)[members].sum()) for members in inside) / n
    assert metrics.aece(*case, n_bins) == pytest.approx(expected, abs=1e-12)


@given(predictions(), BINS)
@settings(deadline=None, max_examples=50)
def test_classwise_error_equals_a_loop_over_classes(case, n_bins):
    probs, labels = case
    edges = np.linspace(0, 1, n_bins + 1)
    total = 0.0
    for k in range(probs.shape[1]):
        bins = loop_over_bins(probs[:, k], (labels == k).astype(float), edges)
        total += sum(c * abs(gap) for c, gap in bins) / len(labels)
    assert metrics.cece(*case, n_bins) == pytest.approx(total / probs.shape[1], abs=1e-12)


@given(predictions(), BINS)
@settings(deadline=None, max_examples=50)
def test_bounds(case, n_bins):
    probs, labels = case
    found = metrics.evaluate(probs, labels, n_bins=n_bins)
    confidence, correct = confidence_and_correct(probs, labels)
    residual = confidence - correct
    # no bins and no smoothing remove the mean residual, and none makes more of the residuals
    for name in ("ece", "smece"):
        assert abs(residual.mean()) - 1e-9 <= found[name] <= np.abs(residual).mean() + 1e-9
    assert found["smce"] <= min(np.abs(residual).mean(), 2 * found["smece"]) + 1e-9
    assert found["ece"] <= found["rmsce"] + 1e-12 <= found["mce"] + 2e-12 <= 1 + 3e-12
    assert not found["rmsce_debiased"] > found["rmsce"] + 1e-12
    assert found["ece_debiased"] <= found["ece"] + 1e-12
    assert 0 <= found["brier"] <= 2 + 1e-12
    assert 0 <= found["aurc"] <= 1 + 1e-12
    undefined = {name for name, value in found.items() if not np.isfinite(value)}
    expected = set()
    if correct.min() == correct.max():
        expected |= {"auroc_failure", "aupr_failure", "fpr95_failure"}
    if labels.min() == labels.max():
        expected.add("macro_auroc")
    if binning.bin_sums(metrics.check_probabilities(probs, labels), n_bins).count.max() < 2:
        expected |= {"squared_ce", "rmsce_debiased"}
    assert undefined == expected


@pytest.mark.parametrize("n_bins", range(1, 201))
def test_the_bins_of_i_of_m_end_there(n_bins):
    """(low, high] in exact arithmetic: i / M is in bin i - 1, the next number above in bin i."""
    values = np.array([float(Fraction(i, n_bins)) for i in range(1, n_bins + 1)])
    np.testing.assert_array_equal(binning.bin_index(values, n_bins), np.arange(n_bins))
    above = np.nextafter(values[:-1], 1)
    np.testing.assert_array_equal(binning.bin_index(above, n_bins), np.arange(1, n_bins))
    assert binning.bin_borders(values, n_bins).tolist() == list(range(n_bins + 1))


def test_a_perfect_and_certain_model_scores_zero():
    probs = np.eye(4)[[0, 1, 2, 3, 3]]
    found = metrics.evaluate(probs, [0, 1, 2, 3, 3])
    assert found.pop("accuracy") == found.pop("top5") == 1
    assert found.pop("balanced_accuracy") == found.pop("macro_auroc") == 1
    undefined = [found.pop(f"{name}_failure") for name in ("auroc", "aupr", "fpr95")]
    assert np.isnan(undefined).all()
    assert max(map(abs, found.values())) < 1e-12


@pytest.mark.parametrize("order", ["alternating", "sorted"])
def test_a_constant_confidence_of_90_percent_that_is_half_right(order):
    """The gap is 40 %, whatever the order of the rows; the form of the papers has no bin for it."""
    labels = np.arange(1000) % 2 if order == "alternating" else np.arange(1000) // 500
    probs = np.tile([0.9, 0.1], (1000, 1))
    assert metrics.aece_eq(probs, labels) == pytest.approx(0.4, abs=1e-12)
    assert metrics.aece(probs, labels) == 0
    assert metrics.aece_left_out(probs, labels) == 1000
    low, high = metrics.bootstrap(probs, labels, n_resamples=200)["aece_eq"]
    assert 0.35 < low < 0.4 < high < 0.45


def loop_over_cells(probs, labels, n_bins):
    """Plain calibration part and its bias correction, class by class and bin by bin."""
    n, plain, correction = len(labels), 0.0, 0.0
    for k in range(probs.shape[1]):
        p, y = probs[:, k], (labels == k).astype(float)
        index = np.searchsorted(np.linspace(0, 1, n_bins + 1)[1:-1], p)
        for b in np.unique(index):
            inside = index == b
            if inside.sum() > 1:
                plain += inside.sum() / n * (p[inside].mean() - y[inside].mean()) ** 2
                correction += inside.sum() / n * y[inside].var(ddof=1) / inside.sum()
    return plain, correction


@given(predictions(), st.sampled_from([1, 3, 15]))
@settings(deadline=None, max_examples=50)
def test_split_equals_a_loop_over_classes_and_bins(case, n_bins):
    plain, correction = loop_over_cells(*case, n_bins)
    calibration = metrics.brier_calibration(*case, n_bins)
    assert calibration == pytest.approx(plain - correction, abs=1e-12)
    assert calibration + metrics.brier_refinement(*case, n_bins) == pytest.approx(
        metrics.brier(*case), abs=1e-12
    )


def test_calibration_part_of_a_calibrated_model_is_zero_in_the_mean():
    found = np.array([metrics.brier_calibration(*calibrated(300, seed=seed)) for seed in range(80)])
    assert abs(found.mean()) < 3 * found.std() / np.sqrt(len(found))
    assert found.min() < 0 < found.max()
