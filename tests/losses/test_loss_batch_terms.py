"""Losses with a term on the whole batch or on pairs: MDCA, MMCE, CPC."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.losses.cases import random_batch

from calgrid.losses import build_loss, cpc


class TestMMCE:
    @pytest.mark.parametrize("right", [True, False])
    def test_weighted_term_is_off_without_both_groups(self, right):
        logits, _ = random_batch(3, 10, 5, 3)
        labels = logits.argmax(1) if right else logits.argmin(1)
        logits.requires_grad_()
        total = build_loss("mmce_w", 5)(logits, labels)
        total.backward()
        plain = logits.detach().clone().requires_grad_()
        F.cross_entropy(plain, labels).backward()
        torch.testing.assert_close(total, F.cross_entropy(logits, labels))
        torch.testing.assert_close(logits.grad, plain.grad)

    @pytest.mark.parametrize("norm", ["code", "paper"])
    @settings(deadline=None, max_examples=30)
    @given(pairs=st.integers(1, 30), spread=st.floats(0.0, 1e-3))
    def test_weighted_term_is_finite_where_both_groups_coincide(self, norm, pairs, spread):
        # confidence one half, as many right as wrong: the squared distance is zero up to rounding
        logits = (
            torch.linspace(0, spread, pairs).repeat(2).unsqueeze(1) * torch.tensor([[1.0, 0.0]])
            + 0.1
        )
        logits = logits.requires_grad_()
        labels = torch.tensor([0, 1]).repeat_interleave(pairs)
        loss = build_loss("mmce_w", 2, norm=norm)
        loss(logits, labels).backward()
        assert 0 <= loss.last_terms["mmce"].item() < 1e-2
        assert torch.isfinite(logits.grad).all()


class TestPairwiseConstraints:
    def test_blocks_of_a_large_batch_do_not_change_value_or_gradient(self, monkeypatch):
        logits, labels = random_batch(5, 10, 5, 3)
        results = []
        for entries in (2**20, 75):  # all rows at once; three rows a block
            monkeypatch.setattr(cpc, "BLOCK_ENTRIES", entries)
            inputs = logits.clone().requires_grad_()
            total = build_loss("cpc", 5)(inputs, labels)
            total.backward()
            results.append((total.detach(), inputs.grad))
        torch.testing.assert_close(results[0], results[1])
