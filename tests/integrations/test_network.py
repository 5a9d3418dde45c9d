"""Images that a trained network takes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from tests.datasets.pictures import prepared, write_folder
from torch import nn

from calgrid import TrainedNetwork
from calgrid.datasets.encoded import Scaling
from calgrid.errors import DataError
from calgrid.integrations.network import scaling_of


@pytest.fixture
def network():
    """A network whose logits are the normalised pixels, without the files of a run."""
    made = TrainedNetwork.__new__(TrainedNetwork)
    nn.Module.__init__(made)
    made.network, made.crop_size = nn.Flatten(), None
    made.procedure = SimpleNamespace(predict=lambda network, batch: [network(batch.images)])
    made.image_shape, made.scaling = (3, 2, 2), Scaling(None, None)
    made.mean, made.std = torch.tensor(0.5), torch.tensor(0.25)
    return made


def test_floats_of_another_range_are_refused_outside_an_export(network, refuses):
    images = torch.arange(24, dtype=torch.uint8).reshape(2, 3, 2, 2) * 10
    for pixels in (images.float(), images.float() / 64 - 2, images * torch.nan):
        with refuses(DataError, "images are floats from", "instead of 0 to 1", "by 255"):
            network(pixels)
    shares = images.float() / 255
    torch.testing.assert_close(network(shares), network(images))
    exported = torch.export.export(network, (shares,)).module()
    torch.testing.assert_close(exported(shares), network(images))


def test_images_of_another_size_or_type_are_refused(network, refuses):
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    one_channel = images[:, :1, :2, :2]
    channels_last = torch.zeros(2, 2, 2, 3, dtype=torch.uint8)
    for wrong in (images, one_channel, channels_last, images[0, :, :2, :2]):
        with refuses(DataError, "but the network was trained on (N, 3, 2, 2)", "read(paths)"):
            network(wrong)
    with refuses(DataError, "images are torch.int64", "uint8"):
        network(images[:, :, :2, :2].long())
    traced = torch.jit.trace(network, images[:, :, :2, :2], check_trace=False)
    with pytest.raises(RuntimeError, match="invalid for input"):
        traced(images)


def test_pictures_are_read_as_the_data_set_was(network, tmp_path, refuses):
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 20
    path = tmp_path / "small.png"
    Image.fromarray(pixels).save(path)
    assert torch.equal(network.read([path]), torch.tensor(pixels.transpose(2, 0, 1)[None]))
    expected = (pixels.transpose(2, 0, 1) / 255 - 0.5) / 0.25
    found = network.predict([path, str(path)])
    np.testing.assert_allclose(found, np.tile(expected.reshape(1, -1), (2, 1)), atol=1e-6)
    large = tmp_path / "large.png"
    Image.fromarray(pixels.repeat(3, axis=0).repeat(3, axis=1)).resize((9, 6)).save(large)
    with refuses(DataError, "large.png has 6x9 pixels", "trained on images of 2x2"):
        network.read([large])
    network.scaling = Scaling(2, None)
    assert network.read([large]).shape == (1, 3, 2, 2)
    with refuses(DataError, "absent.png cannot be read", "correct the path"):
        network.read([tmp_path / "absent.png"])
    with refuses(DataError, "no pictures"):
        network.predict([])


@pytest.mark.parametrize("kept", [False, True], ids=["arrays", "encoded"])
def test_scaling_is_that_of_the_prepared_pictures(network, tmp_path, kept):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 14, 3), dtype=np.uint8)
    for split in ("train", "test"):
        write_folder(tmp_path / split, pixels + (split == "test"), np.arange(12) % 2, ["a", "b"])
    data = prepared(
        tmp_path,
        tmp_path / "out",
        base="image_folder",
        val_size=4,
        image_size=4,
        resize=6,
        keep_encoded=kept,
    )
    network.image_shape, network.scaling = (3, 4, 4), scaling_of(data.manifest)
    paths = sorted((tmp_path / "test").glob("*/*.png"))
    assert torch.equal(network.read(paths), torch.tensor(np.array(data.splits["test"].images)))
