"""Losses with a term on the whole batch or on pairs: MDCA, MMCE, CPC."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.losses.cases import random_batch

from calgrid.losses import build_loss, cpc


def _term(name, num_classes, logits, labels, part, **options):
    loss = build_loss(name, num_classes, **options)
    loss(logits, labels)
    return loss.last_terms[part].item()


class TestMDCA:
    def test_hand_computed(self):
        # mean probabilities (3/4, 1/4), frequencies (1/2, 1/2): mean gap 1/4
        logits = torch.tensor([[3.0, 1.0], [3.0, 1.0]]).log()
        assert _term("mdca_nll", 2, logits, torch.tensor([0, 1]), "mdca") == pytest.approx(
            0.25, abs=1e-6
        )

    def test_is_zero_when_frequencies_are_met(self):
        logits = torch.tensor([[3.0, 1.0]] * 4).log()
        assert _term("mdca", 2, logits, torch.tensor([0, 0, 0, 1]), "mdca") == pytest.approx(
            0.0, abs=1e-7
        )

    def test_both_forms_agree_at_exponent_zero(self):
        logits, labels = random_batch(0, 10, 5, 3)
        focal, nll = build_loss("mdca", 5, gamma=0.0, beta=2.0), build_loss("mdca_nll", 5, beta=2.0)
        torch.testing.assert_close(focal(logits, labels), nll(logits, labels))


def _pair_loop(logits, labels, entry):
    confidence, predicted = logits.softmax(1).max(1)
    pairs = list(zip(confidence.tolist(), (predicted == labels).tolist(), strict=True))
    return sum(entry(*a, *b) * math.exp(-abs(a[0] - b[0]) / 0.4) for a in pairs for b in pairs)


class TestMMCE:
    def test_equals_the_double_sum(self):
        logits, labels = random_batch(1, 10, 5, 3)
        expected = (
            _pair_loop(logits, labels, lambda k, c, m, d: (c - k) * (d - m)) / len(labels) ** 2
        )
        assert _term("mmce", 5, logits, labels, "mmce") == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize("norm", ["code", "paper"])
    def test_weighted_equals_the_double_sums(self, norm):
        logits, labels = random_batch(2, 10, 5, 3)
        m = int((logits.argmax(1) == labels).sum())
        n = len(labels) - m
        both = _pair_loop(logits, labels, lambda k, c, q, d: (1 - k) * (1 - q) if c and d else 0)
        none = _pair_loop(logits, labels, lambda k, c, q, d: 0 if c or d else k * q)
        mixed = _pair_loop(logits, labels, lambda k, c, q, d: (1 - k) * q if c and not d else 0)
        power = 2 if norm == "code" else 1
        expected = math.sqrt(
            both / m ** (2 * power) + none / n ** (2 * power) - 2 * mixed / (m * n) ** power
        )
        assert (m > 0) and (n > 0)
        assert _term("mmce_w", 5, logits, labels, "mmce", norm=norm) == pytest.approx(
            expected, rel=1e-4
        )

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
    def test_hand_computed_on_identical_logits(self):
        # every softplus is log 2: BD = log 2, BE = log(2)/2 (C-1)/(C-2), the floor of BE
        logits, labels = torch.zeros(3, 4), torch.tensor([0, 1, 2])
        assert _term("cpc", 4, logits, labels, "discrimination") == pytest.approx(
            math.log(2), abs=1e-6
        )
        assert _term("cpc", 4, logits, labels, "equality") == pytest.approx(
            0.75 * math.log(2), abs=1e-6
        )

    def test_equality_is_the_plain_sum_over_pairs(self):
        logits, labels = random_batch(6, 10, 5, 3)
        mask = 1.0 - F.one_hot(labels, 5)
        pairs = F.softplus(logits.unsqueeze(1) - logits.unsqueeze(2))
        expected = (pairs * mask.unsqueeze(1) * mask.unsqueeze(2)).sum() / (2 * 4 * 3 * 10)
        found = _term("cpc", 5, logits, labels, "equality")
        assert found == pytest.approx(expected.item(), rel=1e-5)

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
