"""What a fit knows of its inputs, and what it therefore refuses or puts right."""

import numpy as np
import pandas as pd
import pytest
from tests.calibrators.cases import shifted

from calgrid.calibrators import build_calibrator, load_calibrator
from calgrid.calibrators._probabilities import softmax
from calgrid.errors import DataError

NAMES = ["a", "b", "c", "d", "e"]


@pytest.fixture
def probabilities(problem):
    return softmax(shifted(problem))


def test_probabilities_are_taken_for_logits_nowhere(problem, probabilities, refuses):
    said = ("non-negative and sum to 1 in every row", "give kind='probabilities'", "subtract 1")
    with refuses(DataError, *said):
        build_calibrator("ts").fit(probabilities, problem.labels)
    fitted = problem.fit("ts")
    with refuses(DataError, *said):
        fitted.predict_proba(probabilities)
    below_0 = np.where(probabilities == probabilities.min(), -1e-9, probabilities)
    with refuses(DataError, *said):
        fitted.predict_proba(below_0)
    found = fitted.predict_proba(probabilities, kind="probabilities")
    assert found == pytest.approx(problem.predict(fitted))
    with refuses(DataError, "probabilities must lie in [0, 1]"):
        fitted.predict_proba(problem.logits, kind="probabilities")
    with refuses(DataError, "kind must be one of logits, probabilities"):
        fitted.predict_proba(problem.logits, kind="scores")
    p = probabilities[:, 0]
    is_first = (problem.labels == 0).astype(int)
    with refuses(DataError, "between 0 and 1 like probabilities", "two columns"):
        build_calibrator("ts").fit(p, is_first)
    fitted = build_calibrator("ts").fit(np.log(p / (1 - p)), is_first)
    with refuses(DataError, "between 0 and 1 like probabilities"):
        fitted.predict_proba(p)
    assert fitted.predict_proba(p[:3]).shape == (3, 2)


def test_outputs_of_sigmoids_are_warned_of(problem):
    shares = 1 / (1 + np.exp(-problem.logits))
    (warning,) = build_calibrator("none").fit(shares, problem.labels).fit_history["warnings"]
    assert warning.startswith("All logits lie between 0 and 1, like probabilities of each class")
    assert problem.fit("none").fit_history["warnings"] == []


@pytest.mark.parametrize("change", [lambda p: p.round(2), lambda p: 100 * p])
def test_rounded_probabilities_and_percents_are_no_logits(problem, probabilities, refuses, change):
    said = ("or to about 1 or 100, like probabilities", "divide each row by its sum")
    with refuses(DataError, *said):
        problem.fit("ts").predict_proba(change(probabilities))
    few = np.array([[0.3, 0.3, 0.2, 0.1, 0.05], [30.0, 30.0, 20.0, 10.0, 8.0]])
    assert problem.fit("ts").predict_proba(few).shape == (2, 5)


def test_a_saved_fit_keeps_kind_classes_and_rows(problem, probabilities, tmp_path):
    given = {"kind": "probabilities", "class_names": NAMES}
    calibrator = build_calibrator("vs").fit(probabilities, problem.labels, **given)
    calibrator.save(tmp_path / "fitted.safetensors")
    saved = load_calibrator(tmp_path / "fitted.safetensors")
    expected = calibrator.predict_proba(probabilities)
    assert np.array_equal(saved.predict_proba(probabilities), expected)
    assert (saved.kind, saved.class_names, saved.n_samples) == ("probabilities", tuple(NAMES), 600)


def test_columns_with_names_go_by_name(problem, refuses):
    frame = pd.DataFrame(problem.logits, columns=NAMES)
    fitted = build_calibrator("vs").fit(frame, problem.labels)
    expected = fitted.predict_proba(problem.logits)
    assert np.array_equal(fitted.predict_proba(frame[NAMES[::-1]]), expected)
    turned = problem.logits[:, ::-1]
    assert np.array_equal(fitted.predict_proba(turned, class_names=NAMES[::-1]), expected)
    with refuses(DataError, "fitted on the classes a, b, c, d, e", "these are b, c, d, e, f"):
        fitted.predict_proba(turned, class_names=list("bcdef"))
    with refuses(DataError, "; remove 'logit_' from the names of the columns."):
        fitted.predict_proba(frame.add_prefix("logit_")[[f"logit_{name}" for name in NAMES[::-1]]])
    with refuses(DataError, "class_names must be one different name per column, got 4"):
        fitted.predict_proba(turned, class_names=NAMES[:4])


def test_numbers_are_names_of_classes_too(problem, refuses):
    order = [2, 0, 1, 4, 3]
    classes = np.unique(problem.labels)
    fitted = build_calibrator("vs").fit(problem.logits, problem.labels, class_names=classes)
    expected = fitted.predict_proba(problem.logits)
    assert fitted.class_names == tuple("01234")
    numbered = pd.DataFrame(problem.logits)
    for found in (
        fitted.predict_proba(numbered),
        fitted.predict_proba(numbered[order]),
        fitted.predict_proba(problem.logits[:, order], class_names=np.array(order)),
    ):
        assert np.array_equal(found, expected)
    assert build_calibrator("none").fit(numbered, problem.labels).class_names is None
    unnamed = build_calibrator("vs").fit(numbered, problem.labels)
    assert unnamed.predict_proba(numbered[order]) == pytest.approx(expected)
    with refuses(DataError, "labels are numbers that are also names of classes", "2, 0, 1, 4, 3"):
        build_calibrator("vs").fit(numbered[order], problem.labels)
    from_1 = np.arange(1, 6)
    fitted = build_calibrator("vs").fit(problem.logits, problem.labels, class_names=from_1)
    assert np.array_equal(fitted.predict_proba(problem.logits), expected)


def test_labels_whose_index_is_that_of_the_rows_in_another_order_are_refused(problem, refuses):
    frame, labels = pd.DataFrame(problem.logits), pd.Series(problem.labels)
    expected = build_calibrator("ts").fit(problem.logits, problem.labels)
    mixed = frame.sample(frac=1, random_state=0)
    with refuses(DataError, "labels has the rows of logits in another order", "labels.loc[logits"):
        build_calibrator("ts").fit(mixed, labels)
    for given in (labels, labels.tolist(), labels.set_axis(range(600, 1200))):
        fitted = build_calibrator("ts").fit(frame, given)
        assert fitted.fit_history["temperature"] == expected.fit_history["temperature"]
    assert build_calibrator("ts").fit(mixed, labels.loc[mixed.index]).n_samples == 600


def test_a_column_of_labels_is_no_class(problem, refuses):
    frame = pd.DataFrame(problem.logits, columns=NAMES).assign(label=problem.labels)
    with refuses(DataError, "logits has a column 'label', which is no class"):
        build_calibrator("ts").fit(frame, frame["label"])
    named = [*NAMES, "label"]
    assert build_calibrator("ts").fit(frame, frame["label"], class_names=named).n_classes == 6


def test_masked_entries_are_refused(problem, refuses):
    masked = np.ma.masked_greater(problem.logits, 0)
    with refuses(DataError, "logits has masked entries"):
        build_calibrator("ts").fit(masked, problem.labels)


def test_a_calibrator_says_what_it_is(problem):
    assert str(build_calibrator("smart", seed=3)) == "smart(seed=3), not fitted"
    fitted = problem.fit("ts")
    temperature = fitted.fit_history["temperature"]
    assert str(fitted) == f"ts(T={temperature:.5g}), fitted on 600 rows, 5 classes"


def test_a_notebook_shows_a_table_without_obeying_names(problem):
    unfitted = build_calibrator("smart", seed=3)._repr_html_()
    assert unfitted == (
        "<table><tr><th>calibrator</th><td>smart</td></tr><tr><th>seed</th><td>3</td></tr>"
        "<tr><th>fitted on</th><td>nothing yet</td></tr></table>"
    )
    names = ["<b>", "dog", "eel", "fox", "gnu"]
    fitted = build_calibrator("ts").fit(problem.logits, problem.labels, class_names=names)
    shown = fitted._repr_html_()
    assert f"<th>T</th><td>{fitted.fit_history['temperature']:.5g}</td>" in shown
    assert "<td>600 rows of logits</td>" in shown
    assert "<td>5 (&lt;b&gt;, dog, eel, fox, gnu)</td>" in shown
    assert "warnings" not in shown
    fitted.fit_history["warnings"] = ["a < b."]
    assert "<th>warnings</th><td>a &lt; b.</td>" in fitted._repr_html_()


@pytest.mark.parametrize(
    "form", [lambda y: y.astype(np.float32), lambda y: y[:, None], lambda y: np.eye(5)[y]]
)
def test_labels_have_the_forms_of_files(problem, form):
    """As floats, as a column, and one-hot."""
    expected = problem.predict(problem.fit("vs"))
    found = build_calibrator("vs").fit(problem.logits, form(problem.labels))
    assert np.array_equal(problem.predict(found), expected)


def test_labels_may_be_names_of_classes_or_truth_values(problem, refuses):
    frame = pd.DataFrame(problem.logits, columns=NAMES)
    words = np.array(NAMES)[problem.labels]
    expected = problem.predict(problem.fit("vs"))
    found = build_calibrator("vs").fit(frame[NAMES[::-1]], words)
    assert found.predict_proba(frame[NAMES]) == pytest.approx(expected[:, ::-1])
    with refuses(
        DataError, "label 'e' in row ... is not one of the classes a, b, c, d, x; correct it, or"
    ):
        build_calibrator("vs").fit(problem.logits, words, class_names=[*"abcdx"])
    with refuses(DataError, "labels must be integers", "or names with class_names"):
        build_calibrator("vs").fit(problem.logits, words)
    two, first = problem.logits[:, :2], problem.labels == 0
    fits = [build_calibrator("vs").fit(two, labels) for labels in (first, first.astype(int))]
    assert np.array_equal(fits[0].predict_proba(two), fits[1].predict_proba(two))
