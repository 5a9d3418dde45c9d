"""PLP: when phases begin, what they freeze, and that what is frozen keeps its bits."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.procedures.cases import begin, images_batch, train_step

from calgrid.backbones import build_backbone
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure
from calgrid.procedures.plp import phase_starts, trained_tensors


def peeled(epochs, backbone="resnet8", **options):
    torch.manual_seed(0)
    model, procedure = build_backbone(backbone, 10), build_procedure("plp", **options)
    begin(procedure, model, epochs=epochs)
    return model, procedure


@pytest.mark.parametrize(
    ("epochs", "starts"),
    [
        (350, [0, 31, 63, 95, 127, 159, 190, 222, 254, 286, 318]),
        (100, [0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90]),
    ],
)
def test_phases_of_the_papers_protocols_begin_later_or_sooner_by_gamma(epochs, starts):
    plain, late, early = (phase_starts(11, gamma, epochs) for gamma in (1.0, 0.5, 2.0))
    assert plain.tolist() == starts
    assert (late[1:] > plain[1:]).all()
    assert (early[1:] < plain[1:]).all()


@given(st.integers(1, 12), st.floats(0.2, 6.0), st.integers(1, 400))
def test_the_first_epoch_trains_everything_whatever_the_length(phases, gamma, epochs):
    starts = phase_starts(phases, gamma, epochs)
    assert starts[0] == 0
    assert (starts[1:] >= 1).all()
    assert (np.diff(starts) >= 0).all()


@pytest.mark.parametrize(
    "backbone",
    [
        *("resnet18", "resnet50", "resnet110", "resnet101", "wrn26_10", "densenet121"),
        *("airbench24", "imagenet_resnet50", "imagenet_swin_b", "resnet101_tiny", "resnet9"),
        *("vit_b16_384", "timm/convnext_atto", "timm/test_efficientnet"),
    ],
)
def test_cuts_lie_behind_a_module_of_backbones_of_each_kind(backbone):
    with torch.device("meta"):
        model = build_backbone(backbone, 10)
    place = {id(parameter): number for number, parameter in enumerate(model.parameters(), start=1)}
    ends = {
        max(place[id(parameter)] for parameter in module.parameters())
        for module in model.modules()
        if next(module.parameters(), None) is not None
    }
    cuts = trained_tensors(model, 11)
    assert cuts[0] == len(place)
    assert (np.diff(cuts) < 0).all()
    assert 2 <= len(cuts) <= 11
    assert set(cuts) <= ends


def test_small_networks_are_cut_at_the_ends_of_their_blocks():
    """resnet8: 3 tensors of the stem, three blocks of 6, 2 of the head; the first peel takes head
    and last block.

    resnet20: nine blocks, of which the fourth and the seventh have a projection of 3 tensors.
    """
    small, large = (build_backbone(name, 10) for name in ("resnet8", "resnet20"))
    assert trained_tensors(small, 11) == [23, 15, 9]
    assert trained_tensors(large, 11) == [65, 57, 51, 42, 36, 30, 21, 15, 9]
    assert trained_tensors(large, 3) == [65, 36, 9]
    assert trained_tensors(large, 1) == [65]


def test_frozen_tensors_keep_their_bits_while_batch_norm_moves():
    """Weight decay and momentum would move a tensor with a gradient of zero."""
    model, procedure = peeled(3)
    batch, loss = images_batch(16, 10), build_loss("ce", 10)
    optimizer = torch.optim.SGD(procedure.parameters(model), lr=0.1, momentum=0.9, weight_decay=0.1)
    for epoch, trained in enumerate([23, 15, 9]):
        procedure.begin_epoch(model, epoch)
        assert all(module.training for module in model.modules())
        for _ in range(2):
            before = [parameter.detach().clone() for parameter in model.parameters()]
            buffers = {name: value.clone() for name, value in model.named_buffers()}
            momenta = [optimizer.state[p].get("momentum_buffer") for p in model.parameters()]
            momenta = [None if value is None else value.clone() for value in momenta]
            train_step(procedure, model, optimizer, loss, batch)
            moved = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
            assert moved == [True] * trained + [False] * (23 - trained)
            assert all(
                not torch.equal(buffers[name], value) for name, value in model.named_buffers()
            )
            frozen = list(zip(model.parameters(), momenta, strict=True))[trained:]
            for parameter, momentum in frozen:
                assert torch.equal(optimizer.state[parameter]["momentum_buffer"], momentum)


def test_the_phase_follows_from_the_epoch_alone():
    _, procedure = peeled(30)
    trained = [procedure.trained_tensors(epoch) for epoch in (0, 9, 10, 19, 20, 29)]
    assert trained == [23, 23, 15, 15, 9, 9]
    assert procedure.end_epoch(None, 10, {}) == {"trained_tensors": 15.0}
    assert procedure.state_dict() == procedure.resume_state() == {}


def test_parameters_of_the_loss_are_trained_to_the_end():
    model, procedure = peeled(3)
    loss = build_loss("fedlas_ls", 10).train()
    procedure.begin_epoch(model, 2)
    _, total = procedure.forward_loss(model, loss, images_batch(16, 10))
    total.backward()
    procedure.before_step(model)
    assert all(parameter.grad is not None for parameter in loss.parameters())
