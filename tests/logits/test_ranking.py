"""Ranking of calibrators: no row scores a fit that saw it, and ties are called ties."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp
from tests.metrics.cases import softmax

from calgrid.calibrators import build_calibrator
from calgrid.components import registry
from calgrid.errors import ConfigError, DataError
from calgrid.logits.ranking import _changed, choice, rank_calibrators, reference, usable
from calgrid.metrics import Predictions, evaluate
from calgrid.metrics.intervals import resampled
from calgrid.statistics import paired_bootstrap
from calgrid.statistics.sampling import against_one


def over_confident(rows=400, classes=4, factor=3.0, seed=0):
    """Logits that are ``factor`` times calibrated ones, with labels."""
    rng = np.random.default_rng(seed)
    calibrated = rng.normal(size=(rows, classes)) * 1.5
    drawn = rng.uniform(size=(rows, 1))
    labels = (softmax(calibrated).cumsum(axis=1) < drawn).sum(axis=1).clip(max=classes - 1)
    return factor * calibrated, labels


@pytest.fixture
def ranking():
    return rank_calibrators(*over_confident(), candidates=["none", "iso", "ts"], n_resamples=200)[0]


def test_entries_are_sorted_by_the_metric_that_ranks(ranking):
    """Scaling beats nothing on overconfident logits."""
    values = [entry.scores["nll"][0] for entry in ranking]
    assert values == sorted(values)
    assert (ranking[0].id, ranking[-1].id) == ("ts", "none")
    assert ranking[-1].verdict == "worse"
    assert ranking[-1].difference[1] > 0
    assert ranking[0].difference == (0.0, 0.0, 0.0)
    assert reference(ranking) is choice(ranking) is ranking[0]
    assert ranking[0].changed == 0.0  # a temperature moves no arg max
    for entry in ranking:
        assert entry.difference[0] == pytest.approx(entry.scores["nll"][0] - values[0])


def test_a_row_changes_its_class_where_its_first_arg_max_changes():
    """Of equal probabilities the first counts in the accuracy, so also here."""
    probs = np.array([[0.4, 0.4, 0.2], [0.4, 0.4, 0.2], [0.2, 0.3, 0.5]])
    logits = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    assert _changed(Predictions(probs, np.array([1, 0, 2])), logits) == 1 / 3


def test_saturated_logits_are_scored_by_their_logarithms():
    logits, labels = over_confident(factor=3000.0)
    (entry,), _ = rank_calibrators(logits, labels, candidates=["none"], n_resamples=0)
    losses = logsumexp(logits, axis=1) - logits[np.arange(len(labels)), labels]
    assert entry.scores["nll"].value == pytest.approx(losses.mean(), rel=1e-12)
    assert losses.max() > 745  # no float64


def out_of_fold(id, logits, labels):
    """Probabilities (N, K) of five fits, each without the rows that it scores."""
    fold = np.random.default_rng(0).permutation(len(labels)) % 5
    probs = np.empty(logits.shape)
    for number in range(5):
        held = fold == number
        fitted = build_calibrator(id).fit(logits[~held], labels[~held])
        probs[held] = fitted.predict_proba(logits[held])
    return probs


def test_every_row_is_scored_by_a_fit_on_the_other_folds(ranking):
    logits, labels = over_confident()
    expected = evaluate(out_of_fold("ts", logits, labels), labels)
    scores = next(entry for entry in ranking if entry.id == "ts").scores
    assert {name: score[0] for name, score in scores.items()} == pytest.approx(expected)


def test_better_than_the_best_by_a_biased_error_is_not_worse():
    """The ranking by ECE has another order than the squared error, which decides."""
    rng = np.random.default_rng(0)
    confidence = rng.choice([0.55, 0.65, 0.75, 0.85, 0.95], 20_000)
    wrong = (rng.random(len(confidence)) > confidence).astype(int)
    far = np.where(confidence == 0.55, 0.65, confidence)
    near = np.minimum(confidence + 0.028, 0.999)
    models = {
        name: resampled(np.column_stack([p, 1 - p]), wrong, n_resamples=200)
        for name, p in (("far", far), ("near", near))
    }
    assert models["far"].values["ece"] < models["near"].values["ece"]
    verdict = against_one(models, "far", "ece", len(wrong))["verdict"].item()
    assert verdict == "better"


def test_the_reference_stays_unless_another_is_significantly_better():
    """One class is overconfident, which one temperature cannot mend."""
    logits, labels = over_confident(rows=2000, factor=1.0)
    logits = logits + np.array([2.0, 0, 0, 0])
    names = ["none", "ts", "vs"]
    many, _ = rank_calibrators(logits, labels, candidates=names, n_resamples=100)
    assert choice(many).id == "vs"
    assert reference(many).id == "ts"
    vs = next(entry for entry in many if entry.id == "vs")
    assert vs.verdict == "better"
    assert vs.difference[2] < 0
    unconverged = [replace(entry, converged=entry.id != "vs") for entry in many]
    assert choice(unconverged).id != "vs"
    few, _ = rank_calibrators(*over_confident(rows=60), candidates=names, n_resamples=100)
    assert choice(few).id == "ts"
    untested, _ = rank_calibrators(logits, labels, candidates=names, n_resamples=0)
    assert choice(untested).id == "ts"
    without, _ = rank_calibrators(logits, labels, candidates=["vs", "none"], n_resamples=100)
    assert reference(without).id == "none"


def test_none_is_in_no_family():
    """Its test does not get weaker with the number of other candidates."""
    logits, labels = over_confident(rows=300, factor=1.25)
    verdicts = set()
    for others in ([], ["iso", "beta", "hb"]):
        candidates = ["none", "ts", *others]
        ranking, _ = rank_calibrators(logits, labels, candidates=candidates, n_resamples=100)
        verdicts |= {entry.verdict for entry in ranking if entry.id == "none"}
    assert len(verdicts) == 1


def test_verdicts_are_those_of_a_comparison_of_the_same_predictions():
    """Two candidates are one family of one test, as in ``calgrid compare``."""
    logits, labels = over_confident(factor=1.3)
    how = {"n_resamples": 200, "n_bins": 10}
    ranking, _ = rank_calibrators(logits, labels, candidates=["ts", "none"], rank_by="ece", **how)
    other, best = sorted(ranking, key=lambda entry: entry.id)
    pair = {name: [out_of_fold(name, logits, labels)] for name in (other.id, best.id)}
    found = paired_bootstrap(pair, labels, metrics=["ece"], of_runs=True, **how)
    (row,) = found.to_dict("records")
    assert other.verdict == row["verdict"]
    assert other.difference == pytest.approx((row["difference"], row["ci_low"], row["ci_high"]))


def test_a_calibrator_that_refuses_the_data_is_named_with_its_reason(monkeypatch):
    original = build_calibrator

    def build(id, **options):
        if id == "iso":
            raise DataError("too few rows.")
        return original(id, **options)

    monkeypatch.setattr("calgrid.logits.ranking.build_calibrator", build)
    ranking, refused = rank_calibrators(*over_confident(), candidates=["iso", "ts"], n_resamples=0)
    assert [entry.id for entry in ranking] == ["ts"]
    assert refused == {"iso": "too few rows."}
    with pytest.raises(
        ConfigError, match="No calibrator can be fitted on these data: too few rows"
    ):
        rank_calibrators(*over_confident(), candidates=["iso"])


@pytest.mark.parametrize("folds", [1, 401])
def test_folds_that_do_not_fit_are_refused(folds):
    with pytest.raises(ConfigError, match="at least 2 and at most the 400 rows"):
        rank_calibrators(*over_confident(), candidates=["ts"], folds=folds)


def test_usable_names_what_the_inputs_allow():
    specs = registry.descriptions("calibrator")
    ids, left_out = usable(10)
    assert ids[0] == "none"
    assert all(specs[id].info["needs"] == ("logits",) for id in ids)
    assert left_out["fc"] == "needs features and head"
    assert set(left_out) == set(specs) - set(ids)
    everything, slow = usable(10, np.zeros((1, 1)), (np.zeros((1, 1)), np.zeros(1)))
    assert set(everything) == set(specs) - set(slow)
    assert set(slow) == {"pts_paper", "dac"}


def test_a_map_with_too_many_weights_is_ranked_only_by_name():
    assert "ms" in usable(49)[0]
    _, left_out = usable(50)
    assert left_out["ms"] == "takes minutes a fit of 50 classes; name it to rank it"
