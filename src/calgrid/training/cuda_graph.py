"""A training step as a CUDA graph: one launch in the place of hundreds.

Small networks leave a GPU idle while Python launches their operations one by one. A graph launches
both passes, loss, clipping, optimiser and sums of the epoch at once, and computes what they
compute. What a step draws or reads on the host stays outside: batch, augmentation, mixtures,
learning rate.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from calgrid.errors import ConfigError
from calgrid.losses.base import Loss
from calgrid.training.data import Batch
from calgrid.training.procedure import Procedure

#: steps before the first graph: they choose kernels and make the state of the optimiser
WARM_UP = 3
#: operations whose values or shapes the host reads from the device
READS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
BY_INDEX = (
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put.default,
    torch.ops.aten.index_put_.default,
)


@contextlib.contextmanager
def side_stream(wanted: bool) -> Iterator[None]:
    """Give a GPU its work in a stream of its own, which graphs need, if ``wanted``."""
    if not wanted:
        yield
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


def overrides(each: object, base: type, hooks: Sequence[str]) -> bool:
    """Whether the class of ``each`` has other methods than ``base`` for one of ``hooks``."""
    return any(getattr(type(each), hook) is not getattr(base, hook) for hook in hooks)


class HostWatch(TorchDispatchMode):
    """Lists the operations of a step that need the host: a graph would repeat their first values.

    Attributes
    ----------
    found : names of operations that read values of the device, or copy arrays from or to it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        """Compute an operation, and add it to ``found`` if it needs the host."""
        result = function(*arguments, **(options or {}))
        given = [each for each in tree_leaves(arguments) if isinstance(each, Tensor)]
        made = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
        # a number of the host is part of the launch
        devices = {each.device for each in (*given, *made) if each.ndim}
        reads = any(tag in READS for tag in function.tags)
        if function in BY_INDEX:
            indices = [each for each in arguments[1] if each is not None]
            reads = any(each.dtype in (torch.bool, torch.uint8) for each in indices)
        if reads or len(devices) > 1:
            self.found.append(str(function))
        return result


class GraphedStep:
    """A training step, as a CUDA graph for batches of one size.

    Batches of other sizes, as the last one of an epoch, and the first steps run without a graph.
    The first steps are watched: a step that needs the host, or changes numbers of loss or procedure
    in Python, never becomes a graph. Within an epoch the tensors of a step keep their addresses.

    Parameters
    ----------
    step : computes a step; returns its logits (B, K).
    size : images in a batch of the graph.
    loss, procedure : whose numbers are watched.
    refused : called with the reason if the step cannot be a graph.
    title : of the training, for messages.

    Attributes
    ----------
    replays : steps that were a graph.

    Raises
    ------
    ConfigError : PyTorch fails to make the graph.
    """

    def __init__(
        self,
        step: Callable[[Batch], Tensor],
        size: int,
        loss: Loss,
        procedure: Procedure[Any],
        refused: Callable[[str], None],
        title: str,
    ) -> None:
        self._step, self._size, self._refused, self._title = step, size, refused, title
        self._holders = (*loss.modules(), procedure)
        self._changes_between_epochs = overrides(
            loss, Loss, ("end_epoch", "pop_diagnostics")
        ) or overrides(procedure, Procedure, ("begin_epoch", "end_epoch"))
        self._plain: float = WARM_UP  # steps without a graph that are to come
        self._numbers: dict[tuple[int, str], float] = {}
        self._graph: Any = None
        self._is_old = True
        self.replays = 0

    def begin_epoch(self) -> None:
        """Make a new graph after the next step if loss or procedure may have replaced something."""
        if self._changes_between_epochs:
            self._is_old, self._plain = True, max(self._plain, 1)

    def __call__(self, batch: Batch) -> Tensor:
        """Compute a step; return its logits (B, K), which the next step overwrites."""
        if len(batch) != self._size or self._plain == math.inf:
            return self._step(batch)
        if self._plain:
            return self._watched(batch)
        if self._is_old:
            self._capture(batch)
        elif changed := self._changed():
            self._give_up(f"{changed} changes from step to step")
            return self._step(batch)
        for held, given in zip(self._batch.tensors(), batch.tensors(), strict=True):
            held.copy_(given)
        self._graph.replay()
        self.replays += 1
        return self._logits

    def _watched(self, batch: Batch) -> Tensor:
        """Compute a step without a graph, and decide whether it can be one."""
        self._plain -= 1
        self._numbers = self._numbers_now()
        with HostWatch() as watch:
            logits = self._step(batch)
        if watch.found:
            self._give_up(f"{watch.found[0]} needs the host")
        elif (changed := self._changed()) and self._plain < WARM_UP - 1:
            self._give_up(f"{changed} changes from step to step")
        return logits

    def _capture(self, batch: Batch) -> None:
        """Make the graph; nothing is computed."""
        self._numbers = self._numbers_now()
        self._batch = batch.copied()
        graph = torch.cuda.CUDAGraph()
        # in the memory of the previous graph, which still holds it
        pool = None if self._graph is None else self._graph.pool()
        torch.cuda.synchronize()
        try:
            # other threads may read images meanwhile
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            self._logits = self._step(self._batch)
            graph.capture_end()
        except RuntimeError as error:  # what the GPU then computes is not known
            raise ConfigError(
                f"{self._title}: PyTorch cannot make a CUDA graph of a training step and says: "
                f"{error}; set cuda_graph: false in the protocol."
            ) from error
        self._graph, self._is_old = graph, False

    def _give_up(self, reason: str) -> None:
        self._graph, self._plain = None, math.inf
        self._refused(reason)

    def _changed(self) -> str:
        """Name of a number that has changed, empty if none has."""
        now = self._numbers_now()
        return next((repr(key[1]) for key in now if now[key] != self._numbers.get(key)), "")

    def _numbers_now(self) -> dict[tuple[int, str], float]:
        """Numbers of loss and procedure that are no tensors."""
        return {
            (number, name): value
            for number, holder in enumerate(self._holders)
            for name, value in vars(holder).items()
            if isinstance(value, int | float)
        }
