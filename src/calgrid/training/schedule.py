"""Batches of an epoch, and the learning rate as a function of epoch and step."""

import math

from calgrid.errors import ConfigError
from calgrid.training.protocol import TrainingProtocol


def epoch_batches(samples: int, protocol: TrainingProtocol) -> tuple[int, int]:
    """Return the number of batches of an epoch over ``samples`` images, and the size of the last
    batch.

    Uses ``batch_size`` and ``drop_last`` of the protocol.

    Raises
    ------
    ConfigError : ``drop_last`` leaves no batch.
    """
    size = protocol.batch_size
    full, rest = divmod(samples, size)
    if rest and not protocol.drop_last:
        return full + 1, rest
    if not full:
        raise ConfigError(
            f"drop_last leaves no batch of {size} of {samples} training images; use smaller "
            "batches or drop_last: false."
        )
    return full, size


def learning_rate(protocol: TrainingProtocol, epoch: int, step: int, steps: int) -> float:
    """Learning rate of a step.

    Parameters
    ----------
    protocol : with ``epochs``, ``optimizer.lr`` and ``schedule``.
    epoch, step : counted from 0.
    steps : steps per epoch.

    Notes
    -----
    ``step``: multiplied by gamma from each milestone epoch on (drops *after* the milestone's
    predecessor, the order of the ACLS line). ``cosine``: to 0 at the end of the last epoch.
    ``triangular``: linear from ``start`` to the full rate at the share ``peak`` of all steps, and
    linear to ``end``. Warm-up: linear over ``warmup_epochs``.
    """
    schedule, base = protocol.schedule, protocol.optimizer.lr
    rate = base
    progress = (epoch + step / steps) / protocol.epochs
    if schedule.name == "step":
        drops = sum(epoch >= milestone for milestone in schedule.milestones)
        rate = base * schedule.gamma**drops
    elif schedule.name == "triangular":
        start, peak, end = schedule.start, schedule.peak, schedule.end
        if progress < peak:
            rate = base * (start + (1.0 - start) * progress / peak)
        else:
            rate = base * (1.0 + (end - 1.0) * (progress - peak) / (1.0 - peak))
    elif schedule.name == "cosine":
        rate = base * 0.5 * (1.0 + math.cos(math.pi * progress))
    warmup = schedule.warmup_epochs
    if warmup:
        rate *= min(1.0, (epoch + (step + 1) / steps) / warmup)
    return rate
