"""Augmented Lagrangian of CALS: constraint, penalty, multipliers."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrid.losses import build_loss


def build(**options):
    return build_loss("cals_alm", 3, **options)


def validation(*rows):
    return torch.tensor(rows, dtype=torch.float32), torch.zeros(len(rows), dtype=torch.long)


class TestPenalty:
    @settings(deadline=None, max_examples=30)
    @given(seed=st.integers(0, 10_000))
    def test_a_met_constraint_leaves_cross_entropy(self, seed):
        """The first multiplier is 1e-6, so nothing is felt until the margin is exceeded."""
        generator = torch.Generator().manual_seed(seed)
        logits, labels = 2 * torch.rand(6, 3, generator=generator), torch.arange(6) % 3
        torch.testing.assert_close(build()(logits, labels), F.cross_entropy(logits, labels))


class TestMultipliers:
    def test_become_the_mean_slope_on_the_validation_split(self):
        loss = build(margin=2.0, lambda_init=0.5, rho_init=2.0)
        loss.end_epoch(0, *validation([8.0, 6.0, 0.0], [4.0, 4.0, 0.0]))
        # h: (-1, 0, 3) and (-1, -1, 1); slopes: (0, 0.5, 6.5) and (0, 0, 2.5), 0 counting as 1e-6
        assert loss.lambdas.tolist() == pytest.approx([1e-6, (0.5 + 1e-6) / 2, 4.5], rel=1e-5)

    def test_use_the_weights_from_before_the_epoch(self):
        loss = build(margin=2.0, period=1, growth=2.0)
        rows = validation([8.0, 6.0, 0.0])
        loss.end_epoch(0, *rows)
        loss.end_epoch(1, *rows)
        # lambda_2: 3 after the first epoch with rho 1, then 3 + 3, although rho grew to 2 in that
        # same epoch
        assert loss.lambdas[2].item() == pytest.approx(6.0, rel=1e-5)
        assert loss.rhos.tolist() == [1.0, 1.0, 2.0]

    def test_are_bounded(self):
        loss = build(margin=1e-5)
        loss.end_epoch(0, *validation([3e4, 0.0, 0.0]))
        assert loss.lambdas.tolist() == pytest.approx([1e-6, 1e6, 1e6])


class TestPenaltyWeights:
    def _after(self, *violations, period=1, **options):
        """Weight of class 2 after epochs whose constraint is these numbers."""
        loss = build(margin=1.0, period=period, **options)
        weights = []
        for epoch, violation in enumerate(violations):
            loss.end_epoch(epoch, *validation([violation + 1, violation + 1, 0.0]))
            weights.append(loss.rhos[2].item())
        return weights

    def test_grow_where_the_violation_does_not_fall_below_nine_tenths(self):
        assert self._after(10.0, 9.5, 8.0, 8.0) == pytest.approx([1.0, 1.2, 1.2, 1.44])

    def test_grow_where_a_met_constraint_becomes_violated(self):
        assert self._after(-0.5, 0.1, -0.2, -0.1) == pytest.approx([1.0, 1.2, 1.2, 1.2])

    def test_are_looked_at_every_period_against_the_epoch_before(self):
        # the fourth epoch is the period's: 9 against 20, the third's, although 1, 2 stand before
        assert self._after(1.0, 2.0, 20.0, 9.0, period=4) == [1.0] * 4
        assert self._after(1.0, 2.0, 9.0, 20.0, period=4) == pytest.approx([1.0, 1.0, 1.0, 1.2])

    def test_have_an_upper_bound(self):
        assert self._after(*[5.0] * 4, growth=3.0) == pytest.approx([1.0, 3.0, 9.0, 10.0])

    def test_of_one_class_do_not_move_those_of_another(self):
        loss = build(margin=1.0, period=1)
        for epoch in range(2):
            loss.end_epoch(epoch, *validation([5.0, 4.5, 0.0]))
        assert loss.rhos.tolist() == pytest.approx([1.0, 1.0, 1.2])
