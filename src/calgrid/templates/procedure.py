"""MyComponent: say here which equation of which paper this is."""

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses import Loss
from calgrid.procedures import Procedure
from calgrid.training.data import Batch
from calgrid.training.procedure import Model


@register(
    source="authors, title, year, equation",
    losses="any",  # "affine": labels are mixed; "stateless": the loss is called twice a step
    limits={"scale": "[0, inf)"},
)
class MyComponent(Procedure):
    """Training on images with noise."""

    scale: float = 0.1

    def forward_loss(self, model: Model, loss: Loss, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return logits (B, K) and the scalar loss of a training batch."""
        features = model.features(batch.images + self.scale * torch.randn_like(batch.images))
        logits = model.head(features)
        return logits, loss(logits, batch.labels, features=features, index=batch.index)
