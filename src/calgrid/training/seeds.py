"""Named streams of a run's seed.

Generators are never reused between steps: all random numbers are seeded by (seed, name, epoch,
step). So a resumed run draws the same random numbers, without saved generator state.
"""

import hashlib

import torch


def stream(seed: int, *names: str | int) -> int:
    """Seed in [0, 2**63) of the stream ``names`` of a run's seed."""
    text = ":".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_global(device: torch.device, seed: int, *names: str | int) -> None:
    """Seed torch's global generators of the CPU and of ``device`` with a stream.

    ``torch.manual_seed`` is a hundred times slower because it seeds all types of devices.
    """
    seed_all = torch.default_generator.manual_seed if device.type == "cpu" else torch.manual_seed
    seed_all(stream(seed, *names))


def generator(device: torch.device | str, seed: int, *names: str | int) -> torch.Generator:
    """Torch generator on ``device`` for a stream."""
    return torch.Generator(device).manual_seed(stream(seed, *names))
