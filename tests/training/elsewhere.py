"""A device beside the CPU, on a machine that has none: what a GPU refuses, it refuses.

Its tensors say that they are on torch's device ``meta``, and hold their numbers in a tensor of the
CPU, so that a whole training gives the numbers of the CPU. Tensors and random generators of the
other device raise an error, and so do operations that no GPU repeats to the same bits. It counts
for what a program waits on a GPU: values that it reads, and copies that are not ``non_blocking``.
"""

import contextlib
import re

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from calgrid.training import data, seeds, trainer

DEVICE = torch.device("meta")
ATEN = torch.ops.aten
COPIES = (ATEN.copy_.default, ATEN._foreach_copy_.default)
INDEXED = (ATEN.index.Tensor, ATEN.index_put_.default, ATEN.index_put.default)
#: operations without a deterministic kernel on a GPU, which torch refuses there under
#: ``deterministic: true``: those of ``torch.use_deterministic_algorithms``
REFUSED = re.compile(
    r"adaptive_(avg|max)_pool\dd_backward|(avg|max)_pool3d\w*_backward|fractional_\w*_backward"
    r"|max_unpool|reflection_pad\dd_backward|upsample_(linear|bilinear|bicubic|trilinear)\w*_backward"
    r"|grid_sampler\w*_backward|cumsum|histc|aten\.put\.|kthvalue|median|nll_loss2d"
)
READS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


class Elsewhere(torch.Tensor):
    """A tensor on the device; ``held`` has its numbers."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        strides, offset = held.stride(), held.storage_offset()
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides, offset, dtype=held.dtype, device=DEVICE
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        raise RuntimeError(f"{function} after the device is gone")

    def __reduce_ex__(self, protocol):  # as torch.load(..., map_location="cpu") gives it back
        return self.held.__reduce_ex__(protocol)


class Device(TorchDispatchMode):
    """Computes what has or makes a tensor of the device; ``waits`` are what a program waits for."""

    def __init__(self):
        super().__init__()
        self.waits = []
        self.seeds = set()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = options or {}
        leaves = tree_leaves((arguments, options))
        tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
        mine = [each for each in tensors if isinstance(each, Elsewhere)]
        device = options.get("device")
        here = bool(mine) if device is None else torch.device(device) == DEVICE
        if mine:
            self._check(function, arguments, tensors)
            if REFUSED.search(str(function)):
                raise RuntimeError(f"{function} has no deterministic kernel")
        moves = function is ATEN._to_copy.default and here != bool(mine)
        if moves and not options.get("non_blocking"):
            self.waits.append(function)
        for each in leaves:
            if isinstance(each, torch.Generator) and (each.initial_seed() in self.seeds) != here:
                raise RuntimeError(f"{function}: the generator is on another device")
        if here and device is not None:
            options = {**options, "device": torch.device("cpu")}
        inner, named = tree_map(_held, (arguments, options))
        result = function(*inner, **named)
        if moves and result is inner[0]:
            result = result.clone()
        given = {id(_held(each)): each for each in tensors}  # what is changed in place stays itself

        def outer(value):
            if not isinstance(value, torch.Tensor):
                return value
            return given.get(id(value)) if id(value) in given else Elsewhere(value)

        return tree_map(outer, result) if here else result

    def _check(self, function, arguments, tensors):
        """Refuse tensors of the CPU, except numbers, indices and what is copied; count waits."""
        others = [each for each in tensors if not isinstance(each, Elsewhere) and each.ndim]
        waits = any(tag in READS for tag in function.tags)
        if function in INDEXED:
            indices = [each for each in arguments[1] if each is not None]
            masks = any(each.dtype in (torch.bool, torch.uint8) for each in indices)
            waits = masks or any(each.device != DEVICE for each in indices)
            others = [each for each in others if all(each is not index for index in indices)]
        if function in COPIES:
            waits, others = bool(others) and arguments[-1] is not True, []
        if others:
            raise RuntimeError(f"{function}: tensors are on two devices")
        if waits:
            self.waits.append(function)


def _held(value):
    return value.held if isinstance(value, Elsewhere) else value


class Tensors(TorchFunctionMode):
    """``torch.tensor`` on the device, which would have no numbers on torch's ``meta``."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if function is torch.tensor and options.get("device") == DEVICE:
            rest = {name: value for name, value in options.items() if name != "device"}
            return function(*arguments, **rest).to(DEVICE)
        return function(*arguments, **options)


@contextlib.contextmanager
def other_device(monkeypatch):
    """Context in which the device is there."""
    device, on_cpu = Device(), seeds.generator

    def generator(where, seed, *names):
        made = on_cpu("cpu", seed, *names)
        if where == DEVICE:
            device.seeds.add(made.initial_seed())
        return made

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "generator", generator)
        patch.setitem(data.PIXELS_AT_ONCE, DEVICE.type, data.PIXELS_AT_ONCE["cpu"])
        # it has no reduced precision
        patch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
        patch.setattr(torch, "is_autocast_enabled", lambda *_: False)
        with Tensors(), device:
            yield device
