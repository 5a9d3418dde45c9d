"""Ambiguous digits: one process, stated exactly, and prepared folders that keep it."""

import dataclasses

import numpy as np
import pytest
from scipy import special
from tests.datasets.archives import expect

from calgrid import metrics
from calgrid.datasets import open_prepared, prepare
from calgrid.datasets.digits import digit_bank
from calgrid.datasets.digits_ambiguous import SIGMA, DigitsAmbiguous, draw, log_cells
from calgrid.errors import DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("ambiguous") / "digits_ambiguous"
    prepare("digits_ambiguous", path)
    return path


@pytest.fixture(scope="module")
def judged(folder):
    return open_prepared(folder).verify().splits["test"]


def truth(split):
    """The posterior in float64, rows summing to 1 to the last bits."""
    values = np.asarray(split.distribution, dtype=np.float64)
    return values / values.sum(axis=1, keepdims=True)


def test_every_split_is_a_draw_of_its_own_with_the_posterior_of_each_image(folder):
    splits = open_prepared(folder).verify().splits
    shapes = {"train": (1000, 10), "val": (1000, 10), "test": (4000, 10)}
    assert {name: split.distribution.shape for name, split in splits.items()} == shapes
    assert not np.array_equal(splits["train"].images, splits["val"].images)
    assert not np.array_equal(splits["train"].images, splits["test"].images[:1000])
    for split in splits.values():
        np.testing.assert_allclose(np.asarray(split.distribution).sum(axis=1), 1, atol=1e-5)


def test_the_bayes_classifier_is_as_good_as_it_says(judged):
    posterior, labels = truth(judged), np.asarray(judged.labels)
    best = posterior.max(axis=1)
    accuracy = metrics.accuracy(posterior, labels)
    assert 0.85 < accuracy < 0.92
    assert abs(accuracy - best.mean()) < 3 * np.sqrt((best * (1 - best)).sum()) / len(best)
    surprise = -np.log(posterior, out=np.zeros_like(posterior), where=posterior > 0)
    entropy = special.entr(posterior).sum(axis=1)
    variance = (posterior * surprise**2).sum(axis=1) - entropy**2
    assert abs(metrics.nll(posterior, labels) - entropy.mean()) < 3 * np.sqrt(variance.sum()) / len(
        best
    )


def test_labels_are_draws_from_the_posterior(judged):
    """Given the image, each class, and the runner-up, is as frequent as the posterior says."""
    posterior, labels = truth(judged), np.asarray(judged.labels)
    second = np.argsort(posterior, axis=1)[:, -2]
    columns = [(posterior[:, k], labels == k) for k in range(10)]
    columns.append((posterior[np.arange(len(labels)), second], labels == second))
    for expected, happened in columns:
        spread = np.sqrt((expected * (1 - expected)).sum())
        assert abs(happened.sum() - expected.sum()) < 4 * spread


def test_pixels_of_each_class_have_the_mean_of_noisy_rounded_and_cut_pixels_of_the_bank():
    split = draw(1500, np.random.RandomState(5))
    bank, labels = digit_bank()
    moments = np.exp(log_cells(np.arange(256, dtype=np.uint8), SIGMA)) @ np.arange(256)
    assert all(np.array_equal(split.images[:, 0], split.images[:, channel]) for channel in (1, 2))
    for k in range(10):
        shown = split.images[split.labels == k, 0]
        deviation = shown.mean(axis=0) - moments[bank[labels == k]].mean(axis=0)
        assert np.abs(deviation / (shown.std(axis=0) / np.sqrt(len(shown)))).max() < 4.5


def test_preparing_twice_gives_the_same_bytes(monkeypatch, tmp_path):
    facts = {**DigitsAmbiguous.registered, "sizes": {"train": 20, "val": 20, "test": 300}}
    expect(monkeypatch, DigitsAmbiguous, [], **facts)
    first, second = (prepare("digits_ambiguous", tmp_path / name).parent for name in "ab")
    for path in first.iterdir():
        assert (second / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda q: q * 2, r"1000 rows of 'distribution' are negative somewhere or do not sum to 1"),
        (lambda q: q[:, :9], r"'distribution' must have the shape \(1000, 10\)"),
        (lambda q: np.where(q == q.max(), np.float32("nan"), q), "the first is row"),
    ],
)
def test_what_is_no_distribution_is_refused(folder, monkeypatch, tmp_path, spoil, message):
    splits = dict(open_prepared(folder).splits)
    splits["val"] = dataclasses.replace(
        splits["val"], distribution=spoil(splits["val"].distribution)
    )
    monkeypatch.setattr(DigitsAmbiguous, "build", lambda self, root: splits)
    with pytest.raises(DataError, match=message):
        prepare("digits_ambiguous", tmp_path / "out")


def test_a_split_refuses_posteriors_of_other_types_and_lengths():
    split = draw(3, np.random.RandomState(0))
    for wrong in (split.distribution.astype(float), split.distribution[:2], split.distribution[0]):
        with pytest.raises(DataError, match=r"distribution must be float32 of shape \(3, K\)"):
            dataclasses.replace(split, distribution=wrong)
