"""Splits: exact sizes, stratified, disjoint, drawn once for ever."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from calgrid.datasets import ImageSplit
from calgrid.datasets.base import deal_rows, stratified_order
from calgrid.datasets.digits import Digits
from calgrid.errors import DataError

IMAGES, LABELS = np.zeros((2, 3, 8, 8), np.uint8), np.zeros(2, np.int64)


@settings(deadline=None, max_examples=50)
@given(
    labels=st.lists(st.integers(0, 4), min_size=3, max_size=120).map(np.array),
    cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    seed=st.integers(0, 2**31 - 1),
)
def test_splits_hold_every_row_once_in_the_asked_sizes(labels, cuts, seed):
    first, second = sorted(int(cut * len(labels)) for cut in cuts)
    sizes = {"train": first, "val": second - first, "test": len(labels) - second}
    rows = deal_rows(stratified_order(labels, seed), sizes)
    assert {name: len(part) for name, part in rows.items()} == sizes
    assert sorted(np.concatenate(list(rows.values()))) == list(range(len(labels)))


@settings(deadline=None, max_examples=50)
@given(
    per_class=st.integers(2, 60),
    classes=st.integers(2, 10),
    share=st.floats(0.1, 0.9),
    seed=st.integers(0, 99),
)
def test_counts_of_balanced_sources_are_within_a_row_of_the_share(per_class, classes, share, seed):
    labels = np.arange(per_class * classes) % classes
    size = int(share * len(labels))
    rows = deal_rows(stratified_order(labels, seed), {"train": size, "test": len(labels) - size})
    counts = np.bincount(labels[rows["train"]], minlength=classes)
    assert np.abs(counts - size / classes).max() <= 1


def test_sizes_must_add_up():
    with pytest.raises(DataError, match="must add up to the 3 rows"):
        deal_rows(np.arange(3), {"train": 2, "test": 2})


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES.astype(float), LABELS, "must be uint8 of shape .N, 3, H, W., got float64"),
        (IMAGES[:, 0], LABELS, r"got uint8 \(2, 8, 8\)"),
        (IMAGES, LABELS[:1], r"int64 of shape \(2,\)"),
        (IMAGES, LABELS.astype(np.int32), "got int32"),
    ],
)
def test_a_split_refuses_other_types_and_lengths(images, labels, message):
    with pytest.raises(DataError, match=message):
        ImageSplit(images, labels)


def test_digits_are_the_source_scaled_to_a_byte_with_the_constants_of_the_training_split(digits):
    built = Digits().build(None)["test"]
    source = load_digits()
    expected = np.rint(source.images[built.rows] * 255 / 16)
    assert np.array_equal(digits.splits["test"].images[:, 0], expected)
    assert np.array_equal(digits.splits["test"].labels, source.target[built.rows])
    assert digits.splits["test"].images.max() == 255
    pixels = digits.splits["train"].images / 255.0
    assert pixels.mean(axis=(0, 2, 3)) == pytest.approx(digits.mean, abs=5e-4)
    assert pixels.std(axis=(0, 2, 3)) == pytest.approx(digits.std, abs=5e-4)


def test_digits_split_is_frozen(digits):
    """SHA-256 of the source rows of the training split, little-endian int64, ascending."""
    rows = Digits().build(None)["train"].rows
    digest = hashlib.sha256(rows.astype("<i8")).hexdigest()
    assert rows[:5].tolist() == [37, 47, 48, 75, 102]
    assert digest == "c68c42d28e2d2631e5ca5624c1febe1591da1dc7c6a88a6aa251d96db92f2e03"
    assert digits.manifest["splits"]["train"]["rows_sha256"] == digest
