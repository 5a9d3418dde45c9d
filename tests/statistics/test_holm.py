"""Holm's correction."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrid.errors import DataError
from calgrid.statistics import holm


def test_by_hand():
    # sorted .01 .03 .04, times 3, 2, 1: .03 .06 .04; the last may not be below the one before it
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_comparisons_that_were_not_made_do_not_count():
    assert holm([0.02, np.nan, 0.04]) == pytest.approx([0.04, np.nan, 0.04], nan_ok=True)


def test_families_are_corrected_apart():
    found = holm([0.02, 0.03, 0.04, 0.05], ["a", "b", "a", "b"])
    assert found == pytest.approx([0.04, 0.06, 0.04, 0.06])


def test_no_comparisons():
    assert holm([]).tolist() == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
@settings(deadline=None, max_examples=50)
def test_between_the_plain_p_value_and_bonferroni(p_values):
    adjusted = holm(p_values)
    assert (adjusted >= np.array(p_values) - 1e-15).all()
    assert (adjusted <= np.minimum(1, len(p_values) * np.array(p_values)) + 1e-15).all()
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()


@pytest.mark.parametrize("p_value", [-0.1, 1.1])
def test_only_probabilities(p_value):
    with pytest.raises(DataError, match=r"p_values must be in \[0, 1\], got .* at position 1"):
        holm([0.5, p_value])
