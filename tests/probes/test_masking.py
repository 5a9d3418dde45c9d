"""Masked inference: nothing masked is the network itself, everything masked is its bias."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from tests.probes.conftest import normalised

from calgrid.metrics import evaluate
from calgrid.probes import build_probe
from calgrid.probes.base import Layer
from calgrid.probes.masking import SCORES, magnitude_ranks, masked_logits


def measure(subject, **options):
    return build_probe("masking", **options).measure(subject)


def test_no_mask_is_the_network_itself(linear, case):
    weight, bias, images, labels = case(count=200)
    table = measure(linear(weight, bias, images, labels), ratios=[0.0], draws=2)
    probabilities = softmax(normalised(images) @ weight.T + bias, axis=1)
    expected = evaluate(probabilities, labels)
    rows = list(zip(table["mode"], table["draw"], strict=True))
    assert rows == [("magnitude", 0), ("random", 0), ("random", 1)]
    for name in SCORES:
        assert table[name].to_numpy() == pytest.approx(expected[name], abs=1e-5), name
    assert table["confidence"].to_numpy() == pytest.approx(
        probabilities.max(axis=1).mean(), abs=1e-5
    )


def test_everything_masked_is_the_bias_alone(linear, case):
    weight, _, images, labels = case(count=200)
    bias = np.array([0.1, 0.9, -0.4])
    table = measure(linear(weight, bias, images, labels), ratios=[1.0], draws=2)
    assert table["accuracy"].to_numpy() == pytest.approx((labels == 1).mean())
    assert table["confidence"].to_numpy() == pytest.approx(softmax(bias).max(), abs=1e-6)


def test_smallest_weights_are_masked_first():
    weight = torch.tensor([[0.5, -3.0], [2.0, -0.1]])
    ranks = magnitude_ranks(weight)
    assert ranks.tolist() == [[0.25, 0.75], [0.5, 0.0]]
    half = masked_logits(
        torch.tensor([[1.0, 10.0]]), Layer(weight, torch.tensor([7.0, 8.0])), ranks >= 0.5
    )
    assert half.tolist() == [[7.0 - 30.0, 8.0 + 2.0]]


def test_a_share_of_the_weights_is_masked_whatever_ties():
    ranks = magnitude_ranks(torch.ones(4, 25))
    for ratio in (0.0, 0.1, 0.37, 0.5, 1.0):
        assert int((ranks < ratio).sum()) == round(100 * ratio)


def test_a_mask_of_all_images_and_one_of_each_image_differ(linear, case):
    subject = linear(*case(count=50))
    once, anew = (measure(subject, ratios=[0.5], draws=1, batch=batch) for batch in (50, 1))
    assert once.loc[1, "nll"] != anew.loc[1, "nll"]
    assert once.loc[0, "nll"] == anew.loc[0, "nll"]  # by magnitude there is one mask


def test_random_masks_are_seeded_and_nested(linear, case):
    subject = linear(*case(count=50))
    first, again, other = (measure(subject, ratios=[0.5], draws=1, seed=seed) for seed in (0, 0, 1))
    assert first.equals(again)
    assert first.loc[1, "nll"] != other.loc[1, "nll"]
    both = measure(subject, ratios=[0.2, 0.5], draws=1)
    nested = both[(both["mode"] == "random") & (both["ratio"] == 0.5)]
    assert nested["nll"].item() == first.loc[1, "nll"]
