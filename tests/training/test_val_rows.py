"""Rows of the validation split for each purpose."""

import numpy as np
import pytest

from calgrid.errors import DataError
from calgrid.training.val_rows import PURPOSES, rows_by_purpose


def test_by_default_every_purpose_has_all_rows():
    rows = rows_by_purpose([1, 0, 1], disjoint=False)
    assert [rows[purpose].tolist() for purpose in PURPOSES] == [[0, 1, 2]] * 3


def test_rows_of_each_class_are_dealt_in_turn():
    """Class 0 is in rows 1, 3, 4, 6; class 1 in rows 0, 2, 5: the deal goes on between."""
    rows = rows_by_purpose([1, 0, 1, 0, 0, 1, 0], disjoint=True)
    assert {purpose: each.tolist() for purpose, each in rows.items()} == {
        "choice": [1, 5, 6],
        "feedback": [0, 3],
        "fit": [2, 4],
    }


@pytest.mark.parametrize("count", [3, 100, 477])
def test_disjoint_parts_cover_the_split_and_hold_a_third_of_each_class(count):
    labels = np.random.default_rng(count).integers(0, 10, count)
    rows = rows_by_purpose(labels, disjoint=True)
    together = np.concatenate(list(rows.values()))
    assert sorted(together) == list(range(count))
    assert max(map(len, rows.values())) - min(map(len, rows.values())) <= 1
    counts = np.array([np.bincount(labels[each], minlength=10) for each in rows.values()])
    assert (np.ptp(counts, axis=0) <= 1).all()


def test_too_few_rows_are_refused(refuses):
    with refuses(DataError, "disjoint_validation: 2 validation rows can't be dealt to 3 purposes"):
        rows_by_purpose([0, 1], disjoint=True)
