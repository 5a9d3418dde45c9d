"""A network that a study trained, for new images."""

from typing import Any

import torch
from torch import Tensor, nn

from calgrid.datasets import open_prepared
from calgrid.errors import DataError, unknown_id
from calgrid.integrations.torch import is_recorded
from calgrid.procedures.network import tested_networks
from calgrid.reporting.run import Run
from calgrid.storage.checkpoint import load_checkpoint
from calgrid.storage.layout import Layout, RunKey
from calgrid.storage.records import MODEL
from calgrid.training.data import Batch, centre_crop

#: floats of resized images leave [0, 1] by less than this
OVERSHOOT = 0.5


class TrainedNetwork(nn.Module):
    """The network of a run with its normalisation: images to the logits that the study has.

    Images are those of the data set: for folders of pictures, RGB of its ``image_size``. The module
    is in evaluation mode, normalises as in training, computes one view of each image in float32,
    and can be joined to a calibrator by :class:`~calgrid.integrations.torch.CalibratedModule`. The
    noise of ``vtst`` is that of the first images of a split.

    Parameters
    ----------
    run : :meth:`calgrid.reporting.results.Results.run`. The folders ``runs`` and ``data`` must be
        beside the study.
    checkpoint : by default the first of those with logits.

    Attributes
    ----------
    classes : names of the classes in the order of the logits; None if the data set has no names.

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
        layout = Layout(str(results), study="")
        prepared = open_prepared(layout.data(spec["key"]["dataset"], spec["data"]))
        self.classes: list[str] | None = prepared.manifest.get("classes")
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
        DataError : floats are far outside [0, 1].
        """
        if images.is_floating_point() and images.numel() and not is_recorded():
            least, most = images.min().item(), images.max().item()
            if least < -OVERSHOOT or most > 1 + OVERSHOOT:
                raise DataError(
                    f"images are floats from {least:.3g} to {most:.3g} instead of 0 to 1; divide "
                    "those of 0 to 255 by 255, or give them as uint8, and do not normalise them."
                )
        pixels = images if images.is_floating_point() else images.float() / 255
        pixels = centre_crop(pixels, self.crop_size)
        index = torch.arange(pixels.shape[0], device=pixels.device)
        batch = Batch((pixels - self.mean) / self.std, torch.zeros_like(index), index)
        logits: Any = self.procedure.predict(self.network, batch)[0]
        return logits
