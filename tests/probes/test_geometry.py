"""Angles between prototypes, profiles of features, and t-SNE."""

import math

import numpy as np
import pytest
from tests.probes.conftest import normalised

from calgrid.errors import ConfigError
from calgrid.probes import build_probe
from calgrid.probes.embedding import balanced_rows
from calgrid.probes.profiles import difficulty_groups, sorted_profiles
from calgrid.probes.prototypes import pairwise_angles

# angles
# --------------------------------------------------------------------------------------------------


def test_angles_of_known_vectors():
    vectors = [[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [5.0, 5.0], [0.0, 0.0]]
    angles = pairwise_angles(np.array(vectors))
    assert angles[0, :4] == pytest.approx([0, 90, 180, 45])
    assert angles[1, 3] == pytest.approx(45)
    assert angles[:4, :4] == pytest.approx(angles[:4, :4].T)
    assert np.isnan(angles[4]).all()


def test_prototypes_of_a_linear_network(linear, case):
    weight, bias, images, labels = case(classes=4, count=80)
    table = build_probe("prototypes").measure(linear(weight, bias, images, labels))
    assert set(table["of"]) == {"features", "logits", "head"}
    assert (table.groupby("of").size() == 6).all()
    assert (table["class_a"] < table["class_b"]).all()
    means = np.stack([normalised(images)[labels == label].mean(axis=0) for label in range(4)])
    for of, vectors in (("features", means), ("logits", means @ weight.T + bias), ("head", weight)):
        rows = table[table["of"] == of].set_index(["class_a", "class_b"])
        first, second = vectors[1], vectors[3]
        cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
        assert rows.loc[(1, 3), "angle"] == pytest.approx(math.degrees(math.acos(cosine)), abs=1e-2)


def test_centred_angles_of_a_simplex_are_those_of_the_caption(linear, case):
    _, bias, images, labels = case(classes=4)
    simplex = np.zeros((4, 12))
    simplex[:, :4] = np.eye(4) + 3.0  # far from the origin: only centring shows the simplex
    table = build_probe("prototypes").measure(linear(simplex, bias, images, labels))
    head = table[table["of"] == "head"]
    expected = math.degrees(math.acos(-1 / 3))
    assert head["angle_centred"].to_numpy() == pytest.approx(expected, abs=1e-4)
    assert (head["angle"] < 20).all()


def test_a_class_without_test_images_has_a_row_of_the_head_only(linear, case):
    weight, bias, images, labels = case(classes=4)
    subject = linear(weight, bias, images, np.where(labels == 2, 0, labels))
    table = build_probe("prototypes").measure(subject)
    assert table.groupby("of").size().to_dict() == {"features": 3, "logits": 3, "head": 6}


# profiles
# --------------------------------------------------------------------------------------------------


def test_profiles_are_magnitudes_in_descending_order():
    profiles = sorted_profiles(np.array([[1.0, -4.0, 0.0], [2.0, 3.0, -1.0]], np.float32))
    assert profiles.tolist() == [[4, 1, 0], [3, 2, 1]]


def test_groups_are_the_ends_of_the_order_and_never_meet():
    groups = difficulty_groups(np.array([-1.0, -5.0, -0.1, -2.0, -3.0]), 2)
    assert (list(groups["easy"]), list(groups["hard"])) == ([2, 0], [1, 4])
    groups = difficulty_groups(np.array([-1.0, -5.0, -0.1, -2.0, -3.0]), 100)
    assert not set(groups["easy"]) & set(groups["hard"])
    assert sorted(groups["all"]) == list(range(5))


def test_profile_of_a_network_sums_to_its_norm(linear, case):
    weight, bias, images, labels = case(count=60)
    table = build_probe("profiles", images=10).measure(linear(weight, bias, images, labels))
    features = normalised(images)
    logits = features @ weight.T + bias
    loss = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(60), labels]
    hardest = np.argsort(loss)[-10:]
    by_group = dict(iter(table.groupby("group")))
    lengths = {name: len(part) for name, part in by_group.items()}
    assert lengths == {"easy": 12, "hard": 12, "all": 12}
    for part in by_group.values():
        assert (np.diff(part.sort_values("rank")["mean"]) <= 0).all()
        assert part["mean"].sum() == pytest.approx(part["l1"].iloc[0], rel=1e-5)
        assert ((part["q10"] <= part["q50"]) & (part["q50"] <= part["q90"])).all()
    norms = np.abs(features).sum(axis=1)
    assert by_group["all"]["l1"].iloc[0] == pytest.approx(norms.mean(), rel=1e-5)
    assert by_group["hard"]["l1"].iloc[0] == pytest.approx(norms[hardest].mean(), rel=1e-5)
    assert by_group["hard"]["l1_std"].iloc[0] == pytest.approx(norms[hardest].std(ddof=1), rel=1e-4)
    assert by_group["hard"]["accuracy"].iloc[0] <= by_group["easy"]["accuracy"].iloc[0]


# t-SNE
# --------------------------------------------------------------------------------------------------


def test_balanced_rows_are_bounded_seeded_and_equal():
    labels = np.repeat([0, 1, 2], [50, 20, 8])
    rows = balanced_rows(labels, 30, 0)
    assert np.bincount(labels[rows]).tolist() == [8, 8, 8]
    assert np.bincount(labels[balanced_rows(labels, 13, 0)]).tolist() == [4, 4, 4]
    assert list(rows) == list(balanced_rows(labels, 30, 0))
    assert list(rows) != list(balanced_rows(labels, 30, 1))


def test_embedding_has_a_place_for_each_image_in_both_spaces_and_the_same_bytes_again(linear, case):
    subject = linear(*case(count=90))
    options = {"points": 60, "perplexity": 5, "iterations": 250}
    first = build_probe("embedding", **options).measure(subject)
    counts = first.groupby(["space", "label"]).size()
    assert set(counts.index.get_level_values("space")) == {"features", "logits"}
    assert counts.nunique() == 1
    assert np.isfinite(first[["x", "y"]].to_numpy()).all()
    assert first["entropy"].between(0, math.log(3)).all()
    again = build_probe("embedding", space="logits", **options).measure(subject)
    assert again.equals(first[first["space"] == "logits"].reset_index(drop=True))


def test_options_that_do_not_fit_the_data_are_refused(linear, case, refuses):
    subject = linear(*case(count=60))
    with refuses(ConfigError, "probe 'embedding'", "2 points are fewer than the 3 classes"):
        build_probe("embedding", points=2).measure(subject)
    said = "perplexity 30 needs more than 90 images", "lower it or raise points"
    with refuses(ConfigError, *said):
        build_probe("embedding", points=60).measure(subject)
