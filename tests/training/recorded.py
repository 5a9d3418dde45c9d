"""A CUDA graph on a machine without one: what a step launches is recorded, and replayed.

As on a GPU, recording computes nothing, a replay runs no Python, reads and writes the same memory,
and draws from the generators as they are then.
"""

import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: it changes the running statistics, of which its schema says nothing
BATCH_NORM = torch.ops.aten.native_batch_norm.default


class Recorder(TorchDispatchMode):
    """Lists the operations with their tensors; ``changed`` are those that are written in place."""

    def __init__(self):
        super().__init__()
        self.operations, self.changed = [], []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = options or {}
        for value in tree_leaves(written(function, arguments, options)):
            if isinstance(value, torch.Tensor):
                self.changed.append((value, value.detach().clone()))
        result = function(*arguments, **options)
        self.operations.append((function, arguments, options, result))
        return result


def written(function, arguments, options):
    """The arguments that an operation changes."""
    if function is BATCH_NORM:
        return arguments[3:5]
    places = enumerate(function._schema.arguments)
    return [
        arguments[place] if place < len(arguments) else options.get(each.name)
        for place, each in places
        if each.alias_info is not None and each.alias_info.is_write
    ]


class Graph:
    """Stands for ``torch.cuda.CUDAGraph``."""

    def __init__(self):
        self.replays = 0

    def capture_begin(self, pool, capture_error_mode):
        self.random = torch.get_rng_state()
        self.recorder = Recorder()
        self.recorder.__enter__()

    def capture_end(self):
        self.recorder.__exit__(None, None, None)
        torch.set_rng_state(self.random)
        with torch.no_grad():
            for tensor, before in reversed(self.recorder.changed):
                tensor.copy_(before)
        self.recorder.changed.clear()

    def pool(self):
        return None

    def replay(self):
        self.replays += 1
        with torch.no_grad():
            for function, arguments, options, result in self.recorder.operations:
                new = function(*arguments, **options)
                for returned, old, now in zip(*each_return(function, result, new), strict=True):
                    if returned.alias_info is None:  # else it is memory that was there before
                        for memory, value in zip(tree_leaves(old), tree_leaves(now), strict=True):
                            if isinstance(memory, torch.Tensor):
                                memory.copy_(value)


def each_return(function, *results):
    """Schema of each value that an operation returns, and the values of several results."""
    returns = function._schema.returns
    return returns, *(each if len(returns) > 1 else [each][: len(returns)] for each in results)


@contextlib.contextmanager
def graphs(monkeypatch):
    """Context in which trainings with a graph use the stand-in; gives the list of graphs."""
    made = []

    def make():
        made.append(Graph())
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "CUDAGraph", make)
        patch.setattr(torch.cuda, "synchronize", lambda: None)
        # checks on a CPU read values, those on a GPU do not
        patch.setattr("calgrid.training.cuda_graph.READS", ())
        patch.setattr("calgrid.training.trainer.side_stream", contextlib.nullcontext)
        yield made
