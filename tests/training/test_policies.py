"""RandAugment and AugMix: each operation is that of torchvision, and each image has its own."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as theirs

from calgrid.training import operations as op
from calgrid.training import policies
from calgrid.training.protocol import AugMix, RandAugment


def sheared(images, x, y, mode):
    angles = [math.degrees(math.atan(share)) for share in (x, y)]
    return theirs.affine(images, 0.0, [0, 0], 1.0, angles, mode, center=[0, 0])


def moved(images, x, y, mode):
    return theirs.affine(images, 0.0, [x, y], 1.0, [0.0, 0.0], mode)


#: operation, amounts, the same by torchvision, with a mode of interpolation
GEOMETRIC = [
    (op.shear_x, (-0.13, 0.27), lambda images, v, mode: sheared(images, v, 0, mode)),
    (op.shear_y, (-0.13, 0.27), lambda images, v, mode: sheared(images, 0, v, mode)),
    (op.translate_x, (-2, 5), lambda images, v, mode: moved(images, v, 0, mode)),
    (op.translate_y, (-2, 5), lambda images, v, mode: moved(images, 0, v, mode)),
    (op.rotate, (-9, 17), theirs.rotate),
]
OTHERS = [
    (op.brightness, (-0.5, 0.27), lambda images, v: theirs.adjust_brightness(images, 1 + v)),
    (op.colour, (-0.5, 0.27), lambda images, v: theirs.adjust_saturation(images, 1 + v)),
    (op.contrast, (-0.5, 0.27), lambda images, v: theirs.adjust_contrast(images, 1 + v)),
    (op.sharpness, (-0.5, 0.27), lambda images, v: theirs.adjust_sharpness(images, 1 + v)),
    (op.posterize, (1, 4, 7), theirs.posterize),
    (op.solarize, (178.5, 20), theirs.solarize),
    (op.autocontrast, (0, 0), lambda images, _: theirs.autocontrast(images)),
    (op.equalize, (0, 0), lambda images, _: theirs.equalize(images)),
]
CASES = list(OTHERS)
for ours, amounts, reference in GEOMETRIC:
    for mode in ("nearest", "bilinear"):
        given = {"mode": InterpolationMode(mode)}
        if reference is theirs.rotate:
            given = {"interpolation": InterpolationMode(mode)}
        CASES.append((partial(ours, mode=mode), amounts, partial(reference, **given)))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("ours", "amounts", "reference"), CASES)
def test_each_image_is_that_of_torchvision_with_its_amount(ours, amounts, reference, channels):
    """Up to rounding; the last image is dark, mostly of one value, and higher than wide."""
    torch.manual_seed(0)
    images = torch.randint(0, 256, (len(amounts), channels, 40, 21), dtype=torch.uint8)
    images[-1] //= 3
    images[-1, :, :30] = 40
    found = ours(images, torch.tensor(amounts, dtype=torch.float32).view(-1, 1, 1))
    for image, each, amount in zip(images, found, amounts, strict=True):
        expected = reference(image, amount)
        assert (each.int() - expected.int()).abs().max() <= 1
        assert (each == expected).float().mean() > 0.9


def test_channels_of_one_value_have_no_contrast_to_stretch():
    flat = torch.full((1, 3, 5, 5), 77, dtype=torch.uint8)
    assert torch.equal(op.autocontrast(flat), flat)
    assert torch.equal(op.equalize(flat), flat)


def draw(policy, options, images, seed=1):
    return policy(images, options, np.random.default_rng(seed))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("policy", "options"), [(policies.rand_augment, RandAugment()), (policies.aug_mix, AugMix())]
)
def test_copies_of_an_image_become_different_ones_of_its_range(policy, options, channels):
    torch.manual_seed(0)
    image = torch.randint(60, 200, (1, channels, 16, 16), dtype=torch.uint8)
    images = image.expand(64, -1, -1, -1).contiguous(memory_format=torch.channels_last)
    found = draw(policy, options, images)
    assert found.shape == images.shape
    assert len({each.numpy().tobytes() for each in found}) > 32
    assert found.min() >= 0
    assert found.max() <= 255
    assert torch.equal(images, image.expand(64, -1, -1, -1))
    assert torch.equal(found, draw(policy, options, images))
    assert not torch.equal(found, draw(policy, options, images, seed=2))


def test_randaugment_applies_each_of_fourteen_operations_as_often():
    """To an image on which each of them, and each sign, has another result."""
    torch.manual_seed(0)
    image = torch.randint(0, 250, (1, 3, 16, 16), dtype=torch.uint8)
    images = image.expand(2800, -1, -1, -1)
    found = draw(policies.rand_augment, RandAugment(n=1, m=20), images).flatten(1)
    counts = found.unique(dim=0, return_counts=True)[1].sort().values
    # nine operations with two signs, and five without
    assert len(counts) == 23
    assert counts[:18].float().mean() == pytest.approx(100, rel=0.1)
    assert counts[18:].float().mean() == pytest.approx(200, rel=0.1)


def test_augmix_mixes_chains_of_random_length_and_the_image(monkeypatch):
    images = torch.full((3000, 1, 2, 2), 200, dtype=torch.uint8)
    shares = []

    def white(images, choices, choice):
        shares.append((choice >= 0).mean())
        return torch.full_like(images, 255)

    monkeypatch.setattr(policies, "_applied", white)
    found = draw(policies.aug_mix, AugMix(), images)
    # of three chains the first step is in all, the second in two thirds, the third in one third
    assert shares == pytest.approx([1, 2 / 3, 1 / 3] * 3, abs=0.03)
    # 200 m + 255 (1 - m), with m uniform
    weights = (255 - found[:, 0, 0, 0]) / 55
    assert stats.kstest(weights.numpy(), "uniform").pvalue > 0.001


def test_augmix_moves_images_by_up_to_a_third_of_their_side(monkeypatch):
    images, seen = torch.zeros((400, 3, 30, 60), dtype=torch.uint8), {}
    for name in ("translate_x", "translate_y"):

        def record(images, amount, mode, name=name):
            seen[name] = amount.flatten()
            return images

        monkeypatch.setattr(op, name, record)
    draw(policies.aug_mix, AugMix(width=1, depth=1, severity=10), images)
    for name, most in (("translate_x", 19), ("translate_y", 9)):
        pixels = seen[name]
        assert most - 2 < pixels.abs().max() <= most
        assert torch.equal(pixels, pixels.round())
        assert 0.2 < (pixels > 0).float().mean() < 0.8
