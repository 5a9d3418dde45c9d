"""What the margin says of the temperature that a confidence needs (SMART, arXiv 2506.23492,
Appendix A.1).

For K classes, margin m > 0 and a wanted confidence p in (1/K, 1), let S = 1/p - 1. The other K - 1
terms of the softmax lie between one and K - 1 times exp(-m/T), so that T >= m / ln((K - 1) / S),
and, where p > 1/2, T <= m / ln(1 / S).
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from calgrid.calibrators._objectives import confidence, log_rest, margin_and_excess
from calgrid.calibrators._validation import check_logits

#: with one gap, of two classes, both bounds are equal
GAPS = st.lists(st.floats(0.05, 30.0), min_size=1, max_size=8)


def bounds(margin, n_classes, target):
    odds = 1.0 / target - 1.0
    return margin / np.log((n_classes - 1) / odds), margin / -np.log(odds) if odds < 1.0 else np.inf


def temperature_for(logits, target):
    """Solve for the T at which the confidence of one row is ``target``."""
    margin, excess = margin_and_excess(check_logits(np.array([logits])))

    def difference(log_temperature):
        beta = np.exp(-np.array([log_temperature]))
        return confidence(margin, beta, *log_rest(excess, beta))[0][0] - target

    return float(np.exp(brentq(difference, -40.0, 40.0, xtol=1e-13)))


@settings(deadline=None, max_examples=40)
@given(gaps=GAPS, level=st.floats(0.02, 0.98))
def test_the_needed_temperature_lies_within_the_bounds_of_the_margin(gaps, level):
    n_classes = len(gaps) + 1
    target = 1.0 / n_classes + level * (1.0 - 1.0 / n_classes)
    lowest, highest = bounds(min(gaps), n_classes, target)
    needed = temperature_for([0.0, *(-gap for gap in gaps)], target)
    assert lowest * (1 - 1e-9) <= needed <= highest * (1 + 1e-9)


def test_both_bounds_are_reached():
    lowest, highest = bounds(2.0, 5, 0.8)
    assert temperature_for([0.0, -2.0, -2.0, -2.0, -2.0], 0.8) == pytest.approx(lowest)
    assert temperature_for([0.0, -2.0, *[-np.inf] * 3], 0.8) == pytest.approx(highest)


@settings(deadline=None, max_examples=30)
@given(largest=st.floats(-5.0, 20.0), wanted=st.floats(0.05, 50.0))
def test_the_largest_logit_alone_allows_every_temperature(largest, wanted):
    """K - 1 equal other logits, at the distance of confidence 0.8 at just this temperature."""
    distance = wanted * np.log(4 / (1.0 / 0.8 - 1.0))
    assume(distance > 1e-3)
    assert temperature_for([largest, *[largest - distance] * 4], 0.8) == pytest.approx(
        wanted, rel=1e-7
    )
