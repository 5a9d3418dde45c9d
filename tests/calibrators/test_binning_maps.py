"""Histogram binning, BBQ and isotonic maps: worked examples, bins under ties, one-vs-all forms."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln
from tests.calibrators.cases import CONFIDENCE, CORRECT, top_heavy

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._maps import bin_of, count, distinct, equal_count_cuts, make_cuts
from calgrid.calibrators._probabilities import renormalised, softmax, without_impossible
from calgrid.calibrators._validation import check_logits
from calgrid.calibrators.bbq import average_binnings, binning_sizes
from calgrid.calibrators.imax import maximise_information, spread_start
from calgrid.calibrators.iso import fit_isotonic


def fit_example(id, **overrides):
    return build_calibrator(id, **overrides).fit(
        top_heavy(CONFIDENCE), np.where(CORRECT == 1, 0, 1)
    )


def top_after(calibrator, confidence):
    return calibrator.predict_proba(top_heavy(np.asarray(confidence)))[:, 0]


@pytest.mark.parametrize(
    ("prior_count", "accuracies"), [(0.0, [0, 1 / 3, 2 / 3, 1]), (2.0, [1 / 3, 0.4, 0.6, 0.8])]
)
def test_equal_width_bins_give_the_accuracies_of_the_worked_example(prior_count, accuracies):
    calibrator = fit_example("hb", n_bins=5, spacing="width", prior_count=prior_count)
    np.testing.assert_allclose(top_after(calibrator, [0.38, 0.5, 0.7, 0.9]), accuracies, atol=1e-12)
    assert calibrator.fit_history == {"n_bins": 5, "n_empty": 1, "converged": True, "warnings": []}


def test_bins_are_open_below_and_closed_above_and_an_empty_one_gives_its_centre():
    calibrator = fit_example("hb", n_bins=10, spacing="width", prior_count=0.0)
    assert calibrator.fit_history["n_empty"] == 3
    # below (0.3, 0.4], and the bins above 0.9 and below 0.5 hold samples
    np.testing.assert_allclose(top_after(calibrator, [0.28, 0.39, 0.92]), [0.25, 0.0, 1.0])
    np.testing.assert_array_equal(
        bin_of(make_cuts(CONFIDENCE, 4, "width"), [0.0, 0.25, 0.2500001, 1.0]), [0, 0, 1, 3]
    )


def test_equal_count_bins_hold_their_smoothed_accuracy():
    calibrator = fit_example("hb", n_bins=2)
    # five samples below (0.65 + 0.71) / 2, of which two are right, and five above, of which four
    # are
    np.testing.assert_allclose(
        top_after(calibrator, [0.3, 0.679, 0.681, 1.0]), [3 / 7, 3 / 7, 5 / 7, 5 / 7]
    )


@settings(deadline=None, max_examples=100)
@given(
    scores=st.lists(
        st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1), min_size=1, max_size=60
    ),
    n_bins=st.integers(1, 20),
)
def test_equal_count_bins_are_not_empty_and_never_part_equal_scores(scores, n_bins):
    ordered = np.sort(scores)
    cuts = equal_count_cuts(ordered, n_bins)
    assert len(cuts) <= n_bins - 1
    assert (np.diff(cuts) > 0).all()
    # neighbours so close that nothing lies between them may share a bin
    if (np.diff(np.unique(ordered)) > 1e-12).all():
        number = count(cuts, ordered, ordered).count
        assert number.min() >= 1
        largest_tie = np.unique(ordered, return_counts=True)[1].max()
        assert number.max() <= -(-len(ordered) // n_bins) + largest_tie


def test_without_ties_bins_differ_by_one_sample_at_most():
    scores = np.random.default_rng(0).permutation(np.linspace(0, 1, 101))
    number = count(make_cuts(scores, 15, "quantile"), scores, scores).count
    assert set(number) <= {6, 7}
    assert number.sum() == 101


@pytest.mark.parametrize(
    ("n_samples", "sizes"),
    [(1, (1, 1)), (50, (1, 10)), (5000, (1, 171)), (50_000, (3, 369)), (10**6, (10, 1000))],
)
def test_bbq_averages_over_the_published_range_of_bins(n_samples, sizes):
    found = binning_sizes(n_samples)
    assert (found[0], found[-1]) == sizes


def test_bbq_equals_a_plain_loop_over_bins(problem):
    logits = check_logits(problem.logits)
    confidence = softmax(logits).max(axis=1)
    right = (logits.argmax(axis=1) == problem.labels).astype(float)
    scores, functions = [], []
    for size in binning_sizes(len(right)):
        edges = [0.0, *equal_count_cuts(np.sort(confidence), size), 1.0]
        score, values = 0.0, []
        for low, high in pairwise(edges):
            inside = (confidence > low) & (confidence <= high)
            n, n1, middle = inside.sum(), right[inside].sum(), (low + high) / 2
            pi = min(max(middle, 0.005), 0.995)
            score += gammaln(n1 + 2 * pi) + gammaln(n - n1 + 2 * (1 - pi)) - gammaln(n + 2)
            score -= gammaln(2 * pi) + gammaln(2 * (1 - pi))
            p0 = (confidence[inside & (right == 1)].sum() + middle) / (n1 + 1)
            values.append((n1 + p0) / (n + 1))
        scores.append(score)
        functions.append(np.array(values)[bin_of(np.array(edges[1:-1]), confidence)])
    weights = softmax(np.array([scores]) - max(scores))[0]
    predicted = problem.predict(problem.fit("bbq"))[np.arange(len(right)), logits.argmax(axis=1)]
    np.testing.assert_allclose(predicted, weights @ np.array(functions), rtol=1e-10)


@pytest.mark.parametrize("id", ["hb", "bbq", "iso", "spline"])
def test_saturated_confidences_share_one_value_and_no_probability_is_certain(id):
    confidence = np.concatenate([np.ones(60), np.linspace(0.3, 0.95, 40)])
    labels = np.zeros(100, dtype=int)
    labels[50:60] = labels[-20:] = 1
    calibrator = build_calibrator(id).fit(top_heavy(confidence), labels)
    top = top_after(calibrator, confidence)
    assert len(np.unique(top[:60])) == 1
    assert top[0] == pytest.approx(50 / 60, abs=0.08)
    assert top.min() > 0.0
    assert top.max() < 1.0


def binned_alone(scores, hit):
    """Frequencies of a class in four bins of equal width; centres of empty bins."""
    index = np.minimum((scores * 4).astype(int), 3)
    rates = [hit[index == b].mean() if (index == b).any() else (b + 0.5) / 4 for b in range(4)]
    return np.array(rates)[index]


def averaged_alone(scores, hit):
    cuts, rates, _ = average_binnings(scores, hit == 1)
    return rates[bin_of(cuts, scores)]


@pytest.mark.parametrize(
    ("id", "options", "alone"),
    [
        ("hb_ova", {"n_bins": 4, "prior_count": 0.0}, binned_alone),
        ("bbq_ova", {}, averaged_alone),
    ],
)
def test_one_vs_all_maps_are_those_of_classes_and_absent_classes_stay(problem, id, options, alone):
    for data, n_absent in ((problem, 0), (problem.rows(problem.labels != 2), 1)):
        expected = softmax(check_logits(data.logits))
        for k in np.unique(data.labels):
            expected[:, k] = alone(expected[:, k], (data.labels == k).astype(float))
        fitted = data.fit(id, **options)
        assert fitted.fit_history["n_absent"] == n_absent
        np.testing.assert_allclose(
            data.predict(fitted), expected / expected.sum(axis=1, keepdims=True), rtol=1e-12
        )


def test_irm_is_one_isotonic_map_for_all_classes_and_keeps_their_order(problem, held_out):
    pairs, hits = softmax(check_logits(problem.logits)), np.eye(5, dtype=bool)[problem.labels]
    probabilities = softmax(check_logits(held_out.logits))
    after = held_out.predict(problem.fit("irm"))
    # classes on one step of the map are still told apart by the tie break
    mapped = (
        np.interp(probabilities, *fit_isotonic(pairs.ravel(), hits.ravel())) + 1e-9 * probabilities
    )
    np.testing.assert_allclose(after, mapped / mapped.sum(axis=1, keepdims=True), rtol=1e-9)
    order = np.argsort(probabilities, axis=1)
    assert (np.diff(np.take_along_axis(after, order, axis=1), axis=1) >= -1e-15).all()


def test_the_prior_of_one_vs_all_bins_is_the_uncalibrated_probability(problem):
    strong = problem.predict(problem.fit("hb_ova", n_bins=200, prior_count=1e9))
    np.testing.assert_allclose(strong, problem.predict(problem.fit("none")), atol=0.01)


def test_rows_of_zeros_fall_back():
    values, otherwise = np.array([[0.0, 0.0], [1.0, 3.0]]), np.array([[0.4, 0.6], [0.5, 0.5]])
    np.testing.assert_allclose(renormalised(values, otherwise), [[0.4, 0.6], [0.25, 0.75]])


def test_possible_classes_share_what_a_map_gives_an_impossible_one():
    logits = np.array([[0.0, -1.0, -np.inf], [0.0, -np.inf, -np.inf], [0.0, -1.0, -2.0]])
    values = np.array([[0.6, 0.2, 0.2], [0.0, 0.5, 0.5], [0.5, 0.3, 0.2]])
    expected = [[0.75, 0.25, 0.0], *values[1:]]
    np.testing.assert_allclose(without_impossible(logits, values), expected)


@pytest.mark.parametrize(
    "id", ["hb", "hb_ova", "bbq", "iso_ova", "irm", "spline", "cir", "ivap_ova"]
)
def test_the_order_of_the_validation_samples_does_not_matter(id, problem, held_out):
    tied = problem.replace(logits=problem.logits.round(0))
    order = np.random.default_rng(2).permutation(len(tied.labels))
    one, other = (held_out.predict(data.fit(id)) for data in (tied, tied.rows(order)))
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_scores_closer_than_the_tolerance_count_as_one_also_in_a_chain():
    scores = np.array([0.0, 1e-16, 5e-13, 9e-13, 1.2e-12, 2.1e-12, 2.5e-12, 0.2, 0.2 + 1e-16])
    assert scores[distinct(scores)].tolist() == [0.0, 1.2e-12, 2.5e-12, 0.2]


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("hb", {"n_bins": 10, "spacing": "width"}),
        *((id, {}) for id in ("hb", "bbq", "iso", "spline")),
    ],
)
def test_the_order_of_the_classes_parts_no_equal_confidences(id, options):
    """The softmax of 3, 5 and 2 of ten votes has another last bit than that of 5, 3 and 2."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 1000)
    votes = generator.multinomial(10, np.where(np.eye(3)[labels] == 1, 0.6, 0.2))
    calibrator = build_calibrator(id, **options)
    calibrator.fit(votes / 10, labels, kind="probabilities")
    for tally in ([5, 3, 2], [6, 3, 1], [7, 2, 1]):
        found = calibrator.predict_proba(np.array(list(permutations(tally))) / 10)
        np.testing.assert_allclose(np.sort(found), np.sort(found)[[0] * 6], atol=1e-9)


def test_scaling_binning_means_of_the_worked_example():
    """The published code stops its logistic regression at .3422417 and .8576639."""
    calibrator = fit_example("scaling_binning", n_bins=2)
    np.testing.assert_allclose(calibrator.accuracy, [0.3423232, 0.8576768], atol=5e-8)
    np.testing.assert_allclose(
        top_after(calibrator, [0.4, 0.6, 0.72, 0.99]), [0.3423232] * 2 + [0.8576768] * 2, atol=5e-8
    )


def test_scaling_binning_of_saturated_confidences_is_their_accuracy():
    logits = np.tile([50.0, -50.0, -50.0], (10, 1))
    calibrator = build_calibrator("scaling_binning").fit(logits, np.repeat([0, 1], [6, 4]))
    assert calibrator.accuracy == pytest.approx([0.6])


def test_representatives_of_imax_do_not_differ_by_rounding():
    """Else the edge between two of them would be the logarithm of 0 / 0."""
    log_odds = np.array([-1.0, np.nextafter(-1.0, 0.0), 2.0, np.nextafter(2.0, 3.0)])
    assert spread_start(log_odds, 15, np.random.default_rng(0)) == pytest.approx([-1.0, 2.0])


def test_imax_keeps_more_information_than_bins_of_equal_counts():
    """Of log odds of which few are likely, as with many classes."""
    generator = np.random.default_rng(0)
    ordered = np.sort(generator.normal(-5.0, 2.0, 20_000))
    probability = 1 / (1 + np.exp(-ordered))

    def lost(edges):
        place = np.searchsorted(edges, ordered)
        number = np.bincount(place)
        mean = np.bincount(place, probability) / number
        entropy = -mean * np.log(mean) - (1 - mean) * np.log1p(-mean)
        return number @ entropy

    equal = np.quantile(ordered, np.arange(1, 8) / 8)
    edges = maximise_information(ordered, equal)
    assert len(edges) > 4
    assert lost(edges) < lost(equal)
    for change in (-0.2, 0.2):
        for each in range(len(edges)):
            moved = edges.copy()
            moved[each] += change
            assert lost(edges) <= lost(moved)


def test_imax_rates_are_the_smoothed_frequencies_of_all_classes_in_a_bin(problem):
    calibrator = problem.fit("imax", n_bins=4, prior_count=0.0)
    plain = softmax(problem.logits - problem.logits.max(axis=1, keepdims=True))
    place = bin_of(calibrator.cuts, plain)
    hits = np.eye(5)[problem.labels]
    rates = [hits[place == each].mean() for each in range(4)]
    expected = np.array(rates)[place]
    np.testing.assert_allclose(
        problem.predict(calibrator), expected / expected.sum(axis=1, keepdims=True)
    )
