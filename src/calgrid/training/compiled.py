"""The body of a network in training, compiled by ``torch.compile``: batch normalisation, ReLU and
sums become one operation where they follow one another.

Results equal the layers' up to rounding. Compiled code is kept in PyTorch's own cache
(``TORCHINDUCTOR_CACHE_DIR``, by default a folder for temporary files), for all runs on a machine.
"""

import time

import torch
from torch import Tensor

from calgrid.backbones.base import Backbone


class CompiledFeatures:
    """``features`` of a backbone, compiled for whole training batches, one or several at once; the
    smaller last one of an epoch and evaluation are computed by the layers themselves.

    Parameters
    ----------
    backbone : all that its training changes is as before afterwards.
    images : a training batch (N, C, H, W).
    autocast : compute in bfloat16.

    Attributes
    ----------
    seconds : that the compiler took.

    Raises
    ------
    RuntimeError : of PyTorch, without a compiler or for what it cannot compile.
    """

    def __init__(self, backbone: Backbone, images: Tensor, autocast: bool) -> None:
        begin = time.monotonic()
        self._backbone, self._plain, self._size = backbone, backbone.features, len(images)
        # masks of dropout are those of the layers
        self._compiled = torch.compile(
            backbone.features, dynamic=False, options={"fallback_random": True}
        )
        buffers = [buffer.clone() for buffer in backbone.buffers()]
        trained = [each for each in backbone.parameters() if each.requires_grad]
        backbone.train()
        try:
            with torch.autocast(images.device.type, torch.bfloat16, enabled=autocast):
                features = self._compiled(images)
            torch.autograd.grad(features.sum(), trained, allow_unused=True)
        finally:
            # the pass changes running statistics
            with torch.no_grad():
                for buffer, before in zip(backbone.buffers(), buffers, strict=True):
                    buffer.copy_(before)
        self.seconds = time.monotonic() - begin

    def __call__(self, images: Tensor) -> Tensor:
        """Return the features (N, d) of images (N, C, H, W)."""
        if self._backbone.training and len(images) % self._size == 0:
            features: Tensor = self._compiled(images)
            return features
        return self._plain(images)
