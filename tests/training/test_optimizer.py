"""Our SGD is PyTorch's, number by number, without its imports."""

import itertools

import pytest
import torch
from torch import nn

from calgrid.training.optimizer import SGD


def parameters():
    rng = torch.Generator().manual_seed(0)
    return [
        nn.Parameter(torch.randn(shape, generator=rng))
        for shape in ((3, 2, 3, 3), (5,), (), (4, 6))
    ]


@pytest.mark.parametrize(
    "settings", [(0.0, 0.0, False), (0.9, 0.0, False), (0.9, 5e-4, False), (0.9, 5e-4, True)]
)
def test_steps_are_those_of_torch_also_resumed_and_with_parameters_that_freeze(settings):
    momentum, weight_decay, nesterov = settings
    ours, theirs = parameters(), parameters()
    mine = SGD(ours, 0.1, momentum, weight_decay, nesterov)
    reference = torch.optim.SGD(theirs, 0.1, momentum, 0.0, weight_decay, nesterov)
    rng = torch.Generator().manual_seed(1)
    for step, rate in enumerate(itertools.chain([0.1] * 4, [0.01] * 4)):
        mine.param_groups[0]["lr"] = reference.param_groups[0]["lr"] = rate
        for number, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            frozen = (number == 1 and step > 2) or (number == 3 and step < 2)
            left.grad = None if frozen else torch.randn(left.shape, generator=rng)
            right.grad = None if frozen else left.grad.clone()
        mine.step()
        reference.step()
        assert all(torch.equal(left, right) for left, right in zip(ours, theirs, strict=True))
        if step == 4:
            state = mine.state_dict()
            mine = SGD(ours, 0.1, momentum, weight_decay, nesterov)
            mine.load_state_dict(state)
    mine.zero_grad()
    assert all(parameter.grad is None for parameter in ours)
    mine.step()
    assert all(torch.equal(left, right) for left, right in zip(ours, theirs, strict=True))


@pytest.mark.slow
def test_a_training_does_not_load_the_compiler(run_python, home):
    program = """
import sys, torch
from calgrid.jobs import train, predict
from calgrid.training import environment
from calgrid.training.trainer import build_optimizer
environment.prepare(torch.device("cpu"), 1)
weight = torch.nn.Parameter(torch.zeros(3))
settings = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}
optimizer = build_optimizer([weight], settings)
weight.sum().backward()
torch.nn.utils.clip_grad_norm_([weight], 1.0)
optimizer.step()
print([name for name in ("torch._dynamo", "torch._inductor", "sympy", "triton") if name in sys.modules])
"""
    assert run_python(program).strip() == "[]"
