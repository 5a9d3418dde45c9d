"""Losses that need the number of training images of each class."""

from typing import Any

import torch
from torch import Tensor

from calgrid.losses.base import Loss


class ClassCounts(Loss):
    """Base of losses that depend on the frequencies of classes.

    Attributes
    ----------
    counts : (C,) int64, training images of each class; all 1 before :meth:`begin_training`.
    """

    counts: Tensor

    def __init__(self, num_classes: int, **options: Any) -> None:
        super().__init__(num_classes, **options)
        ones = torch.ones(num_classes, dtype=torch.int64)
        # no state: the same at each start of a training
        self.register_buffer("counts", ones, persistent=False)

    def begin_training(self, labels: Tensor) -> None:
        """Count the labels (S,) of the training split."""
        super().begin_training(labels)
        self.counts.copy_(labels.bincount(minlength=self.num_classes))
