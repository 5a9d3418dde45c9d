"""my_component: its probabilities, worked out by hand, before and after saving."""

from pathlib import Path

import numpy as np

from calgrid.calibrators import build_calibrator, load_calibrator
from calgrid.components import plugins

plugins.use([Path(__file__).parents[1]])

HINT = "replace this number: it is that of the template"


def test_probabilities_of_one_sample_are_those_of_the_saved_fit(tmp_path: Path) -> None:
    calibrator = build_calibrator("my_component", weight=0.5).fit(np.zeros((4, 2)), [0, 0, 0, 1])
    probabilities = calibrator.predict_proba([[0.0, 0.0]])
    expected = [[0.625, 0.375]]  # half of (0.5, 0.5), half of (0.75, 0.25)
    assert np.allclose(probabilities, expected), HINT
    calibrator.save(tmp_path / "fitted.safetensors")
    saved = load_calibrator(tmp_path / "fitted.safetensors")
    assert np.array_equal(saved.predict_proba([[0.0, 0.0]]), probabilities)
