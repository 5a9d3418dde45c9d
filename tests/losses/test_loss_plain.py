"""Label smoothing, margin penalties and ACLS, by hand and against torch."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.losses.cases import random_batch

from calgrid.losses import build_loss


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), alpha=st.floats(0.0, 1.0))
def test_label_smoothing_equals_torch(seed, alpha):
    logits, labels = random_batch(seed)
    expected = F.cross_entropy(logits, labels, label_smoothing=alpha)
    torch.testing.assert_close(build_loss("ls", 6, alpha=alpha)(logits, labels), expected)


class TestACLS:
    def test_negative_term_has_no_gradient_to_the_largest_logit(self):
        logits = torch.tensor([[8.0, 1.0, -2.0]], requires_grad=True)
        plain = logits.detach().clone().requires_grad_()
        build_loss("acls", 3, alpha=1.0, margin=6.0, lambda_pos=0.0, lambda_neg=1.0)(
            logits, torch.tensor([0])
        ).backward()
        build_loss("ce", 3)(plain, torch.tensor([0])).backward()
        torch.testing.assert_close(logits.grad - plain.grad, torch.tensor([[0.0, -1.0, -4.0]]))


class TestClassCounts:
    def test_classes_count_alike_by_the_labels_of_the_training_split(self):
        logits, labels = random_batch(0)
        loss = build_loss("ce_balanced", 6)
        torch.testing.assert_close(loss(logits, labels), F.cross_entropy(logits, labels))
        counts = torch.tensor([50, 25, 10, 10, 4, 1])
        loss.begin_training(torch.arange(6).repeat_interleave(counts))
        weights = 100 / (6 * counts)
        expected = F.cross_entropy(logits, labels, weight=weights, reduction="none").mean()
        torch.testing.assert_close(loss(logits, labels), expected)
        torch.testing.assert_close(loss.last_terms["ce"], F.cross_entropy(logits, labels))

    def test_label_aware_smoothing_is_that_of_the_paper_for_each_class(self):
        loss = build_loss("las", 3, eps_head=0.3, eps_tail=0.0)
        loss.begin_training(torch.arange(3).repeat_interleave(torch.tensor([500, 100, 50])))
        torch.testing.assert_close(loss.smoothing, torch.tensor([0.3, 0.0520945, 0.0]))
        logits = torch.tensor([[2.0, 1.0, 0.0]])
        for label, smoothing in zip(torch.arange(3).split(1), (0.3, 0.0520945, 0.0), strict=True):
            expected = F.cross_entropy(logits, label, label_smoothing=smoothing)
            torch.testing.assert_close(loss(logits, label), expected)
        assert loss(logits, torch.tensor([0])).item() == pytest.approx(0.7076060, abs=1e-6)

    def test_label_aware_smoothing_of_equal_counts_is_label_smoothing(self):
        logits, labels = random_batch(0)
        loss = build_loss("las", 6, eps_head=0.2, eps_tail=0.1)
        loss.begin_training(torch.arange(6).repeat(4))
        expected = F.cross_entropy(logits, labels, label_smoothing=0.2)
        torch.testing.assert_close(loss(logits, labels), expected)


class TestLogitNorm:
    @pytest.mark.parametrize(("tau", "value"), [(1.0, 0.7169853), (0.1, 0.0114871)])
    def test_value_by_hand_does_not_depend_on_the_norm(self, tau, value):
        loss = build_loss("logitnorm", 3, tau=tau)
        for scale in (1.0, 30.0):
            total = loss(scale * torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
            assert total.item() == pytest.approx(value, abs=1e-6)
