"""Calibrators of features: proximity, density ratio, parts by proximity, clipping."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

from calgrid.calibrators import _proximity as proximity_module
from calgrid.calibrators import build_calibrator
from calgrid.calibrators import procal_dr as procal_module
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators._proximity import proximity, unit_rows
from calgrid.calibrators._validation import check_logits
from calgrid.calibrators.fc import clipped_logits
from calgrid.calibrators.procal_dr import log_density
from calgrid.errors import DataError
from calgrid.metrics import accuracy, ece, nll


def plain_proximity(queries, points, k, leave_out=False):
    distances = cdist(queries, points, "sqeuclidean")
    if leave_out:
        np.fill_diagonal(distances, np.inf)
    return np.exp(-np.sort(distances)[:, :k]).mean(axis=1)


# distance to training images


def test_temperature_of_dac_grows_with_the_distance_to_training_images():
    generator = np.random.default_rng(0)
    distances = generator.uniform(0, 2, size=(20_000, 2))
    scores = 3 * generator.normal(size=(20_000, 4))
    drawn = np.log(softmax(scores)) + generator.gumbel(size=scores.shape)
    true = 0.5 + 2 * distances[:, 0]
    fitted = build_calibrator("dac").fit(scores * true[:, None], drawn.argmax(axis=1), distances)
    assert fitted.fit_history["converged"]
    assert [fitted.w_0, *fitted.weights] == pytest.approx([0.5, 2, 0], abs=0.1)
    without = build_calibrator("dac").fit(scores, drawn.argmax(axis=1), 0 * distances)
    assert without.temperature(0 * distances) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("unit", [1, 1e4])
def test_the_constant_of_dac_may_be_negative_as_in_the_code(unit):
    generator = np.random.default_rng(0)
    distances = generator.uniform(0.3, 1.5, size=(20_000, 1))
    scores = 3 * generator.normal(size=(20_000, 4))
    labels = (scores + generator.gumbel(size=scores.shape)).argmax(axis=1)
    true = unit * (4 * distances - 1)
    fitted = build_calibrator("dac").fit(scores * true, labels, distances)
    assert [fitted.w_0, *fitted.weights] == pytest.approx([-unit, 4 * unit], abs=0.1 * unit)


# proximity


def test_proximity_of_hand_computed_points():
    points = np.array([[2.0, 0.0], [0.0, 1.0], [-3.0, 0.0]])
    known = unit_rows(points)
    # squared distances of unit vectors: 0, 2 and 4
    np.testing.assert_allclose(
        proximity(known, 2, np.array([[5.0, 0.0]])), (1.0 + np.exp(-2.0)) / 2.0
    )
    corner, side = (np.exp(-2.0) + np.exp(-4.0)) / 2.0, np.exp(-2.0)
    np.testing.assert_allclose(proximity(known, 2), [corner, side, corner])


@pytest.mark.parametrize("block", [1 << 22, 700])
def test_proximity_equals_a_plain_search_whatever_the_block(problem, held_out, monkeypatch, block):
    monkeypatch.setattr(proximity_module, "PRODUCT_BLOCK", block)
    points, queries = unit_rows(problem.features[:150]), unit_rows(held_out.features[:40])
    np.testing.assert_allclose(
        proximity(points, 10, held_out.features[:40]),
        plain_proximity(queries, points, 10),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        proximity(points, 10), plain_proximity(points, points, 10, True), rtol=1e-6
    )


def test_the_length_of_features_does_not_matter_and_zero_features_are_allowed(problem, held_out):
    known = unit_rows(problem.features)
    scaled = held_out.features * np.linspace(0.1, 50.0, len(held_out.labels))[:, None]
    np.testing.assert_allclose(
        proximity(known, 10, scaled), proximity(known, 10, held_out.features), rtol=1e-9
    )
    # the origin is at distance 1 from every unit vector
    np.testing.assert_allclose(proximity(known, 10, np.zeros((1, 8))), np.exp(-1.0), rtol=1e-6)


# density ratio


@pytest.mark.parametrize("block", [1 << 22, 100])
def test_the_density_estimate_is_a_mean_of_gaussians(monkeypatch, block):
    monkeypatch.setattr(procal_module, "PRODUCT_BLOCK", block)
    generator = np.random.default_rng(0)
    points = generator.normal(size=(60, 2)) * [0.2, 0.05]
    queries = generator.normal(size=(9, 2)) * 0.3
    widths = 1.06 * points.std(axis=0) * 60 ** (-1 / 6)
    expected = np.mean(
        [multivariate_normal(point, np.diag(widths**2)).pdf(queries) for point in points], axis=0
    )
    np.testing.assert_allclose(
        np.exp(log_density(queries, points)), expected, rtol=1e-9, atol=1e-300
    )


def test_density_ratio_is_the_rule_of_bayes(problem, held_out):
    logits = check_logits(problem.logits)
    right = logits.argmax(axis=1) == problem.labels
    confidence, queries = softmax(logits).max(axis=1), check_logits(held_out.logits)
    points, others = unit_rows(problem.features), unit_rows(held_out.features)
    known = np.column_stack([confidence, plain_proximity(points, points, 10, True)])
    asked = np.column_stack([softmax(queries).max(axis=1), plain_proximity(others, points, 10)])
    f1, f0 = np.exp(log_density(asked, known[right])), np.exp(log_density(asked, known[~right]))
    expected = f1 / (f1 + f0 * (~right).sum() / right.sum())
    found = held_out.predict(problem.fit("procal_dr"))[
        np.arange(len(asked)), queries.argmax(axis=1)
    ]
    np.testing.assert_allclose(found, np.clip(expected, 1 / 601, 600 / 601), rtol=1e-4)


def test_far_from_all_data_the_output_is_no_division_by_zero(problem):
    fitted = problem.fit("procal_dr")
    far = fitted.predict_proba(
        np.array([[0.0, -1e-9, 0.0, 0.0, 0.0]]), -np.abs(problem.features[:1])
    )
    assert np.isfinite(far).all()
    assert far.max() > 0.2


@pytest.mark.parametrize("wrong", [0, 4])
def test_too_few_wrong_samples_mean_temperature_scaling(problem, held_out, wrong):
    labels = problem.logits.argmax(axis=1)
    labels[:wrong] = problem.logits[:wrong].argmin(axis=1)
    data = problem.replace(labels=labels)
    fitted, single = data.fit("procal_dr"), data.fit("ts")
    np.testing.assert_allclose(
        held_out.predict(fitted), held_out.predict(single), rtol=1e-9, atol=1e-15
    )
    assert fitted.fit_history["temperature"] == pytest.approx(single.fit_history["temperature"])


# parts by proximity


@pytest.mark.parametrize("base", ["irm", "iso", "iso_ova", "hb", "hb_ova"])
def test_one_part_is_its_base(problem, held_out, base):
    alone = problem.fit(base, **({"n_bins": 10} if base.startswith("hb") else {}))
    parts = problem.fit("procal_bms", base=base, n_bins=1)
    np.testing.assert_array_equal(held_out.predict(parts), held_out.predict(alone))


def test_each_part_is_fitted_to_its_samples_only(problem, held_out):
    known = unit_rows(problem.features).astype(np.float32)
    own, asked = proximity(known, 10), proximity(known, 10, held_out.features)
    ordered = np.sort(own)
    cut = (ordered[299] + ordered[300]) / 2
    found = held_out.predict(problem.fit("procal_bms", base="iso", n_bins=2))
    for low in (True, False):
        alone = problem.rows((own <= cut) == low).fit("iso")
        there = (asked <= cut) == low
        np.testing.assert_array_equal(found[there], held_out.rows(there).predict(alone))


# feature clipping


def clip_by_hand(problem, threshold):
    weight, bias = problem.head
    return softmax(check_logits(np.clip(problem.features, -threshold, threshold) @ weight.T + bias))


@pytest.mark.parametrize(("criterion", "metric"), [("ece", ece), ("nll", nll)])
def test_the_threshold_beats_every_quantile_that_keeps_the_accuracy(problem, criterion, metric):
    fitted = problem.fit("fc", criterion=criterion)
    history, labels = fitted.fit_history, problem.labels
    before = accuracy(problem.predict(problem.fit("none")), labels)
    assert history["accuracy_unclipped"] == before
    assert history["accuracy"] > 0.99 * before
    assert history["n_tried"] == 96
    after = clip_by_hand(problem, history["threshold"])
    np.testing.assert_allclose(problem.predict(fitted), after, rtol=1e-12)
    assert history["objective"] == pytest.approx(metric(after, labels))
    for threshold in np.quantile(np.abs(problem.features), np.arange(1, 65) / 64):
        clipped = clip_by_hand(problem, threshold)
        if accuracy(clipped, labels) > 0.99 * before:
            assert metric(clipped, labels) >= history["objective"] - 1e-12


def test_clipping_has_two_sides(problem):
    signed = np.array([[-3.0, 0.5], [0.1, 4.0]])
    head = np.eye(2), np.zeros(2)
    np.testing.assert_allclose(clipped_logits(signed, head, 1.0), [[-1.5, 0.0], [-0.9, 0.0]])
    np.testing.assert_allclose(clipped_logits(signed, head, np.inf), [[-3.5, 0.0], [-3.9, 0.0]])


def test_nothing_is_clipped_where_every_sample_is_wrong(problem, held_out):
    wrong = problem.replace(labels=problem.logits.argmin(axis=1))
    fitted = wrong.fit("fc")
    assert fitted.fit_history["clipped"] is False
    np.testing.assert_allclose(
        held_out.predict(fitted), held_out.predict(problem.fit("none")), rtol=1e-9
    )


def test_prediction_reads_features_not_logits(problem, held_out):
    fitted = problem.fit("fc")
    other = held_out.replace(logits=np.zeros_like(held_out.logits))
    np.testing.assert_array_equal(other.predict(fitted), held_out.predict(fitted))


def test_logits_of_another_head_are_refused_and_rounded_ones_are_not(problem):
    weight, bias = problem.head
    rounded = problem.replace(
        logits=problem.logits.astype(np.float32) + 7.0, head=(weight.astype(np.float32), bias)
    )
    assert rounded.fit("fc").fit_history["accuracy"] == problem.fit("fc").fit_history["accuracy"]
    for head in ((weight[::-1], bias), (weight, bias + np.arange(5)), (2.0 * weight, bias)):
        with pytest.raises(DataError, match=r"do not give these logits .* off by up to"):
            problem.replace(head=head).fit("fc")


def test_the_head_is_required(problem):
    with pytest.raises(DataError, match="needs head"):
        build_calibrator("fc").fit(problem.logits, problem.labels, problem.features)
