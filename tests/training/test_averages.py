"""The checkpoints ema and swa: which mean they are, and with which statistics."""

import pytest
import torch
from tests.training.test_trainer import assert_same_states, run
from torch import nn
from torch.optim.swa_utils import update_bn

from calgrid.training.averages import Average, first_averaged
from calgrid.training.protocol import TrainingProtocol


def test_an_exponential_mean_begins_with_the_first_weights():
    layer = nn.BatchNorm1d(1)
    average = Average(layer)
    for value in (1.0, 2.0, 4.0):
        layer.weight.data.fill_(value)
        layer.running_mean.fill_(10 * value)
        average.add(0.25)
    # 1, 1.25, 1.9375
    assert average.mean["weight"].item() == 1.9375
    assert average.mean["running_mean"].item() == 19.375
    assert "num_batches_tracked" not in average.mean


def test_ema_is_over_all_steps_with_the_mean_of_the_statistics(make_spec, prepared, tmp_path):
    """A share of 1 in each step would be the last weights, a tiny one the first."""
    states = {}
    for decay in (1e-9, 0.5, 1 - 1e-9):
        spec = make_spec(checkpoints=["last", "ema"], ema={"decay": decay})
        trainer, position = run(spec, prepared, tmp_path / str(decay))
        states[decay] = position.chosen["ema"]["model"]
    last = trainer.states()["model"]
    for name in ("head.weight", "stages.0.1.running_mean"):
        torch.testing.assert_close(states[1e-9][name], last[name])
        distances = [(states[decay][name] - last[name]).norm() for decay in states]
        assert distances[0] < distances[1] < distances[2]


@pytest.mark.parametrize(("start", "first"), [(0.75, 2), (0.4, 1), (0.0, 0), (0.99, 2)])
def test_swa_counts_at_least_the_last_of_three_epochs(start, first, make_spec):
    options = make_spec(swa={"start": start})["protocol"]
    assert first_averaged(TrainingProtocol.model_validate(options)) == first


def test_swa_is_the_mean_after_epochs_with_statistics_as_of_pytorch(make_spec, prepared, tmp_path):
    spec = make_spec(checkpoints=["last", "swa"], swa={"start": 0.4})
    trainer, position = run(spec, prepared, tmp_path / "swa")
    # asking for it changes no other weights, and the rate of an epoch is that of the schedule
    plain, _ = run(make_spec(), prepared, tmp_path / "plain")
    assert_same_states(trainer.states(), plain.states())
    shorter, _ = run(make_spec(epochs=2), prepared, tmp_path / "shorter")
    found = position.chosen["swa"]["model"]
    for name, parameter in plain.model.named_parameters():
        torch.testing.assert_close(found[name], (parameter + shorter.model.get_parameter(name)) / 2)
    plain.model.load_state_dict(found)
    batches = [
        plain._augmented(index, 3, step).images for step, index in enumerate(plain._batches(3))
    ]
    update_bn(batches, plain.model)
    assert_same_states({"model": plain.model.state_dict()}, {"model": found})
