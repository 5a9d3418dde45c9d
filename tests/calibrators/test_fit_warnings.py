"""What a fit says of bounds that hold it, of optimisers that did not converge, of ends of grids."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from tests.calibrators.cases import nll_of

from calgrid.calibrators import build_calibrator

ONE_PARTITION = {"n_partitions": 1, "min_group": 1}


@pytest.mark.parametrize(
    ("id", "options", "labels", "warning"),
    [
        ("ts", {}, "right", "temperature is the smallest that is allowed"),
        ("ts", {}, "wrong", "temperature is the largest that is allowed"),
        ("ts", {"objective": "brier"}, "right", "temperature is the smallest that is allowed"),
        ("ts_mix", {}, "right", "temperature is the smallest"),
        ("tva_ts", {}, "right", "temperature is the smallest"),
        ("ts_ece_grid", {}, "right", "was chosen, 0.1, is the smallest of those tried"),
        ("cts", {}, "right", "5 of 5 classes have the smallest or largest temperature of the grid"),
        ("hts", {}, "right", "100.00% of the validation samples is the smallest or largest"),
        ("ets", {}, "right", "temperature is the smallest"),
        ("gc_ts", ONE_PARTITION, "right", "In 2 of 2 groups: The temperature is the smallest"),
        ("vs", {}, "right", "weights with bounds ended at one"),
        ("svs", {}, "right", "temperature is the smallest"),
        ("dirichlet", {}, "calibrated", "was chosen, 100, is the largest of those tried"),
        ("smart", {"max_epochs": 3}, "calibrated", "at its 3 epochs while the loss still fell"),
        ("smart", {}, "wrong", "validation samples is the smallest or largest allowed"),
    ],
)
def test_a_result_at_a_bound_is_warned_of(problem, id, options, labels, warning):
    few = problem.rows(slice(200))
    chosen = {
        "right": few.logits.argmax(axis=1),
        "wrong": few.logits.argmin(axis=1),
        "calibrated": few.labels,
    }
    warnings = few.replace(labels=chosen[labels]).fit(id, **options).fit_history["warnings"]
    assert any(warning in found for found in warnings), warnings


@pytest.mark.parametrize("n_masks", [1, 3])
@pytest.mark.parametrize("id", ["ts", "smart", "ets"])
def test_finite_masks_are_warned_of_and_do_not_spoil_a_fit(problem, id, n_masks):
    order = problem.logits.argsort(axis=1)
    labels = order[np.arange(600), 3 + np.arange(600) % 2]
    options = {"max_epochs": 3} if id == "smart" else {}
    said = "give -inf for classes that are impossible"
    for mask, warned in ((-1e5, True), (-1e9, True), (np.finfo(np.float32).min, False)):
        logits = problem.logits.copy()
        np.put_along_axis(logits, order[:, :n_masks], mask, axis=1)
        data = problem.replace(logits, labels)
        fitted = data.fit(id, **options)
        assert any(said in warning for warning in fitted.fit_history["warnings"]) == warned
        unchanged = softmax(logits, axis=1)
        of_labels = np.arange(600), labels
        before, after = (
            -np.log(each[of_labels]).mean() for each in (unchanged, data.predict(fitted))
        )
        assert after < before + 0.02


def test_nearly_tied_logits_are_no_masks():
    """Three classes, two of them nearly equal: the temperature is that of a direct search."""
    generator = np.random.default_rng(0)
    close = generator.normal(0, 0.02, 2000)
    far = -6 + generator.normal(0, 0.5, 2000)
    logits = np.column_stack([close, np.zeros(2000), far])
    labels = np.array([generator.choice(3, p=softmax(row)) for row in logits])
    found = minimize_scalar(
        lambda beta: nll_of(beta * logits, labels), bounds=(1e-3, 1e3), method="bounded"
    )
    history = build_calibrator("ts").fit(logits, labels).fit_history
    assert nll_of(history["beta"] * logits, labels) == pytest.approx(found.fun, abs=1e-9)
    assert history["beta"] == pytest.approx(found.x, rel=1e-3)
    for id in ("ts", "hts", "cts", "ts_ece_grid", "smart"):
        fitted = build_calibrator(id).fit(logits, labels)
        assert not any("masks" in each for each in fitted.fit_history["warnings"])
        assert nll_of(np.log(fitted.predict_proba(logits)), labels) < found.fun + 0.03, id


def test_a_fit_that_does_not_converge_is_warned_of(problem, monkeypatch):
    monkeypatch.setattr("calgrid.calibrators._linear.MAX_STEPS", 1)
    (warning,) = problem.fit("vs").fit_history["warnings"]
    assert warning.startswith(
        "The fit did not converge: after 1 steps the largest component of the gradient is"
    )


def test_a_good_fit_is_not_warned_of(problem):
    for id in ("ts", "ets", "hts", "vs", "svs", "smart", "ts_ece_grid"):
        assert problem.fit(id).fit_history["warnings"] == []


def test_predictions_that_say_nothing_keep_their_class():
    """All weight of the ensemble on the uniform distribution would make the classes equal."""
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(2000, 5)), generator.integers(0, 5, 2000)
    calibrator = build_calibrator("ets").fit(logits, labels)
    probabilities = calibrator.predict_proba(logits)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_allclose(probabilities, 0.2, atol=1e-6)
    assert "All weight is on the uniform distribution" in calibrator.fit_history["warnings"][-1]


def test_vector_scaling_is_warned_of_where_it_will_lose(problem):
    """The logits need one temperature only, so 10 weights fit the noise of 60 samples."""
    few, test = problem.rows(slice(60)), problem.rows(slice(60, None))
    fitted = few.fit("vs")
    assert nll_of(np.log(test.predict(fitted)), test.labels) > nll_of(
        np.log(test.predict(few.fit("ts"))), test.labels
    )
    assert any("Few samples a class" in each for each in fitted.fit_history["warnings"])
