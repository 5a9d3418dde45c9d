"""Correctness ranking: history of correct counts, its normalisation, the pairs."""

import math

import pytest
import torch
import torch.nn.functional as F

from calgrid.errors import DataError
from calgrid.losses import build_loss

RIGHT = torch.tensor([[4.0, 0.0, 0.0]])


def with_counts(*counts, epochs, **options):
    loss = build_loss("crl", 3, **options)
    loss.counts.grow(len(counts))
    loss.counts.rows.copy_(torch.tensor(counts))
    loss.max_count.fill_(epochs)
    return loss


def ranking(loss, logits, index):
    loss(logits, torch.zeros(len(logits), dtype=torch.long), index=index)
    return loss.last_terms["ranking"].item()


def logits_of(*confidences):
    """Logits of three classes with these largest probabilities, the others equal."""
    p = torch.tensor(confidences)
    return torch.stack([p, (1 - p) / 2, (1 - p) / 2], dim=1).log()


class TestHistory:
    def test_counts_who_was_right_by_index(self):
        loss = build_loss("crl", 3)
        logits = torch.cat([RIGHT, RIGHT, RIGHT])
        loss.after_step(logits, torch.tensor([0, 1, 0]), torch.tensor([5, 2, 0]))
        loss.after_step(logits, torch.tensor([0, 0, 1]), torch.tensor([5, 3, 0]))
        assert loss.counts.rows.tolist() == [1, 0, 0, 1, 0, 2]

    def test_is_updated_after_the_step_and_not_by_the_loss(self):
        loss = build_loss("crl", 3)
        loss(RIGHT, torch.tensor([0]), index=torch.tensor([0]))
        assert loss.counts.rows.tolist() == [0]

    def test_largest_count_is_one_for_two_epochs_then_the_epochs_that_are_over(self):
        loss = build_loss("crl", 3)
        seen = []
        for epoch in range(5):
            seen.append(loss.max_count.item())
            loss.end_epoch(epoch, None, None)
        assert seen == [1, 1, 2, 3, 4]

    def test_needs_the_index_after_the_step_too(self):
        with pytest.raises(DataError, match="loss 'crl' needs index"):
            build_loss("crl", 3).after_step(RIGHT, torch.tensor([0]), None)

    def test_minimum_is_over_all_training_samples(self):
        # with sample 2 the minimum is 0 and c = 2/4, 1/4, without it 1 and c = 1/3, 0
        logits, index = logits_of(0.8, 0.5), torch.tensor([0, 1])
        both = [
            ranking(with_counts(*counts, epochs=4), logits, index) for counts in ((2, 1, 0), (2, 1))
        ]
        # two pairs, (0, 1) and (1, 0), each relu(-0.3 + gap)
        assert both == pytest.approx([0.0, 1 / 3 - 0.3], abs=1e-6)


class TestRanking:
    def test_equal_histories_add_nothing_but_count_in_the_mean(self):
        loss = with_counts(3, 3, 0, epochs=3)
        # pairs (0,1): 0; (1,2): -(0.5 - 0.5) + 1; (2,0): -0 + 1
        assert ranking(loss, logits_of(0.5, 0.5, 0.5), torch.arange(3)) == pytest.approx(
            2 / 3, abs=1e-6
        )

    def test_is_cross_entropy_in_the_first_epoch(self):
        loss = build_loss("crl", 3)
        for seed in range(3):
            logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))
            labels, index = torch.arange(8) % 3, torch.arange(8) + 8 * seed
            torch.testing.assert_close(
                loss(logits, labels, index=index), F.cross_entropy(logits, labels)
            )
            loss.after_step(logits, labels, index)

    def test_is_off_while_all_samples_were_always_right(self):
        """The minimum equals the maximum: the official code divides by zero here."""
        loss = with_counts(1, 1, 1, epochs=1)
        assert ranking(loss, logits_of(0.5, 0.7, 0.9), torch.arange(3)) == 0.0

    @pytest.mark.parametrize(
        ("indicator", "lead"),
        [
            ("maxprob", 0.25),
            ("margin", (0.75 - 0.25) - (0.5 - 0.5)),
            # H(1/2, 1/2, 0) = log 2, H(1/4, 3/4, 0) = 2 log 2 - 3/4 log 3
            ("entropy", (math.log(2) - 2 * math.log(2) + 0.75 * math.log(3)) / math.log(3)),
        ],
    )
    def test_indicators_of_confidence(self, indicator, lead):
        """What the confident sample is ahead by: (1/4, 3/4, 0) over (1/2, 1/2, 0)."""
        logits = torch.tensor([[0.25, 0.75, 1e-30], [0.5, 0.5, 1e-30]]).log()
        loss = with_counts(2, 0, epochs=2, indicator=indicator)
        assert ranking(loss, logits, torch.arange(2)) == pytest.approx(1 - lead, abs=1e-6)
