"""Batches and modules that several tests of losses share."""

import torch


def random_batch(seed, n=8, c=6, scale=4):
    """Logits (n, c) and labels (n,)."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, c, generator=generator), torch.randint(
        c, (n,), generator=generator
    )


class GivenGate(torch.nn.Module):
    """Gate that returns the psi it was given."""

    def __init__(self, *psi):
        super().__init__()
        self.psi = torch.tensor(psi)

    def forward(self, logits):
        return self.psi
