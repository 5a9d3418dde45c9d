"""Random parts of encoded images: those of torchvision's RandomResizedCrop, by seed and row."""

import math

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from tests.datasets.pictures import encoded, prepared, write_folder
from torchvision.transforms import functional

from calgrid.datasets import open_prepared
from calgrid.datasets.encoded import decode_part, random_part


def picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_a_part_has_the_pixels_that_torchvision_cuts_and_scales():
    pixels = picture(50, 70)
    left, top, right, bottom = random_part(70, 50, np.random.default_rng(3))
    ours = decode_part(encoded(pixels), (24, 16), "", np.random.default_rng(3))
    theirs = functional.resized_crop(
        Image.fromarray(pixels), top, left, bottom - top, right - left, [24, 16]
    )
    assert np.array_equal(ours, np.asarray(theirs).transpose(2, 0, 1))


@pytest.mark.parametrize("size", [(640, 480), (300, 330)])
def test_areas_and_ratios_are_distributed_as_those_of_torchvision(size):
    width, height = size
    rng = np.random.default_rng(0)
    ours = [random_part(width, height, rng) for _ in range(3000)]
    blank = torch.empty(3, height, width)
    torch.manual_seed(0)
    draw = torchvision.transforms.RandomResizedCrop.get_params
    theirs = [draw(blank, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(3000)]
    facts = (
        [
            (left, top, (right - left) * (bottom - top), (right - left) / (bottom - top))
            for left, top, right, bottom in ours
        ],
        [(left, top, across * down, across / down) for top, left, down, across in theirs],
    )
    for column, (mine, peer) in enumerate(
        zip(*(np.transpose(each) for each in facts), strict=True)
    ):
        # differences of means in standard errors
        error = math.sqrt((mine.var() + peer.var()) / 3000)
        assert abs(mine.mean() - peer.mean()) < 4 * error, column
    assert min(left for left, *_ in ours) == 0
    assert max(right for _, _, right, _ in ours) <= width


@pytest.mark.parametrize(
    ("size", "expected"), [((90, 2), (43, 0, 46, 2)), ((2, 90), (0, 43, 2, 46))]
)
def test_of_an_image_that_no_part_fits_the_middle_is_taken(size, expected):
    assert random_part(*size, np.random.default_rng(0)) == expected


def test_a_part_depends_on_seed_and_row_alone(tmp_path):
    pixels = np.stack([picture(20, 20, seed) for seed in range(12)])
    write_folder(tmp_path / "train", pixels[:9], np.arange(9) % 3, "abc")
    write_folder(tmp_path / "test", pixels[9:], np.arange(3), "abc")
    options = {"base": "image_folder", "val_size": 3, "image_size": 16, "keep_encoded": True}
    images = prepared(tmp_path, tmp_path / "out", **options).splits["train"].images
    assert (tmp_path / "out/train_images.bin").is_file()
    rows = np.array([4, 0, 5])
    parts = images.random_parts(rows, 7)
    assert parts.shape == (3, 3, 16, 16)
    threaded = open_prepared(tmp_path / "out", threads=3).splits["train"].images
    assert np.array_equal(threaded.random_parts(rows[::-1], 7)[::-1], parts)
    for position, row in enumerate(rows):
        assert np.array_equal(images.random_parts(np.array([row]), 7)[0], parts[position])
    assert not np.array_equal(images.random_parts(rows, 8), parts)
