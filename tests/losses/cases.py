"""Batches and modules that several tests of losses share."""

import torch


def random_batch(seed, n=8, c=6, scale=4):
    """Logits (n, c) and labels (n,)."""
    return batch_with_features(seed, n, c, scale=scale)[:2]


def batch_with_features(seed=0, n=16, c=6, d=5, scale=4):
    """Logits (n, c), labels (n,) and features (n, d) of at least 0."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, c, generator=generator)
    labels = torch.randint(c, (n,), generator=generator)
    return logits, labels, 10 * torch.rand(n, d, generator=generator)


class GivenGate(torch.nn.Module):
    """Gate that returns the psi it was given."""

    def __init__(self, *psi):
        super().__init__()
        self.psi = torch.tensor(psi)

    def forward(self, logits):
        return self.psi
