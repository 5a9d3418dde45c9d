"""A network that a study trained, for new images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calgrid.datasets import open_prepared
from calgrid.datasets.encoded import Scaling, decode
from calgrid.errors import DataError, unknown_id
from calgrid.integrations.torch import is_recorded
from calgrid.procedures.network import tested_networks
from calgrid.report.run import Run
from calgrid.storage.checkpoint import load_checkpoint
from calgrid.storage.records import ID_LENGTH, MODEL, Facts, RunKey
from calgrid.training.data import Batch, centre_crop

#: floats of resized images leave [0, 1] by less than this
OVERSHOOT = 0.5
#: pictures that :meth:`TrainedNetwork.predict` holds at once
BLOCK = 256


class TrainedNetwork(nn.Module):
    """The network of a run with its normalisation: images to the logits that the study has.

    Images have the size of the data set's; :meth:`read` and :meth:`predict` take image files,
    scaled and cropped as in the study. The module is in evaluation mode, normalises as in training,
    computes one view of each image in float32, and can be joined to a calibrator by
    :class:`~calgrid.integrations.torch.CalibratedModule`. The noise of ``vtst`` is that of the
    first images of a split.

    Parameters
    ----------
    run : :meth:`calgrid.report.results.Results.run`. The folders ``runs`` and ``data`` must be
        beside the study.
    checkpoint : by default the first of those with logits.

    Attributes
    ----------
    classes : names of the classes in the order of the logits; None if the data set has no names.
    image_shape : channels, height and width of the images that it takes.

    Raises
    ------
    DataError : the run was not trained here, or its images were removed.
    StateError : the network is damaged.
    ConfigError : unknown checkpoint.
    """

    def __init__(self, run: Run, checkpoint: str | None = None) -> None:
        super().__init__()
        if run.trained is None:
            raise DataError("A run of logits that were made elsewhere has no network; use yours.")
        states, description = load_checkpoint(run.trained / MODEL)
        spec = description["spec"]
        chosen = checkpoint or run.checkpoints[0]
        if f"{chosen}.model" not in states:
            known = [name.removesuffix(".model") for name in states if name.endswith(".model")]
            raise unknown_id("checkpoint", chosen, known)
        results = run.trained.parents[len(RunKey._fields) + 1]
        folder = f"{spec['key']['dataset']}-{spec['data'][:ID_LENGTH]}"
        prepared = open_prepared(results / "data" / folder)
        self.classes: list[str] | None = prepared.manifest.get("classes")
        self.image_shape: tuple[int, ...] = tuple(prepared.manifest["image_shape"])
        self.scaling = scaling_of(prepared.manifest)
        self.crop_size: int | None = spec["protocol"]["crop_size"]
        cpu = torch.device("cpu")
        ((_, self.network, self.procedure),) = tested_networks(
            states, spec, [chosen], prepared.n_classes, cpu
        )
        mean, std = (torch.tensor(each).reshape(1, -1, 1, 1) for each in prepared.normalisation)
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K) of images (N, C, H, W), uint8 or floats in [0, 1].

        Raises
        ------
        DataError : images of another size or type, or floats far outside [0, 1].
        """
        if not is_recorded():
            self._check(images)
        # an error, in a traced network too, for another number of pixels
        images = images.reshape(images.shape[0], *self.image_shape)
        pixels = images if images.is_floating_point() else images.float() / 255
        pixels = centre_crop(pixels, self.crop_size)
        index = torch.arange(pixels.shape[0], device=pixels.device)
        batch = Batch((pixels - self.mean) / self.std, torch.zeros_like(index), index)
        logits: Any = self.procedure.predict(self.network, batch)[0]
        return logits

    def read(self, paths: Sequence[str | Path]) -> Tensor:
        """Return the images of picture files, uint8 (N, C, H, W), as the study reads them: RGB,
        scaled and cropped if its data set is.

        Raises
        ------
        DataError : a file cannot be read or decoded, or has another size and is not scaled.
        """
        images, scaling = np.empty((len(paths), *self.image_shape), np.uint8), self.scaling
        for position, path in enumerate(paths):
            try:
                content = Path(path).read_bytes()
            except OSError as error:
                raise DataError(
                    f"{path} cannot be read ({error.strerror}); correct the path."
                ) from None
            image = decode(
                content,
                scaling.size,
                scaling.resize,
                str(path),
                interpolation=scaling.interpolation,
            )
            if image.shape != self.image_shape:
                sizes = [f"{shape[1]}x{shape[2]}" for shape in (image.shape, self.image_shape)]
                raise DataError(
                    f"{path} has {sizes[0]} pixels, but the network was trained on images of "
                    f"{sizes[1]}; scale it as those were."
                )
            images[position] = image
        return torch.from_numpy(images)

    def predict(self, paths: Sequence[str | Path]) -> Tensor:
        """Return logits (N, K) of picture files (:meth:`read`), on the device of the network."""
        if not paths:
            raise DataError("There are no pictures; give the paths of one or more.")
        logits = []
        with torch.no_grad():
            for start in range(0, len(paths), BLOCK):
                images = self.read(paths[start : start + BLOCK])
                logits.append(self(images.to(self.mean.device)))
        return torch.cat(logits)

    def _check(self, images: Tensor) -> None:
        """Raise DataError for images of another size, type or range."""
        if tuple(images.shape[1:]) != self.image_shape or images.ndim != 4:
            raise DataError(
                f"images have the shape {tuple(images.shape)}, but the network was trained on "
                f"(N, {', '.join(map(str, self.image_shape))}); scale them as those of the data "
                "set, or read files of pictures with read(paths)."
            )
        if not images.is_floating_point():
            if images.dtype != torch.uint8:
                raise DataError(f"images are {images.dtype}; give uint8, or floats in [0, 1].")
            return
        if not images.numel():
            return
        least, most = images.min().item(), images.max().item()
        # false for NaN, too
        if not (least >= -OVERSHOOT and most <= 1 + OVERSHOOT):
            raise DataError(
                f"images are floats from {least:.3g} to {most:.3g} instead of 0 to 1; divide "
                "those of 0 to 255 by 255, or give them as uint8, and do not normalise them."
            )


def scaling_of(manifest: Facts) -> Scaling:
    """How the pictures of a prepared data set were scaled."""
    encoded = manifest["splits"]["test"]["images"].get("scaling")
    if encoded is not None:
        return Scaling(**encoded)
    options = manifest.get("options", {})
    return Scaling(options.get("image_size"), options.get("resize"))
