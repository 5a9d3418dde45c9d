"""Long tails: the published frequencies, nested subsets, and splits of the balanced data set."""

from types import MappingProxyType

import numpy as np
import pytest

from calgrid.datasets import open_prepared, prepare
from calgrid.datasets.base import Dataset, ImageSplit
from calgrid.datasets.long_tail import Cifar10Lt, Cifar100Lt, DigitsLt


@pytest.mark.parametrize(
    ("dataset", "first", "sums"),
    [
        (Cifar10Lt, 5_000, {10: 20_431, 50: 13_996, 100: 12_406}),
        (Cifar100Lt, 500, {10: 19_573, 50: 12_608, 100: 10_847}),
    ],
)
def test_frequencies_are_the_published_ones(dataset, first, sums, monkeypatch):
    """Sums of kaidic/LDAM-DRW, with all training images of the first class."""
    monkeypatch.setattr(dataset, "most", {"train": first})
    found = {imbalance: dataset(imbalance=imbalance).counts("train").sum() for imbalance in sums}
    assert found == sums


@pytest.mark.parametrize("dataset", [Cifar10Lt, Cifar100Lt, DigitsLt])
def test_registered_facts_fit_together(dataset):
    facts = dataset.registered
    assert dataset().sizes == facts["sizes"]
    assert sum(facts["class_groups"].values()) == facts["n_classes"]
    # the largest imbalance leaves one image
    assert facts["limits"]["imbalance"] == f"[1, {dataset.most['train']}]"


class Balanced(Dataset):
    """Twenty images of each of ten classes, of which 5 are validation images, and a test set."""

    def build(self, data_root):
        rows, test = np.random.RandomState(3).permutation(200), np.arange(200, 210)
        images = np.arange(210, dtype=np.uint8)[:, None, None, None] * np.ones((3, 1, 1), np.uint8)
        labels = np.arange(210) % 10
        parts = {"train": np.sort(rows[50:]), "val": np.sort(rows[:50]), "test": test}
        return {name: ImageSplit(images[part], labels[part], part) for name, part in parts.items()}


@pytest.fixture
def small(monkeypatch):
    """CIFAR-10-LT of twenty images of a class, with options."""
    rule = {"split": "stratified", "val_size": 50, "split_seed": 1}
    monkeypatch.setattr(Cifar10Lt, "balanced", Balanced)
    monkeypatch.setattr(Cifar10Lt, "most", {"train": 15, "val": 5})
    facts = {**Cifar10Lt.registered, "drawn_val": rule}
    monkeypatch.setattr(Cifar10Lt, "registered", MappingProxyType(facts))
    return lambda **options: Cifar10Lt(**options).build(None)


def test_training_images_are_long_tailed_and_the_other_splits_are_not(small):
    splits = small(imbalance=5)
    counts = {name: np.bincount(split.labels).tolist() for name, split in splits.items()}
    assert counts["train"] == [15, 12, 10, 8, 7, 6, 5, 4, 3, 3]
    assert (counts["val"], counts["test"]) == ([5] * 10, [1] * 10)
    for split in splits.values():
        assert np.array_equal(split.images[:, 0, 0, 0], split.rows)
        assert np.array_equal(split.labels, split.rows % 10)
    assert not np.isin(splits["train"].rows, splits["val"].rows).any()


def test_a_longer_tail_is_a_part_of_a_shorter_one(small):
    short, long = small(imbalance=2), small(imbalance=5)
    assert np.isin(long["train"].rows, short["train"].rows).all()
    assert np.array_equal(long["val"].rows, short["val"].rows)


def test_validation_images_have_the_tail_on_request(small):
    splits = small(imbalance=5, val_profile="lt")
    assert np.bincount(splits["val"].labels).tolist() == [5, 4, 3, 2, 2, 2, 1, 1, 1, 1]
    assert np.isin(splits["val"].rows, small(imbalance=5)["val"].rows).all()


def test_digits_have_their_test_images_and_a_few_training_images_of_each_class(digits, tmp_path):
    prepare("digits_lt", tmp_path / "out")
    splits = open_prepared(tmp_path / "out").verify().splits
    assert np.array_equal(splits["test"].images, digits.splits["test"].images)
    assert np.bincount(splits["train"].labels).tolist() == [39, 30, 23, 18, 14, 10, 8, 6, 5, 3]
    assert np.bincount(splits["val"].labels).tolist() == [19, 20, 19, 20, 20, 20, 20, 20, 19, 20]
