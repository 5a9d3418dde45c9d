"""Images that a trained network takes."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from calgrid import TrainedNetwork
from calgrid.errors import DataError


@pytest.fixture
def network():
    """A network whose logits are the normalised pixels, without the files of a run."""
    made = TrainedNetwork.__new__(TrainedNetwork)
    nn.Module.__init__(made)
    made.network, made.crop_size = nn.Flatten(), None
    made.procedure = SimpleNamespace(predict=lambda network, batch: [network(batch.images)])
    made.mean, made.std = torch.tensor(0.5), torch.tensor(0.25)
    return made


def test_floats_of_another_range_are_refused_outside_an_export(network, refuses):
    images = torch.arange(24, dtype=torch.uint8).reshape(2, 3, 2, 2) * 10
    for pixels in (images.float(), images.float() / 64 - 2):
        with refuses(DataError, "images are floats from", "instead of 0 to 1", "by 255"):
            network(pixels)
    shares = images.float() / 255
    torch.testing.assert_close(network(shares), network(images))
    exported = torch.export.export(network, (shares,)).module()
    torch.testing.assert_close(exported(shares), network(images))
