"""Refinement: the NLL that remains with the best temperature, and the Brier score at it."""

import numpy as np
import pytest
import torch

from calgrid.calibrators.ts import TemperatureScaling
from calgrid.metrics import brier
from calgrid.training.refinement import loss_parts


@pytest.mark.parametrize(
    ("margin", "rows", "errors", "expected"),
    [(2, 4, 1, 0.5623351), (1, 10, 2, 0.5004024), (8, 10, 1, 0.3250830)],
)
def test_refinement_of_equal_margins_is_entropy_of_the_error_rate(margin, rows, errors, expected):
    logits = torch.tensor([[margin, 0.0]]).expand(rows, 2)
    parts = loss_parts(logits, (torch.arange(rows) < errors).long())
    assert parts["val_refinement"] == pytest.approx(expected, abs=1e-7)
    rate = errors / rows
    assert parts["val_brier_refinement"] == pytest.approx(2 * rate * (1 - rate), abs=1e-7)
    confidence = 1 / (1 + np.exp(-margin))
    gap = 2 * (1 - confidence - rate) ** 2
    assert parts["val_brier_calibration"] == pytest.approx(gap, abs=1e-7)


def test_refinement_depends_on_neither_scale_nor_offset():
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (200,), generator=rng)
    logits = torch.randn(200, 5, generator=rng) + torch.eye(5)[labels]
    parts = [loss_parts(scale * logits + 3, labels) for scale in (0.5, 1.0, 4.0)]
    values = [each["val_refinement"] for each in parts]
    assert values == pytest.approx([values[0]] * 3)
    briers = [each["val_brier_refinement"] for each in parts]
    assert briers == pytest.approx([briers[0]] * 3)
    assert parts[1]["val_brier"] == pytest.approx(brier(logits.softmax(1).numpy(), labels))
    calibrated = TemperatureScaling().fit(logits.numpy(), labels.numpy())
    calibrated = calibrated.predict_proba(logits.numpy())
    assert values[0] == pytest.approx(-np.log(calibrated[range(200), labels]).mean(), abs=1e-7)
    assert briers[0] == pytest.approx(brier(calibrated, labels.numpy()), abs=1e-7)
