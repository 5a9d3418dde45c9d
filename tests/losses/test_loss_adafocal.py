"""AdaFocal: look-up of the exponents, bins of equal mass, update."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrid.losses import build_loss
from calgrid.losses.adafocal import equal_mass_edges, moved

BINS = 15
probabilities = st.floats(0, 1, width=32)


def validation(probs, correct):
    """Logits of two classes with these largest probabilities, and labels by ``correct``."""
    p = torch.tensor(probs, dtype=torch.float64)
    logits = torch.stack([p, 1 - p], dim=1).log().float()
    return logits, torch.tensor([0 if right else 1 for right in correct])


class TestLookUp:
    def _loop(self, p, edges, gammas):
        """The rule in words: lower <= p < upper, the first and the last bin open-ended."""
        for number in range(len(gammas)):
            first, last = number == 0, number == len(gammas) - 1
            if (first or p >= edges[number]) and (last or p < edges[number + 1]):
                return gammas[number]
        raise ValueError("no bin")

    @settings(deadline=None, max_examples=50)
    @given(
        probs=st.lists(probabilities, min_size=1, max_size=20),
        edges=st.lists(probabilities, min_size=4, max_size=4),
        tie=st.booleans(),
    )
    def test_equals_the_rule_with_tied_edges_too(self, probs, edges, tie):
        edges = sorted([0.0, *edges, edges[0]] if tie else [0.0, *edges, 1.0])
        loss = build_loss("adafocal", 2, num_bins=5)
        loss.edges.copy_(torch.tensor(edges, dtype=torch.float64))
        loss.gammas.copy_(torch.arange(1.0, 6.0))
        found = loss.exponents(torch.tensor([*probs, *edges])).tolist()
        assert found == [self._loop(p, edges, [1.0, 2.0, 3.0, 4.0, 5.0]) for p in [*probs, *edges]]

    def test_the_bin_is_that_of_the_true_class_not_of_the_prediction(self):
        loss = build_loss("adafocal", 2, num_bins=2)
        loss.gammas.copy_(torch.tensor([2.0, 5.0]))
        logits, labels = validation([0.9, 0.9], [True, False])
        expected = 0.5 * (0.1**5 * -math.log(0.9) + 0.9**2 * -math.log(0.1))
        assert loss(logits, labels).item() == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("gamma", [0.2, 0.5, -0.2, -2.0, 20.0])
    def test_gradient_is_finite_where_the_probability_rounds_to_one_or_zero(self, gamma):
        loss = build_loss("adafocal", 2)
        loss.gammas.fill_(gamma)
        logits = torch.tensor([[200.0, 0.0], [0.0, 200.0], [17.0, 0.0]], requires_grad=True)
        loss(logits, torch.tensor([0, 0, 0])).backward()
        assert torch.isfinite(logits.grad).all()


class TestBins:
    @settings(deadline=None, max_examples=50)
    @given(values=st.lists(probabilities, min_size=1, max_size=100), bins=st.integers(1, 20))
    def test_edges_are_those_of_numpy_interp(self, values, bins):
        values = np.array(values, dtype=np.float64)
        n = len(values)
        expected = np.interp(np.linspace(0, n, bins + 1), np.arange(n), np.sort(values))
        np.testing.assert_allclose(
            equal_mass_edges(torch.tensor(values), bins).numpy(), expected, rtol=0, atol=1e-15
        )


class TestUpdate:
    @pytest.mark.parametrize(
        ("gamma", "gap", "expected"),
        [
            (1.0, 0.3, 1.349859),
            (0.21, -0.1, -0.2),
            (-0.21, 0.1, 0.2),
            (19.9, 0.2, 20.0),
            (-1.9, -0.2, -2.0),
            (0.21, 0.1, 0.232086),
            (-0.21, -0.1, -0.232086),
        ],
    )
    def test_matches_the_reference(self, gamma, gap, expected):
        new = moved(
            torch.tensor([gamma], dtype=torch.float64), torch.tensor([gap]), 1.0, 0.2
        ).clamp(-2, 20)
        assert new.item() == pytest.approx(expected, abs=1e-6)

    def test_one_epoch_by_hand(self):
        # sorted 0.6, 0.7, 0.8, 0.9, edges 0.6, 0.8, 0.9: bins {0.7, 0.8}, both wrong, and {0.9},
        # right
        loss = build_loss("adafocal", 2, num_bins=2, lambda_=2.0)
        loss.end_epoch(0, *validation([0.9, 0.7, 0.6, 0.8], [True, False, True, False]))
        assert loss.edges.tolist() == pytest.approx([0.6, 0.8, 0.9], abs=1e-6)
        assert loss.gammas.tolist() == pytest.approx(
            [math.exp(2 * 0.75), math.exp(-2 * 0.1)], abs=1e-5
        )

    def test_exponents_stay_in_their_range_and_away_from_zero(self):
        loss = build_loss("adafocal", 2, lambda_=8.0)
        generator = torch.Generator().manual_seed(0)
        for epoch in range(30):
            logits = 3 * torch.randn(60, 2, generator=generator)
            loss.end_epoch(epoch, logits, torch.randint(2, (60,), generator=generator))
            assert ((loss.gammas >= -2) & (loss.gammas <= 20) & (loss.gammas.abs() >= 0.2)).all()
        assert (loss.gammas < 0).any() or (loss.gammas > 1).any()

    def test_empty_bins_rest(self):
        """Confidences that tie at 1 leave the upper bins without width."""
        loss = build_loss("adafocal", 2)
        loss.end_epoch(0, torch.tensor([[99.0, 0.0]] * 30), torch.ones(30, dtype=torch.long))
        assert loss.gammas.tolist() == [1.0] * BINS
        assert loss.edges.tolist() == [1.0] * (BINS + 1)
