"""`cts`: a temperature for each class, as a search over all logits would choose it."""

import numpy as np
import pytest

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._probabilities import centred, softmax
from calgrid.calibrators.cts import LEAST_GAIN
from calgrid.metrics import ece

GRID = np.arange(5, 51) / 10.0


def score(logits, labels, temperatures, n_bins=15):
    scaled = logits / temperatures
    probabilities = softmax(scaled - scaled.max(axis=1, keepdims=True))
    return ece(probabilities, labels, n_bins), int((probabilities.argmax(axis=1) == labels).sum())


def brute_force(logits, labels, start, keep_accuracy, grid=GRID, sweeps=5):
    """The greedy search with a pass over all logits for each candidate."""
    temperatures = np.full(logits.shape[1], start)
    lowest, correct = score(logits, labels, temperatures)
    for _ in range(sweeps):
        before = temperatures.copy()
        for label in np.unique(labels):
            errors = []
            for candidate in grid:
                trial = np.where(np.arange(len(temperatures)) == label, candidate, temperatures)
                error, right = score(logits, labels, trial)
                errors.append(error if right >= correct or not keep_accuracy else np.inf)
            if min(errors) < lowest - LEAST_GAIN:
                temperatures[label] = grid[int(np.argmin(errors))]
                lowest, correct = score(logits, labels, temperatures)
        if (before == temperatures).all():
            break
    return temperatures


def make(seed, case, n_samples=200, n_classes=6):
    generator = np.random.default_rng(seed)
    logits = generator.choice([1.0, 3.0, 8.0]) * generator.normal(size=(n_samples, n_classes))
    if case == "ties":
        logits = 2.0 * np.round(logits / 2.0)
    labels = np.where(
        generator.uniform(size=n_samples) < 0.5,
        logits.argmax(axis=1),
        generator.integers(0, n_classes, n_samples),
    )
    if case == "absent":
        labels[labels == 2] = 3
    if case == "impossible":
        logits[generator.uniform(size=logits.shape) < 0.3] = -np.inf
        logits[np.arange(n_samples), labels] = generator.normal(size=n_samples)
    return logits, labels


@pytest.mark.parametrize("keep_accuracy", [True, False])
@pytest.mark.parametrize(
    ("seed", "case"), [(0, ""), (2, ""), (8, "ties"), (4, "impossible"), (5, "absent")]
)
def test_temperatures_are_those_of_the_search_over_all_logits(seed, case, keep_accuracy):
    logits, labels = make(seed, case)
    calibrator = build_calibrator("cts", keep_accuracy=keep_accuracy).fit(logits, labels)
    history, found = calibrator.fit_history, calibrator._state()["temperatures"]
    expected = brute_force(centred(logits), labels, history["start_temperature"], keep_accuracy)
    np.testing.assert_array_equal(found, expected)
    assert history["loss"][-1] == pytest.approx(
        ece(calibrator.predict_proba(logits), labels), abs=1e-12
    )
    assert history["loss"][-1] <= history["loss"][0]


def test_the_grid_that_smart_prints_reaches_further():
    logits, labels = make(2, "")
    calibrator = build_calibrator("cts", low=0.1, high=10.0, keep_accuracy=False)
    calibrator.fit(logits, labels)
    grid, start = np.arange(1, 101) / 10.0, calibrator.fit_history["start_temperature"]
    expected = brute_force(centred(logits), labels, start, False, grid)
    np.testing.assert_array_equal(calibrator.temperatures, expected)
    assert expected.max() > 5.0


def test_sweeps_end_with_one_that_changes_nothing_or_at_their_number():
    logits, labels = make(3, "ties")
    one, all_of_them = (
        build_calibrator("cts", sweeps=n).fit(logits, labels).fit_history for n in (1, 50)
    )
    assert one["sweeps"] == 1
    assert all_of_them["changed"][-1] == 0
    assert all(all_of_them["changed"][:-1])
    assert len(all_of_them["loss"]) == all_of_them["sweeps"] + 1
