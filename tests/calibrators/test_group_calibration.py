"""`gc_ts` and `gc_ets`: the loss of a partition, its minimiser, and what groups gain."""

import numpy as np
import pytest
import torch
from scipy.optimize import rosen, rosen_der

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._lbfgs import minimise_each
from calgrid.calibrators._objectives import TopLabelInputs
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators._temperature import BETA_BOUNDS
from calgrid.calibrators._validation import check_logits
from calgrid.calibrators.gc_ts import PartitionLoss
from calgrid.metrics import nll


def test_the_loss_of_a_partition_is_the_likelihood_of_its_mixture_plus_the_penalty(problem):
    generator = np.random.default_rng(3)
    weights = generator.uniform(size=(3, 600)) * (generator.uniform(size=(3, 600)) < 0.6)
    weights /= weights.sum(axis=1, keepdims=True)
    features = (problem.features - problem.features.mean(axis=0)) / problem.features.std(axis=0)
    evidence = TopLabelInputs.gather(check_logits(problem.logits), problem.labels, *BETA_BOUNDS)
    parameters = np.hstack([generator.normal(size=(3, 16)), generator.uniform(-1.5, 0.5, (3, 2))])
    which = np.array([2, 0, 1])
    values, gradients = PartitionLoss(features, evidence, weights, n_groups=2, penalty=0.1)(
        parameters, which
    )
    for row, partition in enumerate(which):
        leaf = torch.tensor(parameters[row], requires_grad=True)
        weight, beta = leaf[:16].reshape(2, 8), torch.exp(leaf[16:])
        share = torch.log_softmax(torch.tensor(features) @ weight.T, dim=1)
        scaled = torch.log_softmax(torch.tensor(problem.logits)[:, None] * beta[:, None], dim=2)
        mixture = torch.logsumexp(share[:, :, None] + scaled, dim=1)
        true = mixture[torch.arange(600), torch.tensor(problem.labels)]
        expected = -(torch.tensor(weights[partition]) * true).sum() + 0.1 * (weight**2).mean()
        expected.backward()
        assert values[row] == pytest.approx(expected.item(), abs=1e-5)
        np.testing.assert_allclose(gradients[row], leaf.grad, atol=1e-4)


def test_many_problems_at_once_reach_known_minima():
    def valleys(x, which):
        return np.array([rosen(row) for row in x]), np.array([rosen_der(row) for row in x])

    start = np.random.default_rng(0).uniform(-1.0, 1.5, (6, 2))
    found, value, unfinished = minimise_each(valleys, start, 300)
    assert unfinished == 0
    assert minimise_each(valleys, start, 3)[2] == 6
    np.testing.assert_allclose(found, 1.0, atol=1e-3)
    assert value.max() < 1e-6
    curvature = np.arange(1.0, 9.0)

    def bowls(x, which):
        return 0.5 * (curvature * np.square(x - which[:, None])).sum(axis=1), curvature * (
            x - which[:, None]
        )

    found, _, _ = minimise_each(bowls, np.zeros((4, 8)), 100)
    np.testing.assert_allclose(found, np.repeat(np.arange(4.0)[:, None], 8, axis=1), atol=1e-4)


@pytest.mark.parametrize(("id", "base"), [("gc_ts", "ts"), ("gc_ets", "ets")])
def test_one_group_of_all_samples_is_its_calibrator(problem, held_out, id, base):
    grouped, plain = problem.fit(id, n_groups=1, held_out=0.0, n_partitions=3), problem.fit(base)
    np.testing.assert_allclose(held_out.predict(grouped), held_out.predict(plain), rtol=1e-12)


def test_groups_that_are_too_small_get_the_calibrator_of_all(problem, held_out):
    few = problem.rows(slice(80))
    grouped = few.fit("gc_ts")
    assert grouped.fit_history["n_groups_fitted"] == 0
    np.testing.assert_allclose(
        held_out.predict(grouped), held_out.predict(few.fit("ts")), rtol=1e-12
    )


def test_output_is_the_mean_over_partitions_of_each_groups_temperature(problem, held_out):
    fitted = problem.fit("gc_ts", n_partitions=3)
    state = fitted._state()
    standard = (held_out.features - state["centre"]) / state["spread"]
    logits, expected = check_logits(held_out.logits) / fitted._scale, np.zeros_like(held_out.logits)
    for weight, beta in zip(state["weight"], state["parameters"], strict=True):
        expected += softmax(logits * beta[(standard @ weight.T).argmax(axis=1)]) / 3
    np.testing.assert_allclose(held_out.predict(fitted), expected, rtol=1e-12)


def feature_dependent(n_samples, seed):
    """Ten-class logits of true temperature 4 or 1, by the sign of the first of six features."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(n_samples, 6))
    logits = 3.0 * generator.normal(size=(n_samples, 10))
    temperature = np.where(features[:, 0] > 0.0, 4.0, 1.0)
    true = softmax((logits - logits.max(axis=1, keepdims=True)) / temperature[:, None])
    labels = (true.cumsum(axis=1) < generator.uniform(size=(n_samples, 1))).sum(axis=1).clip(max=9)
    return logits, labels, features


@pytest.mark.parametrize("id", ["gc_ts", "gc_ets"])
def test_a_temperature_that_depends_on_the_features_is_found(id):
    val, test = feature_dependent(4000, 0), feature_dependent(4000, 1)
    single = nll(build_calibrator("ts").fit(*val).predict_proba(test[0]), test[1])
    grouped = build_calibrator(id, n_partitions=5).fit(*val)
    ideal = np.where(test[2][:, 0] > 0.0, 4.0, 1.0)[:, None]
    best = nll(softmax(check_logits(test[0]) / ideal), test[1])
    assert nll(grouped.predict_proba(test[0], test[2]), test[1]) < best + 0.1 * (single - best)
    assert grouped.fit_history["n_groups_fitted"] == 10


def test_groups_learned_and_calibrated_on_other_samples_do_not_overfit_noise(make):
    generator = np.random.default_rng(0)
    data = make(2000, seed=6)
    noise = generator.normal(size=(2000, 100))
    val, test = slice(1000), slice(1000, 2000)

    def score(id, **options):
        fitted = build_calibrator(id, **options).fit(data.logits[val], data.labels[val], noise[val])
        return nll(fitted.predict_proba(data.logits[test], noise[test]), data.labels[test])

    single = score("ts")
    assert score("gc_ts", n_partitions=5) < single + 0.005
    assert score("gc_ts", n_partitions=5, held_out=0.0) > single + 0.02


def test_a_constant_feature_changes_nothing(problem, held_out):
    def widened(data):
        return np.column_stack([data.features, np.full(len(data.labels), 0.1)])

    fitted = build_calibrator("gc_ts", n_partitions=2).fit(
        problem.logits, problem.labels, widened(problem)
    )
    assert np.isfinite(fitted.predict_proba(held_out.logits, widened(held_out))).all()
    shifted = widened(held_out)
    shifted[:, -1] = 1e6
    np.testing.assert_array_equal(
        fitted.predict_proba(held_out.logits, shifted),
        fitted.predict_proba(held_out.logits, widened(held_out)),
    )
