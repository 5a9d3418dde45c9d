"""Mixtures of a batch with a permutation of itself: random weights, partners, losses of several
terms, and the procedures that train on one mixture of each image.

All random numbers come from the global CPU generator, so that all devices mix the same pairs.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor
from torch.distributions import Gamma

from calgrid.backbones.base import Backbone
from calgrid.losses.base import Loss
from calgrid.training.data import Batch
from calgrid.training.procedure import Procedure


def draw_beta(alpha: float, count: int) -> Tensor:
    """Independent draws (count,) in float64 of Beta(alpha, alpha), alpha > 0.

    With G ~ Gamma(alpha + 1) and u uniform, ``log G + log(u) / alpha`` is the logarithm of a
    Gamma(alpha) variable; two of them give a draw. The plain quotient of Gamma variables underflows
    to 0 / 0 for alpha below about 0.01.
    """
    shape = (2, count)
    concentration = torch.tensor(alpha + 1.0, dtype=torch.float64)
    uniform = 1.0 - torch.rand(shape, dtype=torch.float64)  # (0, 1]
    logs = Gamma(concentration, 1.0).sample(shape).log() + uniform.log() / alpha
    return torch.sigmoid(logs[0] - logs[1])


def draw_partners(batch: Batch) -> Tensor:
    """Random permutation (B,): the partner of each sample of the batch."""
    # else a GPU would finish all queued work before the copy
    return torch.randperm(len(batch)).to(batch.labels.device, non_blocking=True)


def mix(first: Tensor, second: Tensor, weight: float) -> Tensor:
    """Return ``weight first + (1 - weight) second``."""
    return weight * first + (1.0 - weight) * second


def weights_of_both(weight: float, batch: Batch) -> Tensor:
    """Weights (2,) of both labels of a mixture, on the device of the batch."""
    weights = torch.tensor([weight, 1.0 - weight])
    return weights.to(batch.labels.device, non_blocking=True)


def weighted_loss(
    loss: Loss,
    terms: Iterable[tuple[float | Tensor, Tensor, Tensor]],
    features: Tensor | None = None,
    index: Tensor | None = None,
) -> Tensor:
    """Return ``sum_j w_j loss(z_j, y_j)``; the loss's terms for the history are summed alike.

    Parameters
    ----------
    terms : weight, logits (B, K) and labels (B,) of each term.
    features, index : given to every call.
    """
    total = torch.zeros(())
    parts: dict[str, Tensor] = {}
    for weight, logits, labels in terms:
        total = total + weight * loss(logits, labels, features=features, index=index)
        for name, value in loss.last_terms.items():
            parts[name] = parts.get(name, torch.zeros_like(value)) + weight * value
    loss.last_terms = parts
    return total


class MixedPairs(Procedure):
    """Training on mixtures of images with those of their partners, and on the losses of both labels
    in the same proportion.
    """

    @abstractmethod
    def mixture(self, batch: Batch) -> tuple[Tensor, float, Tensor] | None:
        """Return mixed images (B, C, H, W), the weight of the batch's own labels, and the partners
        (B,); None for a batch of plain training.
        """
        raise NotImplementedError

    def draw(self, batch: Batch) -> Batch:
        """Return the mixed images with the ``weights`` (2,) of both labels and the
        ``other_labels`` (B,).
        """
        images, weight, other_labels = batch.images, 1.0, batch.labels
        mixture = self.mixture(batch)
        if mixture is not None:
            images, weight, partners = mixture
            other_labels = batch.labels[partners]
        drawn = {"weights": weights_of_both(weight, batch), "other_labels": other_labels}
        return replace(batch, images=images, drawn=drawn)

    def forward_loss(self, model: Backbone, loss: Loss, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return logits (B, K) of the mixed images and the two-term loss."""
        features = model.features(batch.images)
        logits = model.head(features)
        own, other = batch.drawn["weights"]
        terms = [(own, logits, batch.labels), (other, logits, batch.drawn["other_labels"])]
        return logits, weighted_loss(loss, terms, features, batch.index)

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        """Total weight (B,) of the labels that equal the arg max."""
        own, other = batch.drawn["weights"]
        predicted = logits.argmax(dim=1)
        return own * predicted.eq(batch.labels) + other * predicted.eq(batch.drawn["other_labels"])
