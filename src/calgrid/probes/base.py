"""Base class of probes, and their input: a trained network and the test images."""

import functools
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calgrid.backbones.base import Network
from calgrid.components.options import Options
from calgrid.components.registry import set_options
from calgrid.datasets import Prepared
from calgrid.procedures.masked_linear import MaskedLinear
from calgrid.procedures.second_stage import FrozenFeatures
from calgrid.training.data import (
    EVALUATION_BATCH,
    Batch,
    DeviceImages,
    HostRows,
    check_finite,
)
from calgrid.training.procedure import Procedure

#: images on the device at once, because a test split may not fit
CHUNK = 16 * EVALUATION_BATCH
Array = NDArray[np.float64]


class Layer(NamedTuple):
    """A linear layer: weight (K, d), and bias (K,) or None."""

    weight: Tensor
    bias: Tensor | None


class Outputs(NamedTuple):
    """Features (N, d) and logits (N, K) of the test images, float32, in their order."""

    features: NDArray[np.float32]
    logits: NDArray[np.float32]


class Subject:
    """A trained network and the test split of its data set.

    Parameters
    ----------
    network, procedure : those of the run, with the weights of one checkpoint, on ``device``.
    prepared : the data set.
    channels_last, crop_size : settings of the protocol.
    run : name of the run, for messages.
    """

    def __init__(
        self,
        network: Network,
        procedure: Procedure[Any],
        prepared: Prepared,
        device: torch.device,
        *,
        channels_last: bool = False,
        crop_size: int | None = None,
        run: str = "",
    ) -> None:
        self.network, self.procedure = network.eval(), procedure
        self.prepared, self.device = prepared, device
        self.channels_last, self.crop_size, self.run = channels_last, crop_size, run
        for parameter in network.parameters():
            parameter.requires_grad_(False)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.prepared.n_classes

    @functools.cached_property
    def labels(self) -> NDArray[np.int64]:
        """Classes of the test images, (N,)."""
        return np.asarray(self.prepared.splits["test"].labels, dtype=np.int64)

    def images(self, rows: NDArray[np.intp]) -> DeviceImages:
        """Test images at ``rows``, in this order, on the device."""
        return DeviceImages(
            np.ascontiguousarray(self.prepared.splits["test"].images[rows]),
            self.labels[rows],
            *self.prepared.normalisation,
            self.device,
            self.channels_last,
            self.crop_size,
        )

    def logits(self, images: Tensor, index: Tensor) -> Tensor:
        """Logits (B, K) in float32 of normalised images (B, C, H, W), differentiable with respect
        to the images.

        Parameters
        ----------
        index : (B,) positions of the images, which determine the noise of random predictions.
        """
        # frozen features have no gradient
        features = (
            self.network.body.features(images) if isinstance(self.network, FrozenFeatures) else None
        )
        batch = Batch(images, torch.zeros_like(index), index, features)
        return self.procedure.predict(self.network, batch)[0].float()

    @functools.cached_property
    def outputs(self) -> Outputs:
        """Features and logits of all test images.

        Raises
        ------
        DataError : logits are not finite.
        """
        found = HostRows(len(self.labels), self.device)
        with torch.no_grad():
            for begin in range(0, len(self.labels), CHUNK):
                rows = np.arange(begin, min(begin + CHUNK, len(self.labels)))
                for batch in self.images(rows).batches(EVALUATION_BATCH, filled=True):
                    placed = replace(batch, index=batch.index + begin)
                    logits, features = self.procedure.predict(self.network, placed)
                    found.add("logits", logits)
                    found.add("features", features)
        result = Outputs(**found.arrays())
        check_finite(result.logits, self.run)
        return result

    def last_layer(self) -> Layer | None:
        """Last linear layer, with the mask of its last epoch if it has one; None if there is none.

        The head of a second stage may have layers before it, whose output it reads instead of the
        features. For a network with two heads, such as BalCAL's, it is the linear one.
        """
        head = getattr(getattr(self.network, "backbone", self.network), "head", None)
        last: nn.Linear | None = None
        for module in () if head is None else head.modules():
            if isinstance(module, nn.Linear):
                last = module
        if last is None or last.out_features != self.num_classes:
            return None
        weight = last.effective() if isinstance(last, MaskedLinear) else last.weight
        return Layer(weight.detach(), None if last.bias is None else last.bias.detach())


class Probe:
    """Base class of probes."""

    registered: ClassVar[Options] = {}

    def __init__(self, **options: Any) -> None:
        set_options(self, options)

    @abstractmethod
    def measure(self, subject: Subject) -> pd.DataFrame:
        """Return the measurements as a tidy table with all columns; the same network gives the same
        table.

        Raises
        ------
        ConfigError : an option is invalid for the data set.
        """
        raise NotImplementedError


def log_softmax(logits: NDArray[np.float32]) -> Array:
    """Logarithms of the softmax (N, K) in double precision."""
    return torch.from_numpy(logits.astype(np.float64)).log_softmax(dim=1).numpy()
