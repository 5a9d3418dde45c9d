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


def seed_global(device: torch.device, seed: int, *names: str | int) -> None:
    """Seed torch's global generators, those of the CPU and of ``device``, with a sub-stream.

    ``torch.manual_seed`` looks at all kinds of devices, which takes the CPU a hundred times as long.
    """
    seed_all = torch.default_generator.manual_seed if device.type == "cpu" else torch.manual_seed
    seed_all(stream(seed, *names))


def generator(device: torch.device | str, seed: int, *names: str | int) -> torch.Generator:
    """Torch generator on ``device`` for a sub-stream."""
    return torch.Generator(device).manual_seed(stream(seed, *names))
