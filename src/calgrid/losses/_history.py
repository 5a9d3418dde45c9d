"""What a loss remembers of each training sample, saved and resumed with its other state."""

from typing import Any

import torch
from torch import Tensor, nn

from calgrid.errors import DataError


class PerSample(nn.Module):
    """A buffer with one row a training sample, zero until it is written, that grows with the largest index seen.

    Losses are built before the number of training samples is known, so ``rows`` starts empty. A state of any size
    loads into a buffer of any size: the rows then are those of the state, no more and no fewer.

    Parameters
    ----------
    shape : of one row; nothing for a scalar.
    dtype : of the rows.

    Attributes
    ----------
    rows : (S, *shape), S the number of samples reserved or the largest index seen plus one.
    """

    rows: Tensor

    def __init__(self, *shape: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(0, *shape, dtype=dtype))
        self._reserved = 0

    def reserve(self, samples: int) -> None:
        """Have a row for each of ``samples`` samples from now on."""
        self._reserved = samples
        self.grow(samples)

    def grow(self, samples: int) -> None:
        """Add rows of zeros until there are at least ``samples``."""
        missing = samples - len(self.rows)
        if missing > 0:
            self.rows = torch.cat([self.rows, self.rows.new_zeros(missing, *self.rows.shape[1:])])

    def clear(self) -> None:
        """Forget all rows; until one is written again the buffer takes no room in memory or in a file."""
        self.rows = self.rows[:0].clone()

    def cover(self, index: Tensor) -> Tensor:
        """Grow until each ``index`` (N,) has its row; return it as int64.

        On an accelerator, rows that were reserved are trusted to suffice, because to look waits for the device. Raises
        DataError: an index is negative.
        """
        self.grow(self._reserved)
        if index.device.type == "cpu" or not self._reserved:
            low, high = (int(bound) for bound in index.aminmax())
            if low < 0:
                raise DataError(f"index must hold positions in the training split, from 0 on, got {low}.")
            self.grow(high + 1)
        return index.long()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved = state_dict.get(f"{prefix}rows")
        if saved is not None:
            self.rows = self.rows.new_zeros(len(saved), *self.rows.shape[1:])
        super()._load_from_state_dict(state_dict, prefix, *rest)
