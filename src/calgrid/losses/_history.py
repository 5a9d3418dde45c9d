"""Buffers with one row per training sample, saved with the state of a loss."""

from typing import Any

import torch
from torch import Tensor, nn

from calgrid.errors import DataError


class PerSample(nn.Module):
    """A buffer with one row per training sample, initially zero, that grows to the largest index.

    Losses are built before the number of training samples is known, so ``rows`` starts empty.
    Loading a state replaces all rows, whatever their number.

    Parameters
    ----------
    shape : shape of a row; empty for scalars.
    dtype : dtype of the rows.

    Attributes
    ----------
    rows : (S, *shape), S the reserved number of samples or the largest index plus one.
    """

    rows: Tensor

    def __init__(self, *shape: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(0, *shape, dtype=dtype))
        self._reserved = 0

    def reserve(self, samples: int) -> None:
        """Allocate a row for each of ``samples`` samples."""
        self._reserved = samples
        self.grow(samples)

    def grow(self, samples: int) -> None:
        """Add rows of zeros until there are at least ``samples``."""
        missing = samples - len(self.rows)
        if missing > 0:
            self.rows = torch.cat([self.rows, self.rows.new_zeros(missing, *self.rows.shape[1:])])

    def clear(self) -> None:
        """Delete all rows; the buffer is empty until the next write."""
        self.rows = self.rows[:0].clone()

    def cover(self, index: Tensor) -> Tensor:
        """Allocate rows for each ``index`` (N,), and return it as int64.

        On an accelerator reserved rows are assumed to be sufficient, because a check would
        synchronise with the device.

        Raises
        ------
        DataError : an index is negative.
        """
        self.grow(self._reserved)
        if index.device.type == "cpu" or not self._reserved:
            low, high = (int(bound) for bound in index.aminmax())
            if low < 0:
                raise DataError(
                    f"index must hold positions in the training split, from 0 on, got {low}."
                )
            self.grow(high + 1)
        return index.long()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved = state_dict.get(f"{prefix}rows")
        if saved is not None:
            self.rows = self.rows.new_zeros(len(saved), *self.rows.shape[1:])
        super()._load_from_state_dict(state_dict, prefix, *rest)
