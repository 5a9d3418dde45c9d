"""V-TST, variational two-stage training: a stochastic head on frozen features.

Jordahn & Olmos, Decoupling Feature Extraction and Classification Layers for Calibrated Neural
Networks, ICML 2024 (official code MJordahn/Decoupled-Layers-for-Calibrated-NNs,
``src/models/VTST.py``).
"""

import math
from types import MappingProxyType
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calgrid.components.registry import register
from calgrid.losses.base import Loss
from calgrid.procedures.second_stage import FACTS, FrozenFeatures, SecondStage
from calgrid.training.data import Batch
from calgrid.training.procedure import Training
from calgrid.training.seeds import generator

#: images per draw of noise
NOISE_ROWS = 64


class VariationalHead(nn.Module):
    """Maps features h (N, d) to a Gaussian of Z independent latents, and its samples to logits by a
    linear layer.
    """

    def __init__(self, num_features: int, width: int, num_classes: int) -> None:
        super().__init__()
        self.mean = _latent_network(num_features, width)
        self.spread = _latent_network(num_features, width)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, each (N, Z), of the latents; variances are at most 1."""
        return self.mean(features).float(), F.logsigmoid(self.spread(features).float())

    def classify(self, mean: Tensor, log_variance: Tensor, noise: Tensor) -> Tensor:
        """Return logits (N, K) of latents ``mean + sigma noise``, noise (N, Z) standard normal."""
        return self.classifier(mean + (0.5 * log_variance).exp() * noise)


def _latent_network(num_features: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(num_features, 3 * width), nn.ReLU(), nn.Linear(3 * width, width))


def kl_to_standard_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Mean over samples and latents, each (N, Z), of ``1/2 (mu^2 + sigma^2 - 1 - log sigma^2)``."""
    return 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).mean()


@register(
    source="Jordahn & Olmos, ICML 2024; MJordahn/Decoupled-Layers-for-Calibrated-NNs "
    "src/models/VTST.py",
    **FACTS,
    dataset_defaults={"cifar100": {"hidden": 512}, "tiny_imagenet": {"hidden": 512}},
    averaged_weights=True,
    limits={"hidden": "[1, 16384]", "samples": "[1, 10000]", "kl_weight": "[0, inf)"},
)
class VariationalTwoStageTraining(SecondStage):
    """New variational head on the frozen features of a first stage, trained with cross-entropy and
    a KL term.

    Two parallel networks Linear(d, 3Z) - ReLU - Linear(3Z, Z) give mu and s, with ``log sigma^2 =
    logsigmoid(s)``. A latent ``u = mu + sigma eps``, ``eps ~ N(0, I)``, goes through Linear(Z, K).
    Training draws one latent per sample::

        L = CE(z(u), y) + w / Z KL(N(mu, diag sigma^2) || N(0, I))

    with the KL term divided by Z and w = 1 as in the official code (its argument ``beta`` is not
    used). Prediction draws M latents and returns ``log 1/M sum_m softmax(z(u_m))``, which post-hoc
    methods use as logits. The noise is drawn on the CPU, seeded by the run's seed and the position
    of each image in its split, so that it does not depend on device and batch size.

    Differences are those of ``tst``: SGD at the second stage's constant rate, and a body in
    evaluation mode.

    Parameters
    ----------
    hidden : Z; 128 (CIFAR-10) or 512 (CIFAR-100, Tiny-ImageNet) in the reproduction scripts with M
        = 10.
    samples : M, at least 1.
    kl_weight : w, at least 0.
    cached : compute the training features once, without augmentation (a faster variant).
    """

    saved = MappingProxyType({"seed": "_seed"})

    hidden: int = 128
    samples: int = 10
    kl_weight: float = 1.0
    _seed = 0

    def build_head(self, num_features: int, num_classes: int) -> nn.Module:
        """Variational head of features (N, d)."""
        return VariationalHead(num_features, self.hidden, num_classes)

    def begin_training(self, model: FrozenFeatures, training: Training) -> None:
        """Store the seed, which predictions need."""
        self._seed = training.seed

    def forward_loss(
        self, model: FrozenFeatures, loss: Loss, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """Return logits (B, K) of one latent per sample and the loss with its KL term."""
        head = cast(VariationalHead, model.head)
        mean, log_variance = head(self.features(model, batch))
        logits = head.classify(mean, log_variance, torch.randn_like(mean))
        kl = kl_to_standard_normal(mean, log_variance)
        self.last_terms = {"kl": kl.detach()}
        count = len(batch) if loss.reduction == "sum" else 1
        return logits, loss(logits, batch.labels) + count * self.kl_weight * kl

    def predict(self, model: FrozenFeatures, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logarithm (B, K) of the mean probabilities, and the features (B, d)."""
        features = self.features(model, batch)
        head = cast(VariationalHead, model.head)
        mean, log_variance = head(features)
        draws = self._noise(batch.index.cpu(), mean.shape[1]).to(mean.device)
        log_probs = [
            head.classify(mean, log_variance, noise).float().log_softmax(dim=1) for noise in draws
        ]
        return torch.stack(log_probs).logsumexp(dim=0) - math.log(self.samples), features

    def _noise(self, index: Tensor, width: int) -> Tensor:
        """Standard normal noise (M, B, Z) for the images at ``index`` (B,), independent of the
        batches.
        """
        blocks, block = (index // NOISE_ROWS).unique(return_inverse=True)
        shape = (NOISE_ROWS, self.samples, width)
        drawn = [
            torch.randn(shape, generator=generator("cpu", self._seed, "vtst", number))
            for number in blocks.tolist()
        ]
        return torch.stack(drawn)[block, index % NOISE_ROWS].transpose(0, 1)
