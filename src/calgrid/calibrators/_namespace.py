"""Differences between NumPy and PyTorch: the map of a calibrator is written once for both.

Fits and predictions give NumPy arrays to a map; its PyTorch module gives tensors. The functions
that both libraries name alike are those of :func:`namespace`.
"""

import sys
from typing import Any

import numpy as np

from calgrid.metrics.moments import row_sums


def is_tensor(values: Any) -> bool:
    """Whether values are a tensor of PyTorch, which is not imported for that."""
    return type(values).__module__.partition(".")[0] == "torch"


def namespace(values: Any) -> Any:
    """Return the library of the values: ``torch`` for a tensor, else ``numpy``."""
    return sys.modules["torch"] if is_tensor(values) else np


def totals(values: Any) -> Any:
    """Return the sum ``(N, 1)`` of each row of ``(N, K)``, as :func:`row_sums` for arrays."""
    return values.sum(dim=1, keepdim=True) if is_tensor(values) else row_sums(values)[:, None]


def take(values: Any, index: Any) -> Any:
    """Return the entry ``(N,)`` of each row of ``(N, P)`` at an index ``(N,)``."""
    if is_tensor(values):
        return values.gather(1, index[:, None])[:, 0]
    return values[np.arange(len(values)), index]


def columns(values: Any) -> Any:
    """Return values ``(N, D)`` as ``(D, N)``, contiguous: the layout decides how products round."""
    return values.T.contiguous() if is_tensor(values) else np.ascontiguousarray(values.T)


def largest(values: Any, count: int) -> Any:
    """Return the ``count`` largest values ``(count, N)`` of each row of ``(N, K)``, descending."""
    if is_tensor(values):
        return values.topk(count, dim=1).values.T
    return columns(np.sort(np.partition(values, -count, axis=1)[:, -count:], axis=1)[:, ::-1])
