"""The focal family."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.losses.cases import random_batch

from calgrid.losses import build_loss


def _logits(*probs):
    return torch.tensor([probs]).log()


@pytest.mark.parametrize(
    ("name", "exponent"),
    [
        ("fl3", "gamma"),
        ("dfl", "gamma"),
        ("adafocal", "gamma_init"),
        ("focal_gra", "gamma"),
        ("bsce_gra", "gamma"),
    ],
)
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_exponent_zero_is_cross_entropy(name, exponent, seed):
    logits, labels = random_batch(seed)
    torch.testing.assert_close(
        build_loss(name, 6, **{exponent: 0.0})(logits, labels), F.cross_entropy(logits, labels)
    )


@pytest.mark.parametrize("name", ["fl3", "dfl", "flsd53", "mdca"])
def test_exponents_below_one_have_finite_gradients_at_certainty(name):
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    build_loss(name, 3, gamma=0.5)(logits, torch.tensor([0])).backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(("p", "gamma"), [(0.1, 5), (0.19, 5), (0.21, 3), (0.5, 3), (0.9, 3)])
def test_sample_dependent_exponent_is_five_below_a_fifth(p, gamma):
    total = build_loss("flsd53", 2)(_logits(p, 1 - p), torch.tensor([0]))
    assert total.item() == pytest.approx((1 - p) ** gamma * -math.log(p), rel=1e-5)


class TestDualFocal:
    @pytest.mark.parametrize(
        ("label", "runner_up"),
        [(0, 0.3), (1, 0.15), (2, 0.05), (3, 0.0)],
        ids=["right", "second", "third", "last"],
    )
    def test_reads_the_largest_probability_below_the_target(self, label, runner_up):
        probs = (0.5, 0.3, 0.15, 0.05)
        total = build_loss("dfl", 4, gamma=2.0)(_logits(*probs), torch.tensor([label]))
        expected = (1 - probs[label] + runner_up) ** 2 * -math.log(probs[label])
        assert total.item() == pytest.approx(expected, rel=1e-5)

    def test_classes_tied_with_the_target_are_not_below_it(self):
        total = build_loss("dfl", 3, gamma=2.0)(torch.zeros(1, 3), torch.tensor([1]))
        assert total.item() == pytest.approx((2 / 3) ** 2 * math.log(3), rel=1e-5)


class TestWeightedGradients:
    @pytest.mark.parametrize(
        ("norm", "gamma", "value"),
        [
            (1, 1.0, 0.2728996),
            (1, 2.0, 0.1827112),
            (1, 5.0, 0.0548343),
            (2, 1.0, 0.1729620),
            (2, 2.0, 0.0733940),
            (2, 5.0, 0.0056078),
        ],
    )
    def test_brier_weight_by_hand(self, norm, gamma, value):
        loss = build_loss("bsce_gra", 3, norm=norm, gamma=gamma)
        total = loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
        assert total.item() == pytest.approx(value, abs=1e-6)

    @pytest.mark.parametrize("name", ["focal_gra", "bsce_gra"])
    def test_gradient_is_the_weighted_gradient_of_cross_entropy(self, name):
        logits = _logits(0.6, 0.3, 0.1).requires_grad_()
        build_loss(name, 3)(logits, torch.tensor([0])).backward()
        weight = 0.4 if name == "focal_gra" else 0.8
        torch.testing.assert_close(logits.grad, weight * torch.tensor([[-0.4, 0.3, 0.1]]))
