"""The calibration-refinement split of the Brier score."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.metrics.cases import calibrated, predictions

from calgrid import metrics


def loop_over_cells(probs, labels, n_bins):
    """Plain calibration part, its bias correction, and the rest of the score, class by class and
    bin by bin.
    """
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


def test_coarse_forecasts_have_the_refinement_of_their_outcomes():
    """Two forecasts, each in a bin of its own: refinement is the variance of the labels within
    each.
    """
    probs = np.array([[0.8, 0.2]] * 100 + [[0.3, 0.7]] * 50)
    labels = np.array([0] * 70 + [1] * 30 + [0] * 20 + [1] * 30)
    within = (100 * 2 * 0.7 * 0.3 * 100 / 99 + 50 * 2 * 0.4 * 0.6 * 50 / 49) / 150
    assert metrics.brier_refinement(probs, labels) == pytest.approx(within)
