"""Values computed by hand, to the printed digits."""

import numpy as np
import pytest
from tests.metrics.cases import A, B, calibrated, softmax, with_confidence

from calgrid import metrics
from calgrid.errors import ConfigError
from calgrid.metrics import binning


def test_errors_of_ten_samples_without_their_bias():
    """Those with it, and all other metrics, are compared with loops and other packages."""
    # bins .38 | .46 .53 .58 | .65 .71 .77 | .85 .92 .95: [(.57^2 - .7689) + (.13^2 - .7995)
    # + (.28^2 - .0314)] / 2 / 10
    assert metrics.squared_ce(*A, 5) == pytest.approx(-0.05898, abs=5.1e-11)
    sums = binning.bin_sums(metrics.check_probabilities(*A), 5)
    assert binning.debiased_square(sums) == pytest.approx(-0.0526577778, abs=1e-5)
    assert metrics.rmsce_debiased(*A, 5) == 0
    probs, labels = calibrated(300)
    wrong = metrics.check_probabilities(softmax(3 * np.log(probs)), labels)
    square = binning.debiased_square(binning.bin_sums(wrong, 5))
    assert metrics.rmsce_debiased(wrong, labels, 5) == pytest.approx(square**0.5)
    with pytest.raises(ConfigError, match="norm must be 1 or 2"):
        metrics.ece_sweep(*A, norm=3)


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
