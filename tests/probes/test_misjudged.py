"""The probe of images whose feature norm misjudges the answer."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scipy.special import softmax
from sklearn.metrics import roc_auc_score
from tests.probes.conftest import normalised

from calgrid.errors import ConfigError
from calgrid.probes import build_probe


def test_wrong_answers_of_large_norm_and_right_ones_of_small_norm(linear, case):
    weight, bias, images, labels = case(classes=3, count=60)
    features = normalised(images)
    logits, norm = features @ weight.T + bias, np.abs(features).sum(axis=1)
    correct = logits.argmax(axis=1) == labels
    table = build_probe("misjudged", images=4, class_names=["a", "b", "c"]).measure(
        linear(weight, bias, images, labels)
    )

    wrong, right = (table[table["group"] == group] for group in ("wrong", "right"))
    assert list(wrong["index"]) == sorted(np.flatnonzero(~correct), key=lambda row: -norm[row])[:4]
    assert list(right["index"]) == sorted(np.flatnonzero(correct), key=lambda row: norm[row])[:4]
    assert list(wrong["rank"]) == list(right["rank"]) == [1, 2, 3, 4]
    rows = table["index"].to_numpy()
    assert list(table["class"]) == ["abc"[label] for label in labels[rows]]
    assert list(table["answer"]) == ["abc"[label] for label in logits[rows].argmax(axis=1)]
    assert table["confidence"].to_numpy() == pytest.approx(
        softmax(logits, axis=1).max(axis=1)[rows], abs=1e-5
    )
    assert table["indicator"].to_numpy() == pytest.approx(
        ((norm - norm.mean()) / norm.std())[rows], abs=1e-4
    )
    # two norms that are equal in double precision are not in the network's
    assert table["auroc"].to_numpy() == pytest.approx(roc_auc_score(correct, norm), abs=0.002)
    pictures = [np.asarray(Image.open(io.BytesIO(picture))) for picture in table["picture"]]
    assert np.array_equal(pictures, images[rows].transpose(0, 2, 3, 1))


def test_a_network_without_mistakes_has_none_to_show(linear, case):
    weight, bias, images, _ = case(classes=3, count=20)
    labels = (normalised(images) @ weight.T + bias).argmax(axis=1)
    table = build_probe("misjudged").measure(linear(weight, bias, images, labels))
    assert set(table["group"]) == {"right"}
    assert len(table) == 8
    assert set(table["auroc"]) == {0.5}


def test_names_of_other_classes_are_refused(linear, case, refuses):
    with refuses(ConfigError, "2 names", "3 classes"):
        build_probe("misjudged", class_names=["a", "b"]).measure(linear(*case(classes=3)))


def test_names_in_another_order_than_those_of_the_data_set_are_refused(linear, case, refuses):
    subject = linear(*case(classes=3))
    subject.prepared = replace(subject.prepared, manifest={"classes": ["a", "b", "c"]})
    with refuses(ConfigError, "in another order (class 0 is 'b' instead of 'a')"):
        build_probe("misjudged", class_names=["b", "a", "c"]).measure(subject)
    build_probe("misjudged", class_names=["A", "B", "C"]).measure(subject)
