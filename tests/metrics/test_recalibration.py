"""Parts of the NLL by one temperature, and L_p errors from maps fitted on other samples."""

import numpy as np
import pytest
from tests.metrics.cases import calibrated, softmax

from calgrid import metrics
from calgrid.errors import ConfigError
from calgrid.metrics import intervals, recalibration
from calgrid.metrics.recalibration import along, below_largest, derivatives, nll_parts
from calgrid.metrics.table import LABELLED
from calgrid.statistics import paired_bootstrap


def two_classes(margin, n, errors):
    """Predictions with one logit margin, of which some are wrong."""
    labels = np.array([1] * errors + [0] * (n - errors))
    return metrics.check_probabilities(softmax(np.tile([margin, 0.0], (n, 1))), labels)


@pytest.mark.parametrize(
    ("margin", "n", "errors", "nll", "refinement"),
    [
        (2, 4, 1, 0.6269280, 0.5623351),
        (1, 10, 2, 0.5132617, 0.5004024),
        (8, 10, 1, 0.8003354, 0.3250830),
    ],
)
def test_refinement_by_hand_and_its_optimism(margin, n, errors, nll, refinement):
    """The best temperature gives the share of errors; probmetrics has the first value, too."""
    case = two_classes(margin, n, errors)
    parts = nll_parts(case)
    assert metrics.nll(case, case.labels) == pytest.approx(nll, abs=1e-7)
    assert parts.loss.mean() == pytest.approx(refinement, abs=1e-7)
    # a well-specified temperature: half a parameter
    assert parts.optimism == pytest.approx(1 / (2 * n), rel=1e-6)
    both = (f(case, case.labels) for f in (metrics.nll_refinement, metrics.nll_calibration))
    assert sum(both) == pytest.approx(nll, abs=1e-7)


def test_the_same_temperature_splits_the_brier_score():
    case = two_classes(2, 4, 1)
    scaled = softmax(nll_parts(case).beta * below_largest(case))
    assert metrics.brier(case, case.labels) == pytest.approx(0.4092158, abs=1e-7)
    assert metrics.brier(scaled, case.labels) == pytest.approx(0.375, abs=1e-7)


def test_a_temperature_of_separable_labels_is_not_corrected():
    probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
    parts = nll_parts(metrics.check_probabilities(probs, np.array([0, 0, 1])))
    assert parts.loss.mean() + parts.optimism == pytest.approx(0, abs=1e-12)
    assert np.isfinite(
        list(metrics.bootstrap(probs, [0, 0, 1], n_resamples=9)["nll_refinement"])
    ).all()


def test_errors_of_calibrated_models_are_zero_in_the_mean():
    cases = [metrics.check_probabilities(*calibrated(100, seed=seed)) for seed in range(80)]
    for name in ("nll_calibration", "l1_ts", "l1_iso", "l2_ts", "l2_iso"):
        found = np.array([getattr(metrics, name)(case, case.labels) for case in cases])
        assert abs(found.mean()) < 3 * found.std() / np.sqrt(len(found)), name
        assert found.min() < 0 < found.max()


@pytest.mark.parametrize(("sharpening", "ratio"), [(1, (0.9, 1.7)), (1.5, (0.8, 1.2))])
def test_the_standard_error_of_the_calibration_part_is_its_deviation_over_sets(sharpening, ratio):
    """Never too small; too large at perfect calibration, as the variance depends on the value."""
    sets = [calibrated(200, seed=seed) for seed in range(200)]
    sets = [(softmax(sharpening * np.log(probs)), labels) for probs, labels in sets]
    found = [metrics.nll_calibration(*case) for case in sets]
    each = [intervals.resampled_means(*case, n_resamples=100) for case in sets[:60]]
    variances = [
        intervals.sampling_variance(one.drawn["nll_calibration"], one.noise["nll_calibration"])
        for one in each
    ]
    assert ratio[0] < np.sqrt(np.mean(variances)) / np.std(found) < ratio[1]


@pytest.mark.parametrize(
    ("probs", "counts", "map_to", "l1", "l2"),
    [
        ([0.7, 0.2, 0.1], [4, 4, 2], [0.4, 0.4, 0.2], 0.6, 0.3741657),
        ([0.9, 0.1], [6, 4], [0.6, 0.4], 2 * 0.3, 0.3 * 2**0.5),
    ],
)
def test_errors_towards_the_frequencies_are_their_distance(probs, counts, map_to, l1, l2):
    labels = np.repeat(np.arange(len(counts)), counts)
    case = metrics.check_probabilities(np.tile(probs, (10, 1)), labels)
    towards = derivatives(np.array(map_to) - case.probs)
    found = [along(case, towards[p]).mean() for p in (1, 2)]
    assert found == pytest.approx([l1, l2], abs=1e-7)
    assert along(case, derivatives(np.zeros_like(case.probs))[1]).mean() == 0


@pytest.mark.parametrize("by", ["ts", "iso"])
def test_errors_of_a_wrong_temperature_come_near_the_truth_from_below(by):
    probs, labels = calibrated(8_000)
    sharper = softmax(2 * np.log(probs))
    gaps = probs - sharper
    truth = {"l1": np.abs(gaps).sum(axis=1).mean(), "l2": np.linalg.norm(gaps, axis=1).mean()}
    for p, expected in truth.items():
        share = getattr(metrics, f"{p}_{by}")(sharper, labels) / expected
        assert (0.92 if by == "ts" else 0.75) < share < 1.08


def test_no_sample_influences_its_own_map():
    """The label of one sample changes the maps of the other folds only."""
    probs, labels = calibrated(50)
    changed = labels.copy()
    changed[7] = (labels[7] + 1) % 5
    cases = [metrics.check_probabilities(probs, each) for each in (labels, changed)]
    fold = recalibration.folds(cases[0])
    for make in (recalibration.tempered, recalibration.isotonic):
        before, after = map(make, cases)
        same = np.isclose(before, after, rtol=1e-7).all(axis=1)
        assert same[fold == fold[7]].all()
        assert not same[fold != fold[7]].all()


def test_large_sets_have_no_slow_metrics(refuses):
    rng = np.random.default_rng(0)
    probs, labels = rng.dirichlet(np.ones(1000), 2001), rng.integers(0, 1000, 2001)
    fitted = {"nll_calibration", "nll_refinement", "l1_ts", "l1_iso", "l2_ts", "l2_iso"}
    fitted.add("macro_auroc")
    values = metrics.evaluate(probs, labels)
    bounds = metrics.bootstrap(probs, labels, n_resamples=3)
    differences = metrics.bootstrap_difference(probs, probs, labels, n_resamples=3)
    assert set(values) == set(bounds) == set(differences) == set(LABELLED) - fitted
    assert all(LABELLED[name].is_computed(2000, 1000) for name in fitted)
    said = "nll_calibration is computed for up to 2,000,000 probabilities", "2001 x 1000"
    with refuses(ConfigError, *said):
        paired_bootstrap({"a": [probs], "b": [probs]}, labels, metrics=["nll_calibration"])
