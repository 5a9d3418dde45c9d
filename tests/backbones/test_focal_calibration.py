"""Checkpoints of torrvision/focal_calibration: files in their form, from small networks written as
theirs are.
"""

import pickle
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from tests.backbones.networks import DENSENET, RESNET, WIDE
from torch import nn

from calgrid.backbones.focal_calibration import load_checkpoint
from calgrid.errors import DataError

CLASSES = 5


def conv(inputs, outputs, size, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


class TheirBlock(nn.Module):
    """Bottleneck of their ResNet, or basic block of their Wide ResNet, whose shortcut is called
    otherwise.
    """

    def __init__(self, inputs, widths, sizes, stride, name, empty):
        super().__init__()
        self.name, self.count = name, len(widths)
        for number, (width, size) in enumerate(zip(widths, sizes, strict=True), 1):
            step = stride if size == 3 and (number == 2) == (len(widths) == 3) else 1
            before = inputs if number == 1 else widths[number - 2]
            setattr(self, f"conv{number}", conv(before, width, size, step))
            setattr(self, f"bn{number}", nn.BatchNorm2d(width))
        changes = stride != 1 or inputs != widths[-1]
        way = (
            nn.Sequential(conv(inputs, widths[-1], 1, stride), nn.BatchNorm2d(widths[-1]))
            if changes
            else empty()
        )
        setattr(self, name, way)

    def forward(self, x):
        out, way = x, getattr(self, self.name)
        for number in range(1, self.count + 1):
            out = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(out))
            out = F.relu(out) if number < self.count else out
        return F.relu(out + (x if way is None else way(x)))


class TheirResidual(nn.Module):
    def __init__(self, stem, blocks, classes=CLASSES):
        super().__init__()
        self.conv1, self.bn1 = conv(3, stem, 3), nn.BatchNorm2d(stem)
        self.levels = len(blocks)
        for number, level in enumerate(blocks, 1):
            setattr(self, f"layer{number}", nn.Sequential(*level))
        self.fc = nn.Linear(
            blocks[-1][-1].bn1.num_features * (4 if blocks[-1][-1].count == 3 else 1), classes
        )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        for number in range(1, self.levels + 1):
            out = getattr(self, f"layer{number}")(out)
        return self.fc(out.mean((2, 3)))


def their_network(stem, widths, counts, sizes, name, empty):
    inputs, levels = stem, []
    for number, (width, count) in enumerate(zip(widths, counts, strict=True)):
        inside, level = (width, width, 4 * width)[: len(sizes)], []
        for stride in [2 if number else 1] + [1] * (count - 1):
            level.append(TheirBlock(inputs, inside, sizes, stride, name, empty))
            inputs = inside[-1]
        levels.append(level)
    return TheirResidual(stem, levels)


WIDTHS = (64, 128, 256, 512)
their_resnet = partial(
    their_network, 64, WIDTHS, (1, 2, 1, 2), (1, 3, 1), name="shortcut", empty=nn.Sequential
)
their_wide = partial(
    their_network, 16, (32, 64, 128), (2, 2, 2), (3, 3), name="downsample", empty=lambda: None
)


class TheirLayer(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), conv(inputs, 4 * growth, 1)
        self.bn2, self.conv2 = nn.BatchNorm2d(4 * growth), conv(4 * growth, growth, 3)

    def forward(self, x):
        out = self.conv2(F.relu(self.bn2(self.conv1(F.relu(self.bn1(x))))))
        return torch.cat([out, x], 1)


class TheirTransition(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.bn, self.conv = nn.BatchNorm2d(inputs), conv(inputs, outputs, 1)

    def forward(self, x):
        return F.avg_pool2d(self.conv(F.relu(self.bn(x))), 2)


class TheirDenseNet(nn.Module):
    def __init__(self, growth=4, layers=(2, 11, 1, 2)):
        super().__init__()
        width = 2 * growth
        self.conv1 = conv(3, width, 3)
        for block, count in enumerate(layers, 1):
            dense = (TheirLayer(width + i * growth, growth) for i in range(count))
            setattr(self, f"dense{block}", nn.Sequential(*dense))
            width += count * growth
            if block < len(layers):
                setattr(self, f"trans{block}", TheirTransition(width, width // 2))
                width //= 2
        self.bn, self.linear = nn.BatchNorm2d(width), nn.Linear(width, CLASSES)

    def forward(self, x):
        out = self.conv1(x)
        for block in (1, 2, 3):
            out = getattr(self, f"trans{block}")(getattr(self, f"dense{block}")(out))
        return self.linear(F.relu(self.bn(self.dense4(out))).mean((2, 3)))


PAIRS = {
    "resnet": (their_resnet, RESNET),
    "wide_resnet": (their_wide, WIDE),
    "densenet": (TheirDenseNet, DENSENET),
}


def trained(network):
    """No two channels of a trained network are alike, in the statistics of batch normalisation
    neither.
    """
    generator = torch.Generator().manual_seed(5)
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point():
            noise = torch.rand(tensor.shape, generator=generator)
            tensor.copy_(
                0.5 + noise if "bn" in name or "running_var" in name else 0.2 * (noise - 0.5)
            )
    return network.eval()


@pytest.mark.parametrize("family", PAIRS)
def test_our_network_computes_what_theirs_does(family, tmp_path):
    make_theirs, make_ours = PAIRS[family]
    theirs, ours = trained(make_theirs()), make_ours(CLASSES).eval()
    old = family == "wide_resnet"  # of an old torch, without counts of batches
    state = theirs.state_dict().items()
    kept = {f"module.{n}": t for n, t in state if not (old and n.endswith("batches_tracked"))}
    torch.save(kept, tmp_path / "net.model", _use_new_zipfile_serialization=not old)
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    before = ours(images)
    load_checkpoint(ours, tmp_path / "net.model")
    expected = theirs(images)
    assert (before - expected).abs().max() > 0.01
    assert expected.std() > 1e-3
    torch.testing.assert_close(ours(images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("other", ["wide_resnet", "densenet"])
def test_the_checkpoint_of_another_network_is_refused(other, tmp_path, refuses):
    torch.save(PAIRS[other][0]().state_dict(), tmp_path / "net.model")
    with refuses(DataError, "net.model is that of another network than the run's"):
        load_checkpoint(RESNET(CLASSES), tmp_path / "net.model")


class Hostile:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize("content", [pickle.dumps(Hostile(), 2), b"", b"<html>404</html>"])
def test_anything_but_tensors_is_refused_and_never_run(content, tmp_path, refuses, capsys):
    (tmp_path / "net.model").write_bytes(content)
    with refuses(DataError, "net.model cannot be read", "replace or remove the file"):
        load_checkpoint(RESNET(CLASSES), tmp_path / "net.model")
    assert capsys.readouterr().out == ""
