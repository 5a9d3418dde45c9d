"""Refinement: the NLL that remains with the best temperature."""

import numpy as np
import pytest

from calgrid.training.refinement import refinement


@pytest.mark.parametrize(
    ("margin", "rows", "errors", "expected"),
    [(2, 4, 1, 0.5623351), (1, 10, 2, 0.5004024), (8, 10, 1, 0.3250830)],
)
def test_refinement_of_equal_margins_is_the_entropy_of_the_error_rate(
    margin, rows, errors, expected
):
    logits = np.tile(np.float32([margin, 0]), (rows, 1))
    assert refinement(logits, (np.arange(rows) < errors).astype(int)) == pytest.approx(
        expected, abs=1e-7
    )


def test_refinement_depends_on_neither_scale_nor_offset():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 5)), rng.integers(0, 5, 200)
    logits[np.arange(200), labels] += 1
    values = [refinement(scale * logits + 3, labels) for scale in (0.5, 1.0, 4.0)]
    assert values == pytest.approx([values[0]] * 3)
