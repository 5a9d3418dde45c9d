"""One training in several processes, one for each GPU of a machine, with DistributedDataParallel.

Every process draws the same batches and the same augmentation from the seed of the run, and sends
its part of a batch through the body of the network. The features of all parts are then gathered, so
that each process has the head's logits, the loss and its terms of the whole batch, like a single
process. Results differ from a single process's by rounding, and by the masks of dropout within the
body. Processes are started by :mod:`torch.distributed`; the first one writes.
"""

import contextlib
import inspect
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import torch

# The module's functions take the process group at its import as a default argument. Imported by
# DistributedDataParallel, it would keep the group after the end of `joined`, and threads of the
# group, which may wait for Python, would abort the interpreter at its end. Imported before there is
# a group, it keeps none.
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch import distributed as dist
from torch.autograd.function import once_differentiable
from torch.nn.parallel import DistributedDataParallel

from calgrid.backbones.base import Network
from calgrid.errors import ConfigError
from calgrid.losses.base import Loss
from calgrid.training.data import Batch
from calgrid.training.interrupt import StopRequest
from calgrid.training.procedure import Procedure
from calgrid.training.trainer import Trainer, TrainingState, norm_layers

#: longest wait of a process for another, which may wait for a lock or write a large file
PATIENCE = timedelta(days=1)


@contextlib.contextmanager
def joined(processes: int) -> Iterator[int]:
    """Join the processes that ``torchrun`` has started, and yield the rank of this one.

    Raises
    ------
    ConfigError : there are not as many as ``processes``.
    """
    # tensors on a GPU are exchanged between GPUs, those on the CPU between processes
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE
    )
    try:
        if dist.get_world_size() != processes:
            raise ConfigError(
                f"The protocol trains in {processes} processes, but {dist.get_world_size()} were "
                f"started; give --nproc-per-node {processes} to torchrun."
            )
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()


def from_first(value: Any = None) -> Any:
    """Broadcast the value of the first process, and return it in each."""
    box = [value]
    dist.broadcast_object_list(box, device=torch.device("cpu"))
    return box[0]


def part(size: int, process: int | None = None) -> slice:
    """Rows of a process, by default this one, in a batch of ``size``: parts in their order make the
    batch, and their sizes differ by at most 1.
    """
    rank, count = dist.get_rank() if process is None else process, dist.get_world_size()
    return slice(rank * size // count, (rank + 1) * size // count)


class PartOfBatches:
    """Split of which this process reads only its part of each batch.

    A batch is read by an array of rows; its other images are black, and no network sees them. A
    batch with fewer images than processes is read completely, because each process computes the
    whole batch. Reading by a slice gives all images.

    Parameters
    ----------
    images : (N, C, H, W) uint8, or an array-like.
    """

    def __init__(self, images: Any) -> None:
        self._images = images
        self.shape, self.dtype, self.ndim = images.shape, images.dtype, images.ndim

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return the images at ``rows``."""
        if isinstance(rows, slice):
            return self._images[rows]
        return self._in_part(rows, self._images.__getitem__)

    def random_parts(self, rows: np.ndarray, seed: int) -> np.ndarray:
        """Return random parts of encoded images at ``rows``; see
        :meth:`calgrid.datasets.encoded.EncodedImages.random_parts`.
        """
        return self._in_part(rows, lambda own: self._images.random_parts(own, seed))

    def _in_part(self, rows: np.ndarray, read: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        if len(rows) < dist.get_world_size():
            return read(rows)
        batch = np.zeros((len(rows), *self.shape[1:]), np.uint8)
        own = part(len(rows))
        batch[own] = read(rows[own])
        return batch


class Gathered(torch.autograd.Function):
    """Rows (N, d) of all processes in their order, from each process's :func:`part`.

    Each process computes the loss of all N rows. So the gradient of its own rows is that of one
    process, and the processes' gradients of the network's weights are to be added. As
    DistributedDataParallel takes their mean, the gradient is multiplied by their number.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, size: int) -> Tensor:
        """Return the rows of all processes."""
        count = dist.get_world_size()
        padded = own.new_zeros(-(-size // count), *own.shape[1:])
        padded[: len(own)] = own
        found = [torch.empty_like(padded) for _ in range(count)]
        dist.all_gather(found, padded)
        bounds = [part(size, process) for process in range(count)]
        return torch.cat(
            [rows[: each.stop - each.start] for rows, each in zip(found, bounds, strict=True)]
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the own rows."""
        return dist.get_world_size() * upstream[part(len(upstream))], None


_gathered: Callable[[Tensor, int], Tensor] = Gathered.apply


class SharedNetwork(Network):
    """Network that computes the body in parts; its ``features`` are of the whole batch.

    Its ``forward`` is a training step up to the loss, because DistributedDataParallel needs all
    trained parameters, including the loss's, in one module.
    """

    def __init__(self, network: Network, loss: Loss, procedure: Procedure[Any]) -> None:
        super().__init__()
        self.network, self.head, self.loss = network, network.head, loss
        self.procedure = procedure

    def features(self, x: Tensor) -> Tensor:
        """Return penultimate features (N, d) of images (N, C, H, W), equal in all processes."""
        if len(x) < dist.get_world_size():  # a part would be empty
            return self.network.features(x)
        # dropout in the body: other masks in each part, and the same state afterwards everywhere
        with torch.random.fork_rng([x.device] if x.is_cuda else []):
            torch.manual_seed(int(torch.randint(2**62, ())) + dist.get_rank())
            own = self.network.features(x[part(len(x))])
        return _gathered(own, len(x))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return logits (B, K) and loss of a training batch."""
        return self.procedure.forward_loss(self, self.loss, batch)


class DistributedTrainer(Trainer):
    """Trainer of one of several processes; see the module.

    All of them hold the same state after each step. The first one writes the resume state.
    """

    def run(self, stop: StopRequest) -> TrainingState:
        """Train to the end; a stop request of any process stops all of them after the same step."""
        if dist.get_rank() > 0:
            self.resume_every = float("inf")
        self.model = synchronised(self.model)
        self.network = SharedNetwork(self.model, self.loss, self.procedure)
        # their buffers are equal already; the option has another name in newer releases of PyTorch
        known = inspect.signature(DistributedDataParallel).parameters
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {name: False}
        self._parallel = DistributedDataParallel(self.network, **options)
        try:
            position = super().run(stop)
        finally:
            del self._parallel  # it holds the process group
        seconds = torch.tensor(position.seconds, dtype=torch.float64)
        dist.all_reduce(seconds)
        position.seconds = float(seconds)
        return position

    def _stops(self, stop: StopRequest) -> bool:
        requested = torch.tensor(signal.Signals[stop.requested] if stop.requested else 0)
        dist.all_reduce(requested, dist.ReduceOp.MAX)
        if requested:
            stop.requested = signal.Signals(int(requested)).name
        return bool(requested)

    def _forward_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self._parallel(batch)

    def _save(self) -> None:
        if dist.get_rank() == 0:
            super()._save()


def synchronised(network: Network) -> Network:
    """Return a network whose batch normalisation has the statistics of the batches of all
    processes, with the same weights and names.
    """
    kinds = {type(each).__module__ for each in norm_layers(network)}
    if any(kind.startswith("timm.") for kind in kinds):  # layers with an activation of their own
        from timm.layers import convert_sync_batchnorm  # noqa: PLC0415  (an extra)

        return convert_sync_batchnorm(network)
    return nn.SyncBatchNorm.convert_sync_batchnorm(network)
