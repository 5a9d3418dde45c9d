"""Values computed by hand, to the printed digits."""

import numpy as np
import pytest
from tests.metrics.cases import A, B, with_confidence

from calgrid import metrics
from calgrid.errors import ConfigError
from calgrid.metrics import binning, kernel, scoring
from calgrid.metrics.classwise import classwise_sums


@pytest.mark.parametrize(
    ("metric", "n_bins", "expected"),
    [
        ("ece", 1, 0.08),  # one bin leaves only |mean confidence - accuracy|
        ("aece_eq", 1, 0.08),
        ("ece", 5, 0.136),  # .1 * .38 + .3 * .19 + .3 * .04333 + .3 * .09333
        ("ece", 15, 0.358),
        ("o_ece", 5, 0.108),
        ("u_ece", 5, 0.028),
        ("mce", 5, 0.38),
        ("aece", 5, 0.100),  # edges .38 .53 .65 .77 .92 .95: the sample at .38 is in no bin
        ("rmsce", 5, 0.1686613965),
        ("aece_eq", 5, 0.234),
        ("rmsce_debiased", 5, 0.0),  # the square is -.05266
        # bins .38 | .46 .53 .58 | .65 .71 .77 | .85 .92 .95: [(.57^2 - .7689) + (.13^2 - .7995)
        # + (.28^2 - .0314)] / 2 / 10
        ("squared_ce", 5, -0.05898),
        ("ks", 15, 0.108),
        ("ece_sweep", 15, 0.106),  # four bins
        ("smce", 15, 0.09032),
        ("accuracy", 15, 0.6),
        ("brier_top_label", 15, 0.17442),
        ("aurc", 15, 0.1885714286),
        ("e_aurc", 15, 0.0759523810),  # the oracle has .1126190476
        ("augrc", 15, 0.14),
        ("auroc_failure", 15, 0.8333333333),
        # shares of errors up to .38, .46, .58 and .77
        ("aupr_failure", 15, (1 + 1 + 3 / 4 + 4 / 7) / 4),
        ("fpr95_failure", 15, 0.5),  # threshold .53 keeps all six, and two of the four errors
    ],
)
def test_ten_samples(metric, n_bins, expected):
    assert getattr(metrics, metric)(*A, n_bins) == pytest.approx(expected, abs=5.1e-11)


def test_debiased_square_of_ten_samples():
    sums = binning.bin_sums(metrics.check_probabilities(*A), 5)
    assert binning.debiased_square(sums) == pytest.approx(-0.0526577778, abs=1e-5)


def test_sweep_of_ten_samples_in_the_norm_of_the_paper():
    assert metrics.ece_sweep(*A, norm=2) == pytest.approx(0.1080894691, abs=5.1e-11)
    with pytest.raises(ConfigError, match="norm must be 1 or 2"):
        metrics.ece_sweep(*A, norm=3)


def test_kernel_error_of_ten_samples():
    """Also by direct quadrature; relplot 1.0.3 gives .0929 and .1428 on its coarser grid."""
    assert metrics.smece(*A) == pytest.approx(0.0932262, abs=1e-7)
    predictions = metrics.check_probabilities(*A)
    residual = (predictions.confidence - predictions.correct) / 10
    nodes = residual @ kernel.node_shares(predictions.confidence)
    smooth = kernel.smoothed(kernel.spectrum(nodes[None]), np.array([0.05]))
    assert smooth == pytest.approx(0.1430567, abs=5e-7)


@pytest.mark.parametrize(
    ("metric", "n_bins", "expected"),
    [
        ("accuracy", 15, 4 / 6),
        ("ece", 5, 0.1916666667),
        ("o_ece", 5, 0.0833333333),
        ("u_ece", 5, 0.1083333333),
        ("mce", 5, 0.275),
        ("ece", 15, 0.3416666667),
        ("cece", 5, 1 / 6),  # classes .1166667, .0983333, .285
        ("cece", 15, 0.2888888889),
        ("brier", 15, 0.3855333333),
        ("nll", 15, 0.6866905425),
        ("smce", 15, 0.0508333333),
    ],
)
def test_three_classes(metric, n_bins, expected):
    assert getattr(metrics, metric)(*B, n_bins) == pytest.approx(expected, abs=1e-10)


def test_parts_of_three_classes():
    predictions = metrics.check_probabilities(*B)
    by_class = binning.mean_gap(classwise_sums(predictions, 5))
    assert by_class == pytest.approx([0.1166666667, 0.0983333333, 0.285], abs=1e-10)
    by_row = scoring.brier_per_sample(predictions)
    assert by_row == pytest.approx([0.1382, 0.095, 0.875, 0.855, 0.015, 0.335], abs=1e-12)
    assert by_row.mean() / 3 == pytest.approx(0.1285111, abs=1e-7)


def test_ties_merge_adaptive_bins():
    case = with_confidence([1] * 8 + [0.6, 0.5], [1, 1, 1, 1, 1, 1, 0, 1, 0, 1])
    assert metrics.aece(*case, 5) == pytest.approx(0.16)
    assert metrics.aece_eq(*case, 5) == pytest.approx(0.11)


def test_certain_mistakes_have_a_finite_nll():
    probs = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert metrics.nll(probs, np.array([0, 1])) == pytest.approx(-np.log(5e-324) / 2)
    single = probs.astype(np.float32)
    assert metrics.nll(single, np.array([0, 1])) == pytest.approx(149 * np.log(2) / 2)


def test_top5_counts_ties_by_class_index_and_is_one_for_fewer_than_five_classes():
    probs = np.full((8, 8), 1 / 8)
    assert metrics.top5(probs, np.arange(8)) == pytest.approx(5 / 8)
    assert metrics.accuracy(probs, np.arange(8)) == pytest.approx(1 / 8)
    assert metrics.top5(*B) == 1
