"""Shift families and out-of-distribution sets: deterministic, graded, aligned with their base."""

import numpy as np
import pytest
from tests.datasets.pictures import specification

from calgrid.datasets import corruptions, open_prepared, prepare
from calgrid.datasets.corruptions import CORRUPTIONS, corrupt
from calgrid.datasets.photos import _patches, _shrink

GREY = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
#: strength at which a corruption changes nothing; a JPEG always does
NEUTRAL = {
    "gaussian_noise": 0.0,
    "shot_noise": 1e12,
    "impulse_noise": 0.0,
    "gaussian_blur": 0.0,
    "brightness": 0.0,
    "contrast": 1.0,
    "elastic_transform": 0.0,
    "pixelate": 1.0,
}


@pytest.fixture(params=sorted(CORRUPTIONS))
def name(request):
    return request.param


@pytest.fixture(params=[GREY, COLOUR], ids=["grey", "colour"])
def images(request):
    return request.param


@pytest.mark.parametrize("neutral", NEUTRAL)
def test_neutral_strength_leaves_images_alone(neutral, images):
    assert np.array_equal(corrupt(images, neutral, 1, NEUTRAL[neutral]), images)


def test_same_arguments_give_same_images_and_leave_their_inputs_alone(name, images):
    before, strength = images.copy(), corruptions.STRENGTHS[name][2]
    first = corrupt(images, name, 3, strength)
    assert np.array_equal(first, corrupt(images, name, 3, strength))
    assert not np.array_equal(first, images)
    assert np.array_equal(images, before)


@pytest.mark.parametrize("name", ["gaussian_blur", "brightness", "contrast", "elastic_transform"])
def test_what_draws_nothing_a_channel_treats_equal_channels_as_it_treats_grey_images(name):
    strength = corruptions.STRENGTHS[name][4]
    colour = corrupt(np.repeat(GREY[:, None], 3, axis=1), name, 5, strength)
    assert np.array_equal(colour, np.repeat(corrupt(GREY, name, 5, strength)[:, None], 3, axis=1))


def test_jpeg_keeps_less_of_an_image_at_a_lower_quality():
    loss = [
        np.abs(corrupt(COLOUR, "jpeg_compression", 1, q).astype(float) - COLOUR).mean()
        for q in (95, 50, 10)
    ]
    assert 0 < loss[0] < loss[1] < loss[2]


def test_corruptions_of_any_data_set_take_its_shape_classes_and_first_images(digits_dir, tmp_path):
    plan = specification(tmp_path, base="corruptions", of="digits", images=7)
    prepare("mine", tmp_path / "mine", base_dir=digits_dir, configured=plan)
    made, base = open_prepared(tmp_path / "mine"), open_prepared(digits_dir).splits["test"]
    assert len(made.conditions) == 45
    assert made.splits["shift"].images.shape == (45 * 7, *base.images.shape[1:])
    assert np.array_equal(made.splits["shift"].labels, np.tile(base.labels[:7], 45))


@pytest.mark.parametrize("noise", ["gaussian_noise", "impulse_noise", "elastic_transform"])
def test_severities_draw_different_noise(noise):
    assert not np.array_equal(corrupt(GREY, noise, 1, 0.3), corrupt(GREY, noise, 2, 0.3))


@pytest.mark.parametrize(
    ("noise", "strength", "deviation"),
    [("gaussian_noise", 0.1, 0.1), ("shot_noise", 100, np.sqrt(0.4 / 100))],
)
def test_noise_has_the_asked_deviation(noise, strength, deviation):
    grey = np.full((200, 8, 8), 102, dtype=np.uint8)  # 0.4 of white
    assert corrupt(grey, noise, 1, strength).std() / 255 == pytest.approx(deviation, rel=0.02)


@pytest.mark.parametrize(
    ("name", "strength", "image", "expected"),
    [
        ("brightness", 0.4, [[0, 100], [200, 255]], [[102, 202], [255, 255]]),
        ("contrast", 0.5, [[0, 100], [100, 200]], [[50, 100], [100, 150]]),
        (
            "pixelate",
            0.5,
            np.arange(0, 160, 10).reshape(4, 4),
            [[25, 25, 45, 45]] * 2 + [[105, 105, 125, 125]] * 2,
        ),
    ],
)
def test_small_images_by_hand(name, strength, image, expected):
    assert corrupt(np.array([image], dtype=np.uint8), name, 1, strength).tolist() == [expected]


def test_impulse_noise_sets_the_asked_share_to_black_or_white():
    grey = np.full((200, 8, 8), 128, dtype=np.uint8)
    noisy = corrupt(grey, "impulse_noise", 1, 0.2)
    assert np.isin(noisy, [0, 128, 255]).all()
    assert (noisy == 0).mean() == pytest.approx(0.1, abs=0.01)
    assert (noisy == 255).mean() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("name", ["gaussian_blur", "elastic_transform"])
def test_constant_images_stay_and_are_not_mixed_with_each_other(name):
    grey = np.stack([np.zeros((8, 8)), np.full((8, 8), 200)]).astype(np.uint8)
    assert np.array_equal(corrupt(grey, name, 1, 1.0), grey)


def test_digits_c_has_five_severities_that_move_further_from_the_clean_images(digits, digits_c):
    conditions = digits_c.conditions
    assert [condition.severity for condition in conditions] == [1, 2, 3, 4, 5] * 6
    assert [condition.start for condition in conditions] == list(range(0, 36_000, 1_200))
    assert [condition.stop for condition in conditions] == list(range(1_200, 36_001, 1_200))
    assert np.array_equal(
        digits_c.splits["shift"].labels, np.tile(digits.splits["test"].labels, 30)
    )
    clean = digits.splits["test"].images.astype(float)
    images = digits_c.splits["shift"].images
    distance = [
        np.abs(images[condition.start : condition.stop] - clean).mean()
        for condition in digits_c.conditions
    ]
    assert (np.diff(np.reshape(distance, (6, 5)), axis=1) > 0).all()


def test_shifted_and_foreign_images_are_normalised_like_their_base(digits, digits_c, photos):
    assert (digits_c.mean, digits_c.std) == (photos.mean, photos.std) == (digits.mean, digits.std)


def test_photos_are_grey_structured_patches_without_labels_or_repeats(photos):
    split = photos.splits["test"]
    assert split.images.shape == (900, 3, 8, 8)
    assert (split.labels == -1).all()
    assert np.array_equal(split.images[:, 0], split.images[:, 2])
    assert split.images[:, 0].std(axis=(1, 2)).min() > 5
    assert len(np.unique(split.images.reshape(900, -1), axis=0)) == 900


def test_large_patches_are_the_photographs_in_colour(tmp_path):
    from sklearn.datasets import load_sample_images

    prepare("photos32", tmp_path / "photos32")
    images = open_prepared(tmp_path / "photos32").splits["test"].images
    assert images.shape == (2 * 13 * 20, 3, 32, 32)
    for number, photo in enumerate(load_sample_images().images):  # the second patch of each
        assert np.array_equal(images[260 * number + 1], photo[:32, 32:64].transpose(2, 0, 1))


def test_patches_are_cut_in_reading_order_and_photographs_shrunk_by_averaging_two_by_two_pixels():
    photo = np.arange(17 * 24, dtype=float).reshape(17, 24)
    patches = _patches(photo, 8)
    assert patches.shape == (6, 8, 8)
    assert np.array_equal(patches[1], photo[:8, 8:16])
    assert np.array_equal(patches[3], photo[8:16, :8])
    assert _shrink(np.array([[0.0, 2.0, 9.0], [4.0, 6.0, 9.0], [9.0, 9.0, 9.0]])).tolist() == [
        [3.0]
    ]
