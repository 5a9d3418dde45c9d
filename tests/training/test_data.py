"""Augmentation of whole batches equals what it says for each single image."""

import numpy as np
import pytest
import torch
from tests.datasets.pictures import encoded as png
from torch.nn import functional as F

from calgrid.datasets.encoded import Encoded, EncodedImages, Scaling
from calgrid.errors import DataError
from calgrid.training.data import AHEAD, DeviceImages, HostRows, StreamedImages, augment, views
from calgrid.training.seeds import generator, stream

ON_A_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture
def images():
    return torch.arange(6 * 3 * 5 * 5, dtype=torch.uint8).reshape(6, 3, 5, 5)


def crops(image, padding):
    padded = F.pad(image, (padding,) * 4)
    size = image.shape[-1]
    positions = range(2 * padding + 1)
    return [padded[:, y : y + size, x : x + size] for y in positions for x in positions]


def test_reflected_padding_is_that_of_torch(images):
    result = augment(images, 3, False, "reflect", generator("cpu", 1, "crop"))
    for image, cropped in zip(images, result, strict=True):
        padded = F.pad(image.float(), (3,) * 4, mode="reflect").to(torch.uint8)
        windows = padded.unfold(1, 5, 1).unfold(2, 5, 1).permute(1, 2, 0, 3, 4).flatten(0, 1)
        assert any(torch.equal(cropped, window) for window in windows)
    assert not torch.equal(result, images)


def test_six_views_are_the_image_translated_and_mirrored(images):
    for kind, count in {"one": 1, "mirror": 2, "mirror_translate": 6}.items():
        weights, seen = zip(*views(images.float(), kind), strict=True)
        assert len(seen) == count
        assert sum(weights) == 1
        assert torch.equal(seen[0], images.float())
        assert torch.equal(sum(seen), sum(seen).flip(-1)) == (count > 1)
    # a pixel up and to the left, and its opposite, each a quarter of the weight
    assert torch.equal(seen[2][..., 1:, 1:], images[..., :-1, :-1].float())
    assert torch.equal(seen[4][..., :-1, :-1], images[..., 1:, 1:].float())
    assert weights == (0.25, 0.25, 0.125, 0.125, 0.125, 0.125)


@pytest.mark.parametrize("flip", [False, True])
def test_each_crop_is_one_of_the_crops_of_its_own_image(images, flip):
    result = augment(images, 2, flip, rng=generator("cpu", 1, "crop"))
    mirrored = []
    for image, cropped in zip(images, result, strict=True):
        plain = any(torch.equal(cropped, candidate) for candidate in crops(image, 2))
        assert plain or any(torch.equal(cropped.flip(-1), each) for each in crops(image, 2))
        mirrored.append(not plain)
    assert any(mirrored) == flip
    assert not all(mirrored)
    assert torch.equal(augment(images, 0, False, crop_size=5), images)


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("shape", [(5, 5), (5, 7)])
def test_a_smaller_crop_is_taken_from_anywhere_in_its_own_image(shape, padding):
    height, width = shape
    one = torch.arange(1, 1 + height * width, dtype=torch.uint8).reshape(1, 1, height, width)
    result = augment(
        one.expand(4000, -1, -1, -1), padding, False, rng=generator("cpu", 1, "crop"), crop_size=4
    )
    padded = F.pad(one[0, 0], (padding,) * 4)
    tops, lefts = (side + 2 * padding - 4 + 1 for side in shape)
    expected = {
        tuple(padded[y : y + 4, x : x + 4].flatten().tolist())
        for y in range(tops)
        for x in range(lefts)
    }
    assert {tuple(crop.flatten().tolist()) for crop in result} == expected


def cropped_split(height, width, size):
    pixels = np.arange(2 * 3 * height * width, dtype=np.uint8).reshape(2, 3, height, width)
    split = DeviceImages(
        pixels, np.arange(2), (0.0,) * 3, (1 / 255,) * 3, torch.device("cpu"), False, size
    )
    return pixels, split


@pytest.mark.parametrize(
    ("height", "width", "top", "left"),
    # halves are rounded to even, as in torchvision
    [(8, 8, 2, 2), (7, 8, 2, 2), (5, 4, 0, 0), (9, 4, 2, 0)],
)
def test_images_that_are_scored_are_cut_in_the_middle(height, width, top, left):
    pixels, split = cropped_split(height, width, 4)
    (batch,) = split.batches(10)
    assert batch.images.numpy() == pytest.approx(
        pixels[:, :, top : top + 4, left : left + 4], abs=1e-4
    )


def test_images_smaller_than_the_crop_are_refused(refuses):
    with refuses(DataError, "Images of 8x4 pixels are too small for the protocol's crop_size 5"):
        cropped_split(8, 4, 5)


def test_all_offsets_and_both_orientations_occur():
    one = torch.arange(25, dtype=torch.uint8).reshape(1, 1, 5, 5)
    many = augment(one.expand(4000, -1, -1, -1), 1, True, rng=generator("cpu", 0, "all"))
    distinct, counts = torch.unique(many.flatten(1), dim=0, return_counts=True)
    assert len(distinct) == 9 * 2
    assert counts.min() > 0.6 * 4000 / 18


@pytest.mark.parametrize("channels_last", [True, False])
def test_normalisation_is_pixel_over_255_minus_mean_over_std(channels_last):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 5, 5), dtype=np.uint8)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    split = DeviceImages(pixels, np.arange(4), mean, std, torch.device("cpu"), channels_last)
    batch = split.batch(torch.tensor([2, 0]))
    by_channel = (np.reshape(each, (1, 3, 1, 1)) for each in (mean, std))
    expected = (pixels[[2, 0]] / 255 - next(by_channel)) / next(by_channel)
    assert batch.images.numpy() == pytest.approx(expected, abs=1e-6)
    assert batch.labels.tolist() == [2, 0]
    assert batch.images.is_contiguous(
        memory_format=torch.channels_last if channels_last else torch.contiguous_format
    )


def test_padding_is_black_before_normalisation():
    white = np.full((1, 3, 4, 4), 255, dtype=np.uint8)
    split = DeviceImages(white, np.zeros(1), (0.5,) * 3, (0.5,) * 3, torch.device("cpu"), False)
    padded = split.batch(torch.zeros(20).long(), crop_padding=2, rng=generator("cpu", 0))
    assert padded.images.unique().tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("encoded", [False, True])
def test_streamed_images_are_read_a_few_batches_ahead_and_equal_those_on_the_device(encoded):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 3, 9, 9), dtype=np.uint8)
    files = [png(image.transpose(1, 2, 0)) for image in images]
    reads = []

    class Counted:
        shape = images.shape

        def __getitem__(self, rows):
            reads.append(len(np.arange(40)[rows]))
            return source[rows]

    offsets = np.cumsum([0, *map(len, files)])
    pictures = Encoded.concatenated(
        np.frombuffer(b"".join(files), np.uint8), offsets, lambda row: f"Image {row} of here"
    )
    source = (
        EncodedImages(pictures, images.shape, Scaling(9, None), threads=2) if encoded else images
    )
    given = np.arange(40), (0.5,) * 3, (0.25,) * 3, torch.device("cpu"), True, 7
    resident, streamed = DeviceImages(images, *given), StreamedImages(Counted(), *given)
    pairs = list(zip(resident.batches(16), streamed.batches(16), strict=True))
    order = torch.randperm(40, generator=generator("cpu", 1)).split(4)
    reads.clear()
    streamed.expect(order)
    for number, index in enumerate((*order, torch.arange(5))):  # the last one comes unexpectedly
        pairs.append(
            tuple(
                split.batch(index, crop_padding=1, flip=True, rng=generator("cpu", number))
                for split in (resident, streamed)
            )
        )
        assert sum(reads) <= 4 * (number + 1 + AHEAD) + 5
    for left, right in pairs:
        assert torch.equal(left.images, right.images)
        assert torch.equal(left.labels, right.labels)
        assert torch.equal(left.index, right.index)
    assert sum(reads) == 45


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
def test_streamed_batches_and_collected_rows_survive_a_device_that_lags_behind(device):
    """On a GPU, memory that the program has left must not be used again before its copy ended."""
    rng, where = np.random.default_rng(0), torch.device(device)
    pixels = rng.integers(0, 256, (512, 3, 8, 8), dtype=np.uint8)
    split = StreamedImages(pixels, np.zeros(512), (0.0,) * 3, (1.0,) * 3, where, True)
    order = rng.permutation(512)
    batches = torch.from_numpy(order).to(where).split(8)
    split.expect(batches)
    rows, work = HostRows(512, where), torch.eye(2048 if device == "cuda" else 8, device=where)
    for index in batches:
        work = work @ work @ work @ work
        rows.add("pixels", (255 * split.batch(index).images).round().flatten(1))
    assert np.array_equal(rows.arrays()["pixels"], pixels[order].reshape(512, -1))


@pytest.mark.parametrize(
    ("size", "most", "lengths"),
    [
        *((8, 1024, [80]), (32, 1024, [80]), (64, 1024, [32, 32, 16]), (1024, 1024, [8] * 10)),
        (8, 32, [32, 32, 16]),
    ],
)
def test_batches_have_every_image_once_and_are_smaller_for_large_images(size, most, lengths):
    split = object.__new__(DeviceImages)
    split._images, split.labels = torch.empty(80, 3, size, size, device="meta"), torch.arange(80)
    split._sides, split.crop_size, split.normalise = (size, size), None, lambda images: images
    batches = list(split.batches(most))
    assert [len(batch) for batch in batches] == lengths
    assert torch.cat([batch.index for batch in batches]).tolist() == list(range(80))


def test_sub_streams_of_a_seed_are_distinct_and_stable():
    names = [(), ("order",), ("order", 1), ("order", 11), ("step", 1, 1), ("step", 11)]
    seeds = {stream(seed, *name) for seed in (1, 2, 12) for name in names}
    assert len(seeds) == 18
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert stream(1, "order", 0) == stream(1, "order", 0)
