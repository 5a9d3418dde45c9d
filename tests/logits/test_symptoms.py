"""Signs of a wrong kind, order or label are said, and right files have none."""

import numpy as np
import pytest
from tests.logits.user_files import npz
from tests.metrics.cases import softmax

from calgrid.logits.reading import predicted, read_any
from calgrid.logits.symptoms import impossible, symptoms


def network(classes=4, rows=400, right=0.8, seed=0):
    """Logits (N, K) of a network and labels, of which a share is right."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    given = np.where(rng.uniform(size=rows) < right, labels, rng.integers(0, classes, rows))
    return rng.normal(size=(rows, classes)) + 4 * np.eye(classes)[given], labels


def found(tmp_path, logits, labels, kind="logits", **options):
    name = {"logits": "logits", "probabilities": "probs"}[kind]
    path = npz(tmp_path / "t.npz", label=labels, **{name: logits})
    data = read_any(path, kind, **options)
    return symptoms(data, predicted(data), "t.npz")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [2, 10])
def test_right_files_and_networks_at_chance_have_no_symptom(tmp_path, classes, seed):
    for right in (0.0, 0.7):
        logits, labels = network(classes, right=right, seed=seed)
        assert found(tmp_path, logits, labels) == []
        assert found(tmp_path, softmax(logits), labels, "probabilities") == []


@pytest.mark.parametrize("turned", ["columns", "sign"])
def test_an_accuracy_below_chance_is_said(tmp_path, turned):
    logits, labels = network(right=1.0)
    logits = np.roll(logits, 1, axis=1) if turned == "columns" else -logits
    right = int((logits.argmax(axis=1) == labels).sum())
    (said,) = found(tmp_path, logits, labels)
    assert said.startswith(f"t.npz: {right} of 400 rows are right, fewer than by chance (1 of 4)")


def test_the_level_of_chance_is_that_of_the_binomial_test(tmp_path):
    """Of 20 rows of two classes, 3 right ones have p = 0.00129 and 2 have 0.0002."""
    labels = np.arange(20) % 2
    for right, is_said in ((3, False), (2, True)):
        places = np.where(np.arange(20) < right, labels, 1 - labels)
        said = found(tmp_path, 3.0 * np.eye(2)[places] - 1, labels)
        assert any("fewer than by chance" in each for each in said) == is_said


def test_minus_ln_p_and_outputs_of_sigmoids_are_said(tmp_path):
    logits, labels = network()
    probabilities = softmax(logits)
    said = found(tmp_path, -np.log(probabilities), labels)
    assert "t.npz: the logits are -ln p of probabilities p; give their negatives, ln p." in said
    (said,) = found(tmp_path, 1 / (1 + np.exp(-logits)), labels)
    assert said.startswith(
        "t.npz: All logits lie between 0 and 1, like probabilities of each class"
    )
    shares = np.random.default_rng(0).uniform(size=200)
    (said,) = found(tmp_path, shares, (shares > 0.5).astype(int), binary=True)
    assert "All logits lie between 0 and 1" in said


def test_rows_that_are_all_the_same_are_said(tmp_path):
    logits, labels = network()
    (said,) = found(tmp_path, np.tile([1.0, 0.0, 2.0, 0.5], (400, 1)), labels)
    assert said.startswith("t.npz: all rows have the same probabilities")
    logits[1:] = logits[1]
    assert not any("all rows" in said for said in found(tmp_path, logits, labels))


def test_a_class_without_a_row_is_said_where_rows_are_many(tmp_path):
    """A weight beside the columns of four classes looks like a fifth one."""
    logits, labels = network(rows=400)
    wide = np.c_[logits, np.ones(400)]
    (said,) = found(tmp_path, wide, labels, classes=["a", "b", "c", "d", "weight"])
    assert said.startswith("t.npz has no row of 1 of 5 classes (weight): a column may be no class")
    assert not any("no row of" in each for each in found(tmp_path, wide[:40], labels[:40]))


def test_few_rows_and_impossible_labels_are_said(tmp_path):
    said = found(tmp_path, np.eye(3), np.array([0, 1, 1]), "probabilities")
    assert said[0].startswith("t.npz has 3 rows, too few to say how well a model is calibrated")
    assert said[1].startswith("t.npz: 1 of 3 rows give their label the probability 0; the NLL")
    data = read_any(tmp_path / "t.npz", "probabilities")
    assert impossible(predicted(data), data.label, "ts")[0].startswith("ts: 1 of 3 rows")
