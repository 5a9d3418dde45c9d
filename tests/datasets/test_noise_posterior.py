"""The posterior of noisy pictures: by hand, by brute force, and against draws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from calgrid.datasets import digits_ambiguous
from calgrid.datasets.digits_ambiguous import class_posterior, log_cells


def normal_cdf(z):
    return 0.5 * math.erfc(-z / math.sqrt(2))


def cell(value, pixel, sigma):
    """Probability that pixel + noise, rounded and cut, is ``value``."""
    low = -math.inf if value == 0 else (value - 0.5 - pixel) / sigma
    high = math.inf if value == 255 else (value + 0.5 - pixel) / sigma
    return normal_cdf(high) - normal_cdf(low)


def brute_force(image, bank, labels, n_classes, sigma):
    weights = np.zeros(n_classes)
    for picture, label in zip(bank, labels, strict=True):
        weights[label] += math.prod(
            cell(int(v), int(b), sigma) for v, b in zip(image, picture, strict=True)
        )
    return weights / weights.sum()


@given(
    bank=arrays(np.uint8, (5, 3)),
    images=arrays(np.uint8, (4, 3)),
    labels=arrays(np.int64, 5, elements=st.integers(0, 2)),
    sigma=st.floats(60, 300),
)
@settings(deadline=None, max_examples=40)
def test_equals_the_plain_sum_of_products(bank, images, labels, sigma):
    found = class_posterior(images, bank, labels, 3, sigma)
    expected = [brute_force(image, bank, labels, 3, sigma) for image in images]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("sigma", [0.1, 3.0, 114.75, 1e4])
def test_cells_of_a_pixel_sum_to_one_however_wide_the_noise(sigma):
    cells = np.exp(log_cells(np.array([0, 1, 128, 255], np.uint8), sigma))
    np.testing.assert_allclose(cells.sum(axis=1), 1, rtol=1e-12)


def test_cells_far_in_either_tail_keep_their_digits():
    """255 cells of 1/20 of the width away: the difference of two numbers next to 1 is 0."""
    up, down = log_cells(np.array([0, 255], np.uint8), 5.0)
    expected = stats.norm.logsf(253.5 / 5) + math.log1p(
        -math.exp(stats.norm.logsf(254.5 / 5) - stats.norm.logsf(50.7))
    )
    assert up[254] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(up, down[::-1], rtol=1e-12)


def test_images_in_chunks_are_images_one_by_one(monkeypatch):
    rng = np.random.default_rng(0)
    bank, images = (rng.integers(0, 256, (n, 4), dtype=np.uint8) for n in (6, 10))
    labels = np.arange(6) % 3
    whole = class_posterior(images, bank, labels, 3, 90.0)
    monkeypatch.setattr(digits_ambiguous, "CHUNK", 3)
    np.testing.assert_allclose(class_posterior(images, bank, labels, 3, 90.0), whole, rtol=1e-12)


def test_no_images_have_no_posterior():
    bank = np.zeros((2, 4), np.uint8)
    assert class_posterior(bank[:0], bank, np.array([0, 1]), 2, 50.0).shape == (0, 2)
