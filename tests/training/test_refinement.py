"""Refinement: the NLL that remains with the best temperature."""

import numpy as np
import pytest
import torch

from calgrid.calibrators.ts import TemperatureScaling
from calgrid.training.refinement import refinement


@pytest.mark.parametrize(
    ("margin", "rows", "errors", "expected"),
    [(2, 4, 1, 0.5623351), (1, 10, 2, 0.5004024), (8, 10, 1, 0.3250830)],
)
def test_refinement_of_equal_margins_is_the_entropy_of_the_error_rate(
    margin, rows, errors, expected
):
    logits = torch.tensor([[margin, 0.0]]).expand(rows, 2)
    assert refinement(logits, (torch.arange(rows) < errors).long()) == pytest.approx(
        expected, abs=1e-7
    )


def test_refinement_depends_on_neither_scale_nor_offset():
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (200,), generator=rng)
    logits = torch.randn(200, 5, generator=rng) + torch.eye(5)[labels]
    values = [refinement(scale * logits + 3, labels) for scale in (0.5, 1.0, 4.0)]
    assert values == pytest.approx([values[0]] * 3)
    calibrated = TemperatureScaling().fit(logits.numpy(), labels.numpy())
    calibrated = calibrated.predict_proba(logits.numpy())
    assert values[0] == pytest.approx(-np.log(calibrated[range(200), labels]).mean(), abs=1e-7)
