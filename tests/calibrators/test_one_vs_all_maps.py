"""Centred isotonic, Venn-Abers, beta, smoothing spline and kernel calibration: worked examples and
plain loops.
"""

import numpy as np
import pytest
from scipy.optimize import isotonic_regression, minimize
from scipy.special import gammaln
from tests.calibrators.cases import CONFIDENCE, CORRECT

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._logistic import fit_logistic
from calgrid.calibrators._probabilities import log_probabilities
from calgrid.calibrators.beta import beta_map, fit_beta
from calgrid.calibrators.cir import fit_centred
from calgrid.calibrators.ivap_ova import fit_venn_abers
from calgrid.calibrators.kernel import densities, mean_label
from calgrid.calibrators.smoothing_spline_ova import evaluate, fit_smoothing_spline, spline_basis

#: probabilities of three classes and labels of a worked example
TENTHS = (721, 631, 262, 352, 136, 424, 541, 235)
ROWS = np.array([[int(digit) for digit in str(row)] for row in TENTHS]) / 10
LABELS = np.array([0, 0, 1, 0, 2, 2, 1, 2])
#: scores and labels of a worked example that is its own mirror image
MIRRORED = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9])
MIRRORED_HITS = np.array([0, 0, 1, 0, 1, 0, 1, 1])


def interval(scores, hits, at):
    """p0 and p1 at one score."""
    points, lower, upper = fit_venn_abers(scores, hits.astype(bool))
    return (
        np.append(lower, 0.0)[np.searchsorted(points, at, "right") - 1],
        np.append(upper, 1.0)[np.searchsorted(points, at, "left")],
    )


def isotonic_with(scores, hits, score, hit):
    """The isotonic rate at a score after adding one sample there."""
    points, index = np.unique(np.append(scores, score), return_inverse=True)
    number = np.bincount(index).astype(float)
    rates = np.bincount(index, np.append(hits, hit)) / number
    return isotonic_regression(rates, weights=number).x[np.searchsorted(points, score)]


def test_centred_isotonic_values_of_the_worked_example(monkeypatch):
    monkeypatch.setattr("calgrid.calibrators.cir.never_certain", lambda values, n_samples: values)
    centred = fit_centred(CONFIDENCE, CORRECT.astype(bool))
    expected = [0, 0, 0.3684211, 0.5268817, 0.6021505, 0.6666667, 0.8095238, 1, 1, 1]
    np.testing.assert_allclose(np.interp(CONFIDENCE, *centred), expected, atol=5e-8)


def test_venn_abers_intervals_are_two_isotonic_regressions_with_the_sample_added():
    generator = np.random.default_rng(0)
    for _ in range(60):
        number, levels = generator.integers(1, 40), generator.integers(1, 30)
        scores = generator.integers(0, levels + 1, number) / levels
        hits = generator.uniform(size=number) < scores
        for score in [*scores[:5], *generator.uniform(-0.1, 1.1, 3)]:
            expected = [isotonic_with(scores, hits, score, hit) for hit in (0, 1)]
            np.testing.assert_allclose(interval(scores, hits, score), expected, atol=1e-12)


def test_one_vs_all_venn_abers_probabilities_and_width_of_the_worked_example():
    calibrator = build_calibrator("ivap_ova").fit(np.log(ROWS), LABELS)
    row = np.log([[0.6, 0.3, 0.1]])
    np.testing.assert_allclose(
        calibrator.predict_proba(row), [[0.6603774, 0.1981132, 0.1415094]], atol=5e-8
    )
    np.testing.assert_allclose(calibrator.width(row), [0.5], atol=1e-12)


def test_beta_coefficients_and_probabilities_of_the_worked_examples():
    coefficients = fit_beta(np.log(CONFIDENCE), np.log1p(-CONFIDENCE), CORRECT).coefficients
    np.testing.assert_allclose(coefficients, [3.811836, 0.807018, 1.162949], atol=5e-7)
    after = beta_map(coefficients, np.log([0.5, 0.7, 0.9]), np.log([0.5, 0.3, 0.1]))
    np.testing.assert_allclose(after, [0.284992, 0.684599, 0.932110], atol=1e-6)
    mirrored = fit_beta(np.log(MIRRORED), np.log1p(-MIRRORED), MIRRORED_HITS).coefficients
    np.testing.assert_allclose(mirrored, [1.073941, 1.073941, 0.0], atol=5e-7)


def beta_loss(x, scores, hits, penalty):
    odds = x[0] * np.log(scores) - x[1] * np.log1p(-scores) + x[2]
    identity = np.log(scores) - np.log1p(-scores)
    nll = (np.logaddexp(0.0, odds) - hits * odds).mean()
    return nll + penalty * np.square(odds - identity).mean()


def lowest_beta(scores, hits, penalty=0.0):
    """What a general optimiser finds within the bounds."""
    bounds, options = [(0, None), (0, None), (None, None)], {"ftol": 1e-15, "gtol": 1e-9}
    start, data = [1.0, 1.0, 0.0], (scores, hits, penalty)
    return minimize(beta_loss, start, data, method="L-BFGS-B", bounds=bounds, options=options)


def test_a_negative_beta_coefficient_is_0_and_the_others_are_refitted():
    scores = np.linspace(0.02, 0.98, 49)
    falling = (scores < 0.4) * 1.0
    np.testing.assert_allclose(
        fit_beta(np.log(scores), np.log1p(-scores), falling).coefficients,
        [0.0, 0.0, np.log(falling.mean() / (1 - falling.mean()))],
        atol=1e-9,
    )
    generator = np.random.default_rng(0)
    scores = generator.uniform(size=2000)
    rising = (generator.uniform(size=2000) < np.maximum(scores, 0.5)) * 1.0
    found = fit_beta(np.log(scores), np.log1p(-scores), rising).coefficients
    assert found[0] == 0.0
    np.testing.assert_allclose(found, lowest_beta(scores, rising).x, atol=1e-3)


def test_beta_of_two_classes_is_the_same_for_both():
    binary = np.column_stack([1 - MIRRORED, MIRRORED])
    labels = np.array([0, 1, 1, 0, 1, 0, 1, 1])
    calibrator = build_calibrator("beta_ova").fit(np.log(binary), labels)
    (a, b, c), (a1, b1, c1) = calibrator.coefficients
    np.testing.assert_allclose((a, b, c), (b1, a1, -c1), atol=1e-6)
    alone = fit_beta(np.log(MIRRORED), np.log1p(-MIRRORED), labels).coefficients
    np.testing.assert_allclose(
        calibrator.predict_proba(np.log(binary))[:, 1],
        beta_map(alone, np.log(MIRRORED), np.log1p(-MIRRORED)),
        atol=1e-9,
    )


def test_logarithms_of_confident_probabilities_keep_their_precision():
    log_scores, log_rests = log_probabilities(np.array([[0.0, -50.0, -51.0], [0.0, -1e4, -np.inf]]))
    assert log_rests[0, 0] == pytest.approx(np.log(np.exp(-50.0) + np.exp(-51.0)), rel=1e-12)
    assert log_scores[0, 0] == pytest.approx(-np.exp(log_rests[0, 0]), abs=1e-20)
    assert log_scores[1].tolist() == [0.0, log_rests[1, 0], log_rests[1, 0]]


def test_penalised_logistic_regression_has_no_gradient_and_counts_its_parameters():
    generator = np.random.default_rng(0)
    design = np.column_stack([np.ones(80), generator.normal(size=(80, 3))])
    target, penalty = (generator.uniform(size=80) < 0.4) * 1.0, np.diag([0.0, 0.0, 0.1, 1e9])
    fit = fit_logistic(design, target, penalty, np.zeros(4))
    residual = 1 / (1 + np.exp(-design @ fit.coefficients)) - target
    gradient = design.T @ residual / 80 + 2 * penalty @ fit.coefficients
    np.testing.assert_allclose(gradient, 0.0, atol=1e-9)
    # two free parameters, a part of the third, nothing of the last
    assert 2.0 < fit.effective < 3.0


def test_separable_labels_have_a_penalty_whose_minimum_is_reached():
    """Ten of ten hits, and scores that separate: the minimum by a general optimiser."""
    generator = np.random.default_rng(0)
    scores = generator.uniform(0.55, 0.95, 40)
    for hits in (np.ones(40), (scores > 0.7) * 1.0):
        found = lowest_beta(scores, hits, penalty=0.1 / 40)
        fit = fit_beta(np.log(scores), np.log1p(-scores), hits)
        assert fit.separable and fit.converged
        loss = beta_loss(fit.coefficients, scores, hits, 0.1 / 40)
        assert loss == pytest.approx(found.fun, abs=1e-10)
        np.testing.assert_allclose(fit.coefficients, found.x, atol=1e-2)


@pytest.mark.parametrize("id", ["beta", "beta_ova", "smoothing_spline_ova"])
def test_no_certainty_comes_from_separable_rows(id, problem):
    """Sixty right predictions, far from the others, make other rows little more certain."""
    sharp = problem.replace(logits=10 * problem.logits)
    few = sharp.rows(slice(60))
    fitted = few.replace(labels=few.logits.argmax(axis=1)).fit(id)
    (warning,) = fitted.fit_history["warnings"]
    assert "only a penalty holds" in warning
    assert fitted.fit_history["converged"]
    of_labels = np.arange(600), problem.labels
    before, after = (
        -np.log(np.maximum(sharp.predict(each)[of_labels], 1e-300)).mean()
        for each in (sharp.fit("none"), fitted)
    )
    assert after < 1.5 * before + 1.0
    assert problem.fit(id).fit_history["warnings"] == []


def test_spline_basis_is_two_lines_and_curves_of_unit_roughness():
    knots = np.array([-3.0, -1.0, 0.5, 4.0, 5.0])
    basis = spline_basis(knots)
    grid = np.linspace(-3.0, 5.0, 20_001)
    second = np.gradient(np.gradient(evaluate(knots, basis, grid), grid, axis=0), grid, axis=0)
    roughness = second.T @ second * (grid[1] - grid[0]) * 8.0**3
    np.testing.assert_allclose(roughness, np.diag([0.0, 0.0, 1.0, 1.0, 1.0]), atol=2e-2)
    # straight beyond the ends
    beyond = evaluate(knots, basis, np.array([5.0, 6.0, 7.0]))
    np.testing.assert_allclose(beyond[2] - beyond[1], beyond[1] - beyond[0], atol=1e-12)


def test_the_smoothing_spline_finds_a_line_and_a_bend():
    generator = np.random.default_rng(0)
    log_odds, uniform = generator.normal(size=(2, 20_000)) * 2.0
    uniform = generator.uniform(size=20_000)
    grid = np.linspace(-3.0, 3.0, 13)
    for truth in (lambda x: 0.5 * x - 1.0, lambda x: x - 0.3 * x * np.abs(x)):
        hits = (uniform < 1 / (1 + np.exp(-truth(log_odds)))) * 1.0
        spline = fit_smoothing_spline(log_odds, hits, 10)
        np.testing.assert_allclose(
            evaluate(spline.knots, spline.values, grid), truth(grid), atol=0.2
        )


def test_kernel_estimate_of_the_worked_example():
    points = np.array([(0.7, 0.2, 0.1), (0.2, 0.6, 0.2), (0.1, 0.3, 0.6), (0.5, 0.4, 0.1)])
    labels, at = np.array([0, 1, 2, 1]), np.array([[0.6, 0.3, 0.1]])
    estimate = mean_label(*densities(points, 0.1), np.eye(points.shape[1])[labels], at)
    np.testing.assert_allclose(estimate, [[0.5231197, 0.4768018, 0.0000785]], atol=5e-8)
    alpha = points / 0.1 + 1
    density = np.exp(
        gammaln(alpha.sum(axis=1))
        - gammaln(alpha).sum(axis=1)
        + ((alpha - 1) * np.log(at)).sum(axis=1)
    )
    np.testing.assert_allclose(estimate[0], density @ np.eye(3)[labels] / density.sum(), rtol=1e-12)
    logits = np.log(points)
    calibrator = build_calibrator("kernel", bandwidth=0.1).fit(logits, labels)
    # the uncalibrated probabilities count as one sample of five
    np.testing.assert_allclose(
        calibrator.predict_proba(np.log(at)), 0.8 * estimate + 0.2 * at, rtol=1e-12
    )
    assert build_calibrator("kernel").fit(logits, labels).fit_history["bandwidth"] == 4 ** (-1 / 3)
