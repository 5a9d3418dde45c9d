"""The smooth calibration error is the optimum of its linear programme."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from tests.metrics.cases import calibrated, with_confidence

from calgrid.metrics import smce


def linear_programme(confidence, correct):
    order = np.argsort(confidence)
    residual, n = (correct - confidence)[order] / len(confidence), len(confidence)
    constraints = {}
    if n > 1:
        steps = sparse.diags([-np.ones(n - 1), np.ones(n - 1)], [0, 1], shape=(n - 1, n))
        gaps = np.diff(confidence[order])
        constraints = {"A_ub": sparse.vstack([steps, -steps]), "b_ub": np.concatenate([gaps, gaps])}
    return -linprog(-residual, bounds=(-1, 1), method="highs", **constraints).fun


@given(st.integers(1, 60), st.booleans(), st.floats(0, 1), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=50)
def test_equals_the_linear_programme(n, tied, accuracy, seed):
    rng = np.random.default_rng(seed)
    confidence = rng.integers(2, 21, n) / 20 if tied else rng.uniform(0.06, 1, n)
    correct = (rng.random(n) < accuracy).astype(int)
    assert smce(*with_confidence(confidence, correct)) == pytest.approx(
        linear_programme(confidence, correct), abs=1e-9
    )


def test_equals_the_linear_programme_on_a_thousand_samples():
    probs, labels = calibrated(1000, k=3)
    expected = linear_programme(probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(int))
    assert smce(probs, labels) == pytest.approx(expected, abs=1e-9)
