"""Named sub-streams of a run's seed.

No generator is ever carried from one step to the next: each use of randomness is seeded by (seed, name, epoch, step).
A run that is interrupted and resumed anywhere therefore draws the same random numbers, with no generator state to save.
"""

import hashlib

import torch


def stream(seed: int, *names: str | int) -> int:
    """Seed in [0, 2**63) of the sub-stream ``names`` of a run's seed."""
    text = ":".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(device: torch.device | str, seed: int, *names: str | int) -> torch.Generator:
    """Torch generator on ``device`` for a sub-stream."""
    return torch.Generator(device).manual_seed(stream(seed, *names))
