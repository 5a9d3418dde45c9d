"""The passes of a network in training as a CUDA graph: one launch in the place of hundreds.

Small networks leave a GPU idle while Python launches their operations one by one. A graph launches
all of them at once, and computes what they compute. What surrounds the network in a step, such as
augmentation, loss and optimiser, stays as it is.
"""

from typing import Any

import torch
from torch import Tensor, nn

from calgrid.backbones.base import Backbone


class Body(nn.Module):
    """All of a backbone but its head."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.layers = nn.ModuleList([backbone.stages, backbone.pool])
        self._features = backbone.features

    def forward(self, x: Tensor) -> Tensor:
        """Return features (N, d) of images (N, C, H, W)."""
        return self._features(x)


class GraphedFeatures:
    """``features`` of a backbone, whose forward and backward pass are CUDA graphs for one shape of
    training batches; others, as the last one of an epoch, and evaluation are computed without.

    A step may call it once, as the next call overwrites what the backward pass reads.

    Parameters
    ----------
    backbone : on the GPU; all that its training changes is as before afterwards.
    images : a training batch (N, C, H, W).
    autocast : compute in bfloat16.

    Raises
    ------
    RuntimeError : of PyTorch, for operations that a graph cannot hold.
    """

    def __init__(self, backbone: Backbone, images: Tensor, autocast: bool) -> None:
        self._backbone, self._plain, self._shape = backbone, backbone.features, images.shape
        buffers = [buffer.clone() for buffer in backbone.buffers()]
        backbone.train()
        try:
            # casts of weights that are kept between calls would be outside of the graph
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast, cache_enabled=False):
                self._graphed: Any = torch.cuda.make_graphed_callables(Body(backbone), (images,))
        finally:
            # the passes that warm up change running statistics
            with torch.no_grad():
                for buffer, before in zip(backbone.buffers(), buffers, strict=True):
                    buffer.copy_(before)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the features (N, d) of images (N, C, H, W)."""
        if self._backbone.training and images.shape == self._shape:
            features: Tensor = self._graphed(images)
            # the next replay overwrites what this one has returned
            return features.clone()
        return self._plain(images)
