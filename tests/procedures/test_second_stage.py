"""Second stages: frozen features, a new head, and nothing of the first stage that moves."""

import copy

import pytest
import torch
from tests.procedures.cases import CPU, begin, images_batch, train_step
from torch import nn

from calgrid.backbones import build_backbone
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure
from calgrid.procedures.second_stage import FeatureTable
from calgrid.training.data import DeviceImages


@pytest.fixture
def first_stage():
    torch.manual_seed(0)
    network = build_backbone("resnet8", 10)
    network.train()
    network(torch.randn(32, 3, 8, 8))  # so that BatchNorm has statistics of its own
    return network


@pytest.fixture
def batch():
    return images_batch(16, 10)


def second_stage(first, name="tst", **options):
    torch.manual_seed(2)
    procedure = build_procedure(name, **options)
    model = procedure.build_model(build_backbone("resnet8", 10), 10)
    procedure.load_first_stage(model, first.state_dict())
    return procedure, model


def test_head_is_linear_relu_linear_linear(first_stage):
    _, model = second_stage(first_stage, hidden=32)
    kinds = [type(layer) for layer in model.head]
    assert kinds == [nn.Linear, nn.ReLU, nn.Linear, nn.Linear]
    widths = [tuple(model.head[place].weight.shape) for place in (0, 2, 3)]
    assert widths == [(96, 64), (32, 96), (10, 32)]


@pytest.mark.parametrize("name", ["tst", "vtst"])
def test_features_are_those_of_the_first_stage_before_and_after_training(first_stage, batch, name):
    procedure, model = second_stage(first_stage, name)
    first_stage.eval()
    expected = first_stage.features(batch.images)
    body, head = (copy.deepcopy(part.state_dict()) for part in (model.body, model.head))
    loss = build_loss("ce", 10)
    optimizer = torch.optim.SGD(
        procedure.parameters(model), lr=0.1, momentum=0.9, weight_decay=5e-4
    )
    for epoch in range(3):
        procedure.begin_epoch(model, epoch)
        train_step(procedure, model, optimizer, loss, batch)
    assert all(torch.equal(body[name], tensor) for name, tensor in model.body.state_dict().items())
    assert not any(
        torch.equal(head[name], tensor) for name, tensor in model.head.state_dict().items()
    )
    assert torch.equal(model.features(batch.images), expected)
    assert all(parameter.grad is None for parameter in model.body.parameters())
    assert {*procedure.parameters(model)} == {*model.head.parameters()}


@pytest.fixture
def split():
    pixels = torch.randint(0, 256, (40, 3, 8, 8), generator=torch.Generator().manual_seed(3)).to(
        torch.uint8
    )
    return DeviceImages(
        pixels.numpy(), torch.arange(40).numpy() % 10, [0.5] * 3, [0.25] * 3, CPU, False
    )


@pytest.mark.parametrize(
    ("augmented", "cached", "once"),
    [(False, False, True), (True, False, False), (True, True, True)],
)
def test_features_are_computed_once_if_equal_or_asked_for(
    first_stage, split, augmented, cached, once
):
    procedure, model = second_stage(first_stage, cached=cached)
    begin(procedure, model, augmented=augmented)
    train, val = procedure.splits(model, split, split)
    assert isinstance(train, FeatureTable) == once
    assert isinstance(val, FeatureTable)


def test_features_computed_once_give_the_logits_of_the_images(first_stage, split):
    procedure, model = second_stage(first_stage)
    begin(procedure, model)
    table, _ = procedure.splits(model, split, split)
    index = torch.tensor([7, 3, 39])
    model.eval()
    from_table, features = procedure.predict(model, table.batch(index))
    from_images, expected = procedure.predict(model, split.batch(index))
    torch.testing.assert_close(from_table, from_images)
    torch.testing.assert_close(features, expected)
    assert torch.equal(table.batch(index).labels, split.labels[index])
    assert torch.equal(torch.cat([batch.index for batch in table.batches(16)]), torch.arange(40))
