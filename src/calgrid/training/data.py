"""Images of a split, batches by index, augmentation of whole batches on the device.

A split is completely on the device, or streamed: batches are read from the disk in the background.
Both give the same results.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional as F

from calgrid.backbones.base import Network
from calgrid.errors import DataError
from calgrid.parallel import ahead
from calgrid.storage.specs import Views

#: images (B, C, H, W) uint8 -> augmented ones, uint8 or float32 in [0, 255]
Operations = Callable[[torch.Tensor], torch.Tensor]
#: most pixels of images in a scoring batch: the feature maps of 128 images of 32x32 stay near a
#: processor's caches, those of 1,024 images of 64x64 fit into the memory of a GPU
PIXELS_AT_ONCE = {"cpu": 128 * 32**2, "cuda": 1024 * 64**2}
#: bytes of images that go to the device at once when a split is put there
PIECE_BYTES = 2**26
#: streamed batches that are read ahead
AHEAD = 3
#: images scored together, and the minimum for large images
EVALUATION_BATCH, LEAST_AT_ONCE = 1024, 8


@dataclass
class Batch:
    """One batch.

    images : (B, C, H, W) float32, normalised; empty if features of a frozen network replace them.
    labels : (B,) int64. index : (B,) int64, position in the split.
    features : (B, d) float32, precomputed penultimate features, or None.
    drawn : what a procedure has drawn for the step, by name.
    """

    images: torch.Tensor
    labels: torch.Tensor
    index: torch.Tensor
    features: torch.Tensor | None = None
    drawn: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def copied(self) -> "Batch":
        """Return the batch with copies of its tensors."""
        features = None if self.features is None else self.features.clone()
        drawn = {name: tensor.clone() for name, tensor in self.drawn.items()}
        return Batch(self.images.clone(), self.labels.clone(), self.index.clone(), features, drawn)

    def tensors(self) -> list[torch.Tensor]:
        """All tensors of the batch."""
        features = [] if self.features is None else [self.features]
        return [self.images, self.labels, self.index, *features, *self.drawn.values()]


class DeviceImages:
    """A split on the device.

    Parameters
    ----------
    images : (N, C, H, W) uint8, or an array-like.
    labels : (N,) integers.
    mean, std : per channel, of pixel values in [0, 1].
    crop_size : side of the square crop of each image: random in :meth:`batch`, centred in
        :meth:`batches`; None uses whole images.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device,
        channels_last: bool,
        crop_size: int | None = None,
    ) -> None:
        if crop_size is not None and crop_size > min(images.shape[-2:]):
            raise DataError(
                f"Images of {images.shape[-2]}x{images.shape[-1]} pixels are too small for the "
                f"protocol's crop_size {crop_size}; use larger ones or another protocol."
            )
        self.crop_size = crop_size
        self._sides = images.shape[-2:]
        self.labels = torch.tensor(np.asarray(labels, dtype=np.int64), device=device)
        self._hold(images)
        centre = torch.tensor(mean, dtype=torch.float32, device=device).view(1, -1, 1, 1)
        spread = torch.tensor(std, dtype=torch.float32, device=device).view(1, -1, 1, 1)
        self._scale = 1.0 / (255.0 * spread)
        self._offset = centre / spread
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format

    def _hold(self, images: np.ndarray) -> None:
        """Move all images to the device in pieces, without a full copy in host memory."""
        self._images = torch.empty(images.shape, dtype=torch.uint8, device=self.labels.device)
        step = max(1, PIECE_BYTES // math.prod(images.shape[1:]))
        for begin in range(0, len(images), step):
            piece = slice(begin, begin + step)
            self._images[piece] = torch.tensor(np.asarray(images[piece]))

    def _parts(self, parts: Sequence[slice]) -> Iterator[torch.Tensor]:
        """Yield the images of some parts of the split."""
        return (self._images[part] for part in parts)

    def _at(self, index: torch.Tensor) -> torch.Tensor:
        return self._images[index]

    def __len__(self) -> int:
        return len(self.labels)

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """Return images in [0, 255] as normalised float32, (x / 255 - mean) / std."""
        return (images.float() * self._scale - self._offset).contiguous(
            memory_format=self.memory_format
        )

    def batches(self, size: int, filled: bool = False) -> Iterator[Batch]:
        """All images in order, without augmentation; batches of large images are smaller than
        ``size``.

        With ``filled`` the last image is repeated on a GPU until the last batch is as large as the
        others, because each shape costs a search for the fastest convolutions; the caller ignores
        these rows. On the CPU, and if there is no other batch, nothing is added.
        """
        device = self.labels.device
        most = PIXELS_AT_ONCE[device.type] // math.prod(self._sides)
        size = min(size, max(most, LEAST_AT_ONCE))
        parts = [slice(begin, min(begin + size, len(self))) for begin in range(0, len(self), size)]
        for part, images in zip(parts, self._parts(parts), strict=True):
            index = torch.arange(part.start, part.stop, device=device)
            cut = centre_crop(images, self.crop_size)
            if filled and device.type != "cpu" and len(index) < size < len(self):
                rows = torch.arange(size, device=device).clamp(max=len(index) - 1)
                cut, index = cut[rows], index[rows]
            yield Batch(self.normalise(cut), self.labels[index], index)

    def batch(
        self, index: torch.Tensor, operations: Operations | None = None, **changes: Any
    ) -> Batch:
        """Batch of the images at ``index``, augmented by the options ``changes`` of
        :func:`augment`, and then by ``operations``.
        """
        images = augment(self._at(index), crop_size=self.crop_size, **changes)
        if operations is not None:
            images = operations(images)
        return Batch(self.normalise(images), self.labels[index], index)


class StreamedImages(DeviceImages):
    """A split that is read batch by batch, with the same results as :class:`DeviceImages`.

    On a GPU batches are copied through pinned memory, so that no step waits for the copy.
    """

    def _hold(self, images: np.ndarray) -> None:
        self._source: Any = images
        self._expected: deque[torch.Tensor] = deque()
        self._batches: Iterator[torch.Tensor] = iter(())
        self._parts_seed: int | None = None

    def expect(self, batches: Sequence[torch.Tensor], parts_seed: int | None = None) -> None:
        """Announce the index tensors of the next calls of :meth:`batch`, in order; calls must use
        the same objects.

        With ``parts_seed``, these calls give random parts of encoded images, see
        :meth:`calgrid.datasets.encoded.EncodedImages.random_parts`.
        """
        self._expected = deque(batches)
        self._parts_seed = parts_seed
        rows: list[np.ndarray] = []
        if batches:
            # one copy from a GPU for all batches
            on_host = torch.cat(list(batches)).cpu().split([len(batch) for batch in batches])
            rows = [index.numpy() for index in on_host]
        self._batches = ahead(self._augmented, rows, AHEAD)

    def _augmented(self, rows: np.ndarray) -> torch.Tensor:
        if self._parts_seed is None:
            return self._read(rows)
        return self._pinned(self._source.random_parts(rows, self._parts_seed))

    def _read(self, rows: slice | np.ndarray) -> torch.Tensor:
        return self._pinned(self._source[rows])

    def _pinned(self, pixels: np.ndarray) -> torch.Tensor:
        images = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))
        return images.pin_memory() if self.labels.device.type == "cuda" else images

    def _parts(self, parts: Sequence[slice]) -> Iterator[torch.Tensor]:
        for images in ahead(self._read, parts, AHEAD):
            yield images.to(self.labels.device, non_blocking=True)

    def _at(self, index: torch.Tensor) -> torch.Tensor:
        if self._expected and index is self._expected[0]:
            self._expected.popleft()
            images = next(self._batches)
        else:
            images = self._augmented(index.cpu().numpy())
        return images.to(self.labels.device, non_blocking=True)


class FeatureTable:
    """Precomputed features of a split, instead of its images.

    Parameters
    ----------
    model : network with a frozen body.
    split : the images, used without augmentation.
    """

    def __init__(self, model: Network, split: DeviceImages) -> None:
        model.eval()
        self.labels = split.labels
        batches = split.batches(EVALUATION_BATCH, filled=True)
        features = [model.features(batch.images) for batch in batches]
        self._features = torch.cat(features)[: len(split)]

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, size: int, filled: bool = False) -> Iterator[Batch]:
        """All samples in order; nothing is filled, as there is no convolution."""
        yield from map(self.batch, torch.arange(len(self), device=self.labels.device).split(size))

    def batch(self, index: torch.Tensor, **changes: Any) -> Batch:
        """Features of the samples at ``index``, without augmentation."""
        return Batch(self._features.new_empty(0), self.labels[index], index, self._features[index])


#: a split for the training loop: images, or features instead
Split = DeviceImages | FeatureTable


class HostRows:
    """Rows computed on a device in batches, collected in host memory.

    Copies from a GPU use pinned memory, and only :meth:`arrays` waits for them.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self._rows = rows
        self._device = device
        self._tensors: dict[str, torch.Tensor] = {}
        self._filled: dict[str, int] = {}

    def add(self, name: str, values: torch.Tensor) -> None:
        """Append rows (B, d) as float32 to the array ``name``; those beyond its end are ignored."""
        if name not in self._tensors:
            pinned = self._device.type == "cuda"
            self._tensors[name] = torch.empty((self._rows, values.shape[1]), pin_memory=pinned)
        begin = self._filled.get(name, 0)
        values = values[: self._rows - begin]
        self._filled[name] = begin + len(values)
        self._tensors[name][begin : begin + len(values)].copy_(values.float(), non_blocking=True)

    def arrays(self) -> dict[str, np.ndarray]:
        """All rows (N, d) by name."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return {name: tensor.numpy() for name, tensor in self._tensors.items()}


def check_finite(logits: np.ndarray, run: str) -> None:
    """Raise DataError if a network of a ``run`` computes logits that are not finite."""
    if not np.isfinite(logits).all():
        raise DataError(
            f"Run {run} has logits that are not finite; if it was trained here, lower the learning "
            "rate or clip gradients, else correct its file of weights."
        )


def centre_crop(images: torch.Tensor, size: int | None) -> torch.Tensor:
    """Return the central ``size`` x ``size`` pixels of images (..., H, W), all pixels for None."""
    if size is None:
        return images
    # rounding as in torchvision's CenterCrop
    top, left = (round((side - size) / 2) for side in images.shape[-2:])
    return images[..., top : top + size, left : left + size]


def augment(
    images: torch.Tensor,
    crop_padding: int = 0,
    flip: bool | torch.Tensor = False,
    padding_mode: Literal["zeros", "reflect"] = "zeros",
    rng: torch.Generator | None = None,
    crop_size: int | None = None,
) -> torch.Tensor:
    """Random crop after padding, and horizontal flip, of a whole batch.

    Parameters
    ----------
    images : (B, C, H, W), any dtype; padding comes before normalisation, so zero is black, as in
        torchvision.
    crop_padding : pixels on each side; 0 disables padding.
    flip : flip each image horizontally with probability 1/2, or those for which a tensor (B,) of
        bools says so.
    padding_mode : black pixels, or the image mirrored at its border pixels, which are not repeated.
    rng : on the device of the images.
    crop_size : side of the crop; None crops to the size before padding.
    """
    if not crop_padding and flip is False and crop_size is None:
        return images
    count, _, *sides = images.shape
    device = images.device
    height, width = sides if crop_size is None else (crop_size, crop_size)
    rows = torch.arange(height, device=device).expand(count, height)
    columns = torch.arange(width, device=device).expand(count, width)
    # largest offsets of the crop
    down = sides[0] + 2 * crop_padding - height
    across = sides[1] + 2 * crop_padding - width
    reflects = padding_mode == "reflect"
    if crop_padding and not reflects:
        images = F.pad(images, (crop_padding,) * 4)
    if down == across and down:
        offsets = torch.randint(0, down + 1, (2, count, 1), generator=rng, device=device)
        rows, columns = rows + offsets[0], columns + offsets[1]
    elif down or across:
        rows = rows + torch.randint(0, down + 1, (count, 1), generator=rng, device=device)
        columns = columns + torch.randint(0, across + 1, (count, 1), generator=rng, device=device)
    if flip is True:
        flip = torch.rand(count, generator=rng, device=device) < 0.5
    if flip is not False:
        columns = torch.where(flip.unsqueeze(1), columns.flip(1), columns)
    if reflects:
        rows = _reflected(rows - crop_padding, sides[0])
        columns = _reflected(columns - crop_padding, sides[1])
    sample = torch.arange(count, device=device).view(count, 1, 1)
    # a slice between index tensors puts the channels last: (B, H, W, C), already in channels_last
    # memory format
    return images[sample, :, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


def _reflected(index: torch.Tensor, side: int) -> torch.Tensor:
    """Return indices of an image, reflected at its border where they lie outside."""
    last = side - 1
    return last - (last - index.abs()).abs()


def views(images: torch.Tensor, kind: Views) -> list[tuple[float, torch.Tensor]]:
    """Views of images (B, C, H, W) for a prediction, each with its weight; the weights sum to 1.

    ``mirror_translate`` are the six views of legacy/airbench94.py of
    github.com/KellerJordan/cifar10-airbench: the image, and the image translated by one pixel up
    and to the left, and down and to the right, with reflected borders, each with its mirror image.
    """
    if kind == "one":
        return [(1.0, images)]
    shifted = [(1.0, images)]
    if kind == "mirror_translate":
        padded = F.pad(images, (1,) * 4, mode="reflect")
        shifted = [
            (0.5, images),
            (0.25, padded[..., :-2, :-2]),
            (0.25, padded[..., 2:, 2:]),
        ]
    return [(weight / 2, image) for weight, each in shifted for image in (each, each.flip(-1))]
