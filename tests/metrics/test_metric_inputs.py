"""Metrics take probabilities and labels, and refuse all else in one sentence."""

import numpy as np
import pytest
import torch
from tests.metrics.cases import B

from calgrid import metrics
from calgrid.errors import ConfigError, DataError

LABELLED = [name for name, metric in metrics.METRICS.items() if metric.kind == "labelled"]


@pytest.mark.parametrize("name", LABELLED)
def test_logits_are_refused_by_every_metric(name):
    with pytest.raises(DataError, match=r"in \[0, 1\] .*softmax.*, got 2 in row 0 .* class 0"):
        getattr(metrics, name)([[2.0, -1.0]], [0])


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([[0.6, 0.3]], [0], "rows that sum to 1 within 1e-06, row 0 .* sums to 0.9"),
        ([[0.5, 0.5], [np.nan, 1.0]], [0, 0], "must be finite, got nan in row 1 .*, class 0"),
        ([[np.inf, 0.0]], [0], "must be finite, got inf"),
        ([0.5, 0.5], [0], r"probs must have shape \(N, K\)"),
        (np.empty((0, 3)), [], "N >= 1"),
        ([["a", "b"]], [0], "must hold real numbers"),
        ([[0.5, 0.5], [1.0]], [0, 0], "rectangular"),
        ([[0.5 + 0j, 0.5]], [0], "real numbers"),
        (np.ma.masked_equal([[0.4, 0.6]], 0.6), [0], "probs has masked entries"),
        ([[0.4, 0.6]], np.ma.masked_equal([0], 0), "labels has masked entries"),
        ([[0.5, 0.5]], [2], r"labels must be in \[0, 2\), got 2 in row 0"),
        ([[0.5, 0.5], [0.5, 0.5]], [0, -1], "got -1 in row 1 .*out-of-distribution"),
        ([[0.5, 0.5]], [0.0], "labels must be integers"),
        ([[0.5, 0.5]], [np.nan], "labels must be integers, got NaN"),
        ([[0.5, 0.5]], [True], "labels must be integers"),
        ([[0.5, 0.5]], [0, 1], r"labels must have shape \(1,\)"),
        ([[0.5, 0.5]], [[0]], r"labels must have shape \(1,\)"),
    ],
)
def test_bad_input_is_named_with_its_place(probs, labels, message):
    with pytest.raises(DataError, match=message):
        metrics.evaluate(probs, labels)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_tensors_are_arrays(dtype):
    probs = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=dtype, requires_grad=True)
    assert metrics.accuracy(probs, torch.tensor([1, 1])) == 0.5
    assert metrics.bootstrap_ood(probs, probs, n_resamples=2).keys() == metrics.table.OOD.keys()
    assert metrics.bootstrap_soft(probs, probs, n_resamples=2).keys() == metrics.table.SOFT.keys()


@pytest.mark.parametrize("n_bins", [0, -1, 2.5, True])
@pytest.mark.parametrize(
    "name", ["ece", "aece", "cece", "mce", "o_ece", "u_ece", "ece_debiased", "ece_null"]
)
def test_the_number_of_bins_must_be_a_positive_integer(name, n_bins):
    with pytest.raises(ConfigError, match="n_bins must be an integer of at least 1"):
        getattr(metrics, name)(*B, n_bins)


def test_rounding_of_float32_is_tolerated_and_float64_is_held_to_more():
    probs = np.array([[0.2, 0.79997]])
    assert metrics.accuracy(probs.astype(np.float32), [1]) == 1
    with pytest.raises(DataError, match="sum to 1"):
        metrics.accuracy(probs, [1])
    beyond = np.array([[np.nextafter(np.float32(1), np.float32(2)), 0]], dtype=np.float32)
    assert metrics.check_probabilities(beyond, [0]).confidence.max() == 1


def test_results_do_not_depend_on_the_container():
    probs, labels = B
    expected = pytest.approx(metrics.evaluate(probs, labels), rel=0, abs=0, nan_ok=True)
    assert metrics.evaluate(probs.tolist(), labels.tolist()) == expected
    assert metrics.evaluate(np.asfortranarray(probs), labels.astype(np.uint8)) == expected
    assert metrics.evaluate(metrics.check_probabilities(probs, labels), labels) == expected


def test_inputs_are_left_as_they_were():
    probs, labels = B[0].copy(), B[1].copy()
    metrics.evaluate(probs, labels)
    metrics.bootstrap(probs, labels, n_resamples=5)
    np.testing.assert_array_equal(probs, B[0])
    np.testing.assert_array_equal(labels, B[1])
