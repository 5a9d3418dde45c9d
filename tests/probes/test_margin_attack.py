"""FGSM against the margin: on linear networks the smallest perturbation is known in closed form."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from tests.probes.conftest import STD, normalised

from calgrid.probes import build_probe

PIXEL = np.repeat(STD, 4)  # normalised pixels move by epsilon / std


def attack(subject, **options):
    return build_probe("margin_attack", **{"samples": 1000, "eps_max": 1.0, **options}).measure(
        subject
    )


def closed_form(weight, bias, images):
    """Smallest length on the ray of one gradient sign at which another class overtakes, inf where
    none does.
    """
    logits = normalised(images) @ weight.T + bias
    lengths = []
    for row in logits:
        top = row.argmax()
        others = np.delete(np.arange(len(row)), top)
        shares = softmax(row)[others] / (
            1 - softmax(row)[top]
        )  # what is left of the gradient of -log p_top
        step = np.sign(shares @ (weight[others] - weight[top])) / PIXEL
        slope = (weight[others] - weight[top]) @ step
        overtaken = (row[top] - row[others])[slope > 0] / slope[slope > 0]
        lengths.append(overtaken.min(initial=np.inf))
    return np.array(lengths)


@pytest.mark.parametrize("classes", [2, 5])
def test_first_crossing_on_the_ray_of_the_gradient_sign(classes, linear, case):
    weight, bias, images, labels = case(classes=classes, count=200)
    expected = closed_form(weight, bias, images)
    table = attack(linear(weight, bias, images, labels))
    inside = expected < 0.3  # further away pixels reach 0 or 1, where they are clipped
    assert inside.sum() > 100
    assert not table.loc[inside, "censored"].any()
    assert table.loc[inside, "epsilon"].to_numpy() == pytest.approx(
        expected[inside], rel=1e-3, abs=1e-5
    )
    first, second = np.sort(normalised(images) @ weight.T + bias, axis=1)[:, :-3:-1].T
    assert table["margin"].to_numpy() == pytest.approx(first - second, abs=1e-4)


def test_what_is_not_flipped_up_to_the_largest_length_is_censored_there(linear, case):
    weight, bias, images, labels = case(classes=4, count=200)
    expected = closed_form(weight, bias, images)
    limit = float(np.median(expected))
    table = attack(linear(weight, bias, images, labels), eps_max=limit)
    assert table["censored"].to_numpy() == pytest.approx(expected > limit)
    assert table["censored"].sum() == 100
    assert (table.loc[table["censored"], "epsilon"] == limit).all()


def test_the_predicted_class_is_attacked_also_where_it_is_wrong(linear, case):
    weight, bias, images, _ = case()
    predicted = (normalised(images) @ weight.T + bias).argmax(axis=1)
    right, wrong = (
        attack(linear(weight, bias, images, (predicted + shift) % 3)) for shift in (0, 1)
    )
    assert right["correct"].all()
    assert not wrong["correct"].any()
    assert (right["epsilon"] == wrong["epsilon"]).all()
    assert (right["predicted"] == predicted).all()


def test_a_saturated_softmax_changes_nothing(linear, case):
    """The gradient of -log p vanishes in float32 where p is 1; scaling logits moves no decision
    boundary.
    """
    weight, bias, images, labels = case(classes=2)
    plain, scaled = (attack(linear(f * weight, f * bias, images, labels)) for f in (1.0, 300.0))
    assert (scaled["confidence"] == 1).mean() > 0.9
    assert scaled["epsilon"].to_numpy() == pytest.approx(
        plain["epsilon"].to_numpy(), rel=2e-3, abs=1e-5
    )


def test_pixels_stay_between_black_and_white(linear):
    """Class 0 wins on white; the attack would have to make white whiter."""
    weight = np.stack([np.full(12, -1.0), np.ones(12)])
    white = np.full((3, 3, 2, 2), 255, np.uint8)
    table = attack(linear(weight, np.array([100.0, 0.0]), white, [0, 0, 0]))
    assert table["censored"].all()


def test_images_are_the_same_for_every_network_and_bounded(linear, case):
    weight, bias, images, labels = case(count=60)
    subject = linear(weight, bias, images, labels)
    first, second = (
        attack(each, samples=25) for each in (subject, linear(-2 * weight, bias, images, labels))
    )
    assert len(first) == 25
    assert list(first["index"]) == list(second["index"]) == sorted(set(first["index"]))
    assert (first["label"].to_numpy() == labels[first["index"]]).all()
    assert list(attack(subject, samples=25, seed=1)["index"]) != list(first["index"])


def test_more_samples_than_images_takes_all_and_batches_do_not_matter(linear, case, monkeypatch):
    subject = linear(*case(count=30))
    whole = attack(subject)
    monkeypatch.setattr("calgrid.probes.margin_attack.ATTACKED_AT_ONCE", 7)
    pd.testing.assert_frame_equal(attack(subject), whole, check_exact=False, rtol=1e-5)
    assert list(whole["index"]) == list(range(30))
