"""The learning rate is a function of epoch and step alone."""

import pytest

from calgrid.training.protocol import Optimizer, Schedule, TrainingProtocol
from calgrid.training.schedule import learning_rate


def protocol(**schedule):
    optimizer = Optimizer(name="sgd", lr=0.1)
    return TrainingProtocol(
        epochs=350,
        batch_size=1,
        optimizer=optimizer,
        schedule=Schedule(**{"name": "step", **schedule}),
        checkpoints=["last"],
    )


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, 0.1), (149, 0.1), (150, 0.01), (249, 0.01), (250, 0.001), (349, 0.001)],
)
def test_cifar_schedule_drops_after_epochs_149_and_249(epoch, expected):
    assert learning_rate(protocol(milestones=[150, 250]), epoch, 0, 352) == pytest.approx(expected)


def test_constant_schedule_ignores_milestones_and_epoch():
    assert learning_rate(protocol(name="constant"), 39, 5, 10) == 0.1


def test_cosine_schedule_starts_at_the_rate_and_halves_in_the_middle():
    cosine = protocol(name="cosine")
    assert learning_rate(cosine, 0, 0, 10) == 0.1
    assert learning_rate(cosine, 175, 0, 10) == pytest.approx(0.05)
    assert learning_rate(cosine, 349, 9, 10) < 1e-6


def test_warm_up_rises_linearly_step_by_step_and_then_ends():
    warm = protocol(warmup_epochs=2)
    rates = [learning_rate(warm, epoch, step, 5) for epoch in range(3) for step in range(5)]
    assert rates[:10] == pytest.approx([0.1 * (k + 1) / 10 for k in range(10)])
    assert rates[10:] == pytest.approx([0.1] * 5)


def test_triangular_schedule_rises_to_its_peak_and_falls_to_its_end():
    triangle = protocol(name="triangular", start=0.2, peak=0.2, end=0.04)
    first, half_way, peak, last = (
        learning_rate(triangle, *place, 10) for place in [(0, 0), (35, 0), (70, 0), (349, 9)]
    )
    assert (first, half_way, peak) == pytest.approx((0.02, 0.06, 0.1))
    # one of 2,800 steps down remains
    assert last == pytest.approx(0.1 * (0.04 + 0.96 / 2800))
