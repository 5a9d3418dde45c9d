"""Cross-entropy, label smoothing, margin penalties, Brier, entropy penalty and ACLS, by hand and against torch."""

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


class TestMarginLabelSmoothing:
    def test_hand_computed_penalty_is_the_mean_over_classes(self):
        # distances to the largest logit 0, 4, 9, margin 3: excess 0, 1, 6, mean 7/3
        loss = build_loss("mbls", 3, margin=3.0, lambda_=0.5)
        logits = torch.tensor([[9.0, 5.0, 0.0]])
        total = loss(logits, torch.tensor([0]))
        assert loss.last_terms["margin"].item() == pytest.approx(7 / 3, abs=1e-6)
        assert total.item() == pytest.approx(loss.last_terms["ce"].item() + 7 / 6, abs=1e-6)

    def test_gradient_pulls_the_largest_logit_down(self):
        logits = torch.tensor([[9.0, 5.0, 0.0]], requires_grad=True)
        plain = logits.detach().clone().requires_grad_()
        build_loss("mbls", 3, margin=3.0, lambda_=0.6)(logits, torch.tensor([0])).backward()
        build_loss("ce", 3)(plain, torch.tensor([0])).backward()
        # two active distances, each 0.6 / 3
        torch.testing.assert_close(logits.grad - plain.grad, torch.tensor([[0.4, -0.2, -0.2]]))

    def test_is_cross_entropy_within_the_margin(self):
        logits, labels = random_batch(1)
        span = (logits.amax(1) - logits.amin(1)).max().item()
        loss = build_loss("mbls", 6, margin=span + 1)
        torch.testing.assert_close(loss(logits, labels), F.cross_entropy(logits, labels))

    def test_does_not_change_when_all_logits_shift(self):
        logits, labels = random_batch(2)
        loss = build_loss("mbls", 6)
        torch.testing.assert_close(loss(logits + 50, labels), loss(logits, labels), rtol=1e-5, atol=1e-4)


def test_entropy_penalty_with_the_mean_over_classes_is_c_times_weaker():
    logits, labels = random_batch(3)
    strong = build_loss("ecp", 6, beta=0.1)
    weak = build_loss("ecp", 6, beta=0.6, entropy_reduction="mean")
    torch.testing.assert_close(strong(logits, labels), weak(logits, labels))


class TestACLS:
    def test_hand_computed_penalties(self):
        # largest logit 8, margin 6: (8-6)^2 = 4; others 8-1-6 = 1 and 8+2-6 = 4: (1 + 16) / 2 classes
        loss = build_loss("acls", 3, alpha=0.1, margin=6.0, lambda_pos=1.0, lambda_neg=0.1)
        total = loss(torch.tensor([[8.0, 1.0, -2.0]]), torch.tensor([0]))
        parts = {name: part.item() for name, part in loss.last_terms.items()}
        assert parts["positive"] == pytest.approx(4.0)
        assert parts["negative"] == pytest.approx(8.5)
        assert total.item() == pytest.approx(parts["ce"] + 0.1 * (4 + 0.85), abs=1e-6)

    def test_negative_term_has_no_gradient_to_the_largest_logit(self):
        logits = torch.tensor([[8.0, 1.0, -2.0]], requires_grad=True)
        plain = logits.detach().clone().requires_grad_()
        build_loss("acls", 3, alpha=1.0, margin=6.0, lambda_pos=0.0, lambda_neg=1.0)(
            logits, torch.tensor([0])
        ).backward()
        build_loss("ce", 3)(plain, torch.tensor([0])).backward()
        torch.testing.assert_close(logits.grad - plain.grad, torch.tensor([[0.0, -1.0, -4.0]]))

    def test_paper_gap_does_not_change_when_all_logits_shift_but_the_code_gap_does(self):
        logits, labels = random_batch(4)
        paper, code = build_loss("acls", 6, pos_gap="maxmin"), build_loss("acls", 6, pos_gap="raw")
        torch.testing.assert_close(paper(logits + 10, labels), paper(logits, labels), rtol=1e-4, atol=1e-4)
        assert code(logits + 10, labels) > code(logits, labels) + 1
