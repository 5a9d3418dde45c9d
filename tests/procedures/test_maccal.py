"""MaC-Cal: its equations by hand, and what a mask leaves alone."""

import math

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import HOME
from tests.procedures.cases import begin, train_step
from torch import nn

from calgrid.backbones import build_backbone
from calgrid.errors import StateError
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure
from calgrid.procedures.maccal import FLOOR_EPOCHS
from calgrid.procedures.masked_linear import MaskedLinear, masked_layers
from calgrid.storage.records import RunKey
from calgrid.study.datasets import DatasetCatalog
from calgrid.study.runs import MethodCatalog
from calgrid.training.data import Batch

CLASSES, FEATURES = 4, 64


@pytest.fixture
def layer():
    linear = MaskedLinear(3, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
        linear.bias.copy_(torch.tensor([0.5, -0.5]))
    return linear


MASK = torch.tensor([[True, False, True], [False, True, True]])
X = torch.tensor([[1.0, 10.0, 100.0]])


def begun(epochs=40, seed=1, **options):
    """Procedure and model with random features' body, ready for its first epoch."""
    torch.manual_seed(0)
    procedure = build_procedure("maccal", **options)
    model = procedure.build_model(build_backbone("resnet8", CLASSES), CLASSES)
    begin(procedure, model, epochs=epochs, seed=seed)
    return procedure, model


def feature_batch(count=32):
    rng = torch.Generator().manual_seed(5)
    labels = torch.randint(0, CLASSES, (count,), generator=rng)
    return Batch(None, labels, torch.arange(count), torch.randn(count, FEATURES, generator=rng))


def train_epoch(procedure, model, optimizer, epoch, steps=5):
    loss, batch = build_loss("ce", CLASSES), feature_batch()
    procedure.begin_epoch(model, epoch)
    for _ in range(steps):
        train_step(procedure, model, optimizer, loss, batch)


# masks: equations (8), (9), (11)


@pytest.mark.parametrize(
    ("straight_through", "expected"),
    [(False, [[1.0, 0.0, 100.0], [0.0, 10.0, 100.0]]), (True, [[1.0, 10.0, 100.0]] * 2)],
)
def test_gradient_of_masked_weights(layer, straight_through, expected):
    layer.straight_through = straight_through
    layer.mask_weights(MASK, 0.5, keep=True)
    output = layer(X)
    output.sum().backward()
    assert output.tolist() == [[301.5, 649.5]]
    assert layer.weight.grad.tolist() == expected
    assert layer.bias.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("eval_mask", "expected"),
    [("last", [[301.5, 649.5]]), ("none", [[321.5, 653.5]]), ("expect", [[161.0, 326.5]])],
)
def test_masks_of_evaluation_by_hand(layer, eval_mask, expected):
    layer.eval_mask = eval_mask
    layer.mask_weights(MASK, 0.5, keep=True)
    assert layer(X).tolist() == [[301.5, 649.5]]
    layer.eval()
    assert layer(X).tolist() == expected


def test_masked_weights_come_back_as_they_were_or_as_zero(layer):
    stored = layer.stored().clone()
    layer.mask_weights(MASK, 0.5, keep=True)
    assert torch.equal(layer.stored(), stored)
    layer.mask_weights(~MASK, 0.5, keep=True)
    assert torch.equal(layer.weight, stored * ~MASK)
    layer.mask_weights(MASK, 0.5, keep=False)
    assert torch.equal(layer.stored(), stored * MASK)
    layer.mask_weights(~MASK, 0.5, keep=False)
    assert not layer.stored().any()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9, weight_decay=0.1, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
}


@pytest.mark.parametrize(
    ("optimizer", "head"), [("sgd", "linear"), ("nesterov", "bottleneck"), ("adamw", "bottleneck")]
)
def test_masked_weights_keep_their_bits_within_an_epoch(optimizer, head):
    procedure, model = begun(head=head)
    optimizer = OPTIMIZERS[optimizer](procedure.parameters(model))
    for epoch in range(3):
        procedure.begin_epoch(model, epoch)
        layers = masked_layers(model.head)
        before = [(layer.stored().clone(), layer.mask.clone()) for layer in layers]
        train_epoch(procedure, model, optimizer, epoch)
        for layer, (stored, mask) in zip(layers, before, strict=True):
            assert torch.equal(layer.mask, mask)
            assert torch.equal(layer.stored()[~mask], stored[~mask])
            assert (layer.stored()[mask] != stored[mask]).any()
            assert not layer.weight[~mask].any()


def test_kept_weights_follow_sgd_on_the_masked_gradient():
    procedure, model = begun(head="linear", sparsity="fixed")
    optimizer = OPTIMIZERS["sgd"](procedure.parameters(model))
    procedure.begin_epoch(model, 0)
    layer, batch = model.head, feature_batch()
    mask, weight, bias = layer.mask.clone(), layer.stored().clone(), layer.bias.detach().clone()
    train_epoch(procedure, model, optimizer, 0, steps=2)
    velocity, bias_velocity = torch.zeros_like(weight), torch.zeros_like(bias)
    for _ in range(2):
        probability = torch.softmax(batch.features @ (mask * weight).T + bias, dim=1)
        error = (probability - nn.functional.one_hot(batch.labels, CLASSES)) / len(batch)
        velocity = 0.9 * velocity + mask * (error.T @ batch.features + 0.1 * weight)
        bias_velocity = 0.9 * bias_velocity + error.sum(0) + 0.1 * bias
        weight, bias = weight - 0.3 * mask * velocity, bias - 0.3 * bias_velocity
    torch.testing.assert_close(layer.stored(), weight)
    torch.testing.assert_close(layer.bias.detach(), bias)


def test_velocity_of_masked_weights_only_fades():
    """Neither gradient nor weight decay reaches it: no weight is pushed when it comes back."""
    procedure, model = begun(head="linear")
    optimizer = OPTIMIZERS["sgd"](procedure.parameters(model))
    train_epoch(procedure, model, optimizer, 0)
    velocity = optimizer.state[model.head.weight]["momentum_buffer"].clone()
    train_epoch(procedure, model, optimizer, 1, steps=5)
    masked = ~model.head.mask
    faded = optimizer.state[model.head.weight]["momentum_buffer"]
    torch.testing.assert_close(faded[masked], 0.9**5 * velocity[masked])


def test_one_mask_an_epoch_of_its_own_generator():
    procedure, model = begun()
    procedure.begin_epoch(model, 0)
    first = [layer.mask.clone() for layer in masked_layers(model.head)]
    torch.rand(11)  # the global generator must not matter
    again, other = begun()
    for epoch in (0, 1):
        again.begin_epoch(other, epoch)
        pairs = zip(first, masked_layers(other.head), strict=True)
        assert [torch.equal(a, b.mask) for a, b in pairs] == [epoch == 0] * 2
    seeded, third = begun(seed=2)
    seeded.begin_epoch(third, 0)
    assert not torch.equal(first[0], masked_layers(third.head)[0].mask)
    square, fourth = begun(bottleneck=CLASSES)
    fourth.head[0] = MaskedLinear(CLASSES, CLASSES)
    square.begin_epoch(fourth, 0)
    assert not torch.equal(fourth.head[0].mask, fourth.head[2].mask)


@pytest.mark.parametrize("p0", [0.2, 0.5, 0.9, 1.0])
def test_share_of_kept_weights_is_the_retention_rate(p0):
    procedure, model = begun(p0=p0, bottleneck=256)
    procedure.begin_epoch(model, 0)
    layer = masked_layers(model.head)[0]
    deviation = math.sqrt(p0 * (1 - p0) / layer.mask.numel())
    assert abs(layer.mask.double().mean() - p0) <= 4 * deviation
    assert layer.retention == pytest.approx(p0)


# retention rate: equations (12), (13)


@pytest.mark.parametrize(
    ("accuracy", "confidence", "expected"),
    [
        (1.0, 0.99, 0.45),  # 0.7 - 0.99 is clipped to -0.05: overconfident, sparser
        (1.0, 0.72, 0.48),  # 0.7 - 0.72
        (0.5, 0.34, 0.51),  # 0.35 - 0.34
        (1.0, 0.2, 0.55),
    ],
)
def test_retention_rate_by_hand(accuracy, confidence, expected):
    procedure, model = begun()
    means = {"train_accuracy": accuracy, "train_confidence": confidence}
    seen = {"masked_accuracy": accuracy, "masked_confidence": confidence}
    assert procedure.end_epoch(model, 0, means) == {"retention": 0.5, **seen, "clip": 0.05}
    assert procedure.resume_state()["_retention"] == pytest.approx(expected)


def test_threshold_decays_exponentially_over_the_epochs():
    procedure, _ = begun(tau0=0.08)
    assert procedure.clip(0) == 0.08
    assert procedure.clip(39) == pytest.approx(0.0076 * 0.08, rel=5e-3)  # exp(-5 * 39 / 40)
    static, _ = begun(tau0=0.08, sparsity="static")
    assert static.clip(39) == 0.08


@given(
    p=st.floats(0.1, 1.0),
    accuracy=st.floats(0.0, 1.0),
    confidence=st.floats(0.25, 1.0),
    epoch=st.integers(0, 39),
    sparsity=st.sampled_from(["decaying", "static", "fixed"]),
)
def test_retention_keeps_its_bounds_and_direction(p, accuracy, confidence, epoch, sparsity):
    procedure = build_procedure("maccal", sparsity=sparsity)
    begin(procedure, None, epochs=40)
    clip = procedure.clip(epoch)
    following = procedure.next_retention(p, accuracy, confidence, clip)
    assert 0.1 <= following <= 1.0
    assert abs(following - p) <= clip + 1e-15
    assert (following - p) * (0.7 * accuracy - confidence) >= 0
    assert sparsity != "fixed" or following == p


def test_the_log_says_once_that_the_rate_stays_at_its_floor(capsys):
    procedure, model = begun(sparsity="static", tau0=1.0)
    for epoch in range(FLOOR_EPOCHS + 3):
        procedure.end_epoch(model, epoch, {"train_accuracy": 1.0, "train_confidence": 1.0})
    message = capsys.readouterr().err
    assert message.count("p_min = 0.1") == 1
    assert f"for {FLOOR_EPOCHS} epochs" in message


# heads


def test_linear_head_starts_from_that_of_the_first_stage():
    first = build_backbone("resnet8", CLASSES)
    procedure, model = begun(head="linear")
    procedure.load_first_stage(model, first.state_dict())
    assert torch.equal(model.head.stored(), first.head.weight)
    assert torch.equal(model.head.bias, first.head.bias)


@pytest.mark.parametrize(("head", "backbone", "classes", "what"), [
    ("linear", "resnet8", 7, "linear head"),
    ("linear", "resnet20", CLASSES, "backbone"),
    ("bottleneck", "resnet20", CLASSES, "backbone"),
])  # fmt: skip
def test_first_stage_of_another_network_is_refused(head, backbone, classes, what, refuses):
    procedure, model = begun(head=head)
    with refuses(StateError, f"does not fit this {what}"):
        procedure.load_first_stage(model, build_backbone(backbone, classes).state_dict())


# the ablation of the paper


def test_rows_of_the_ablation_add_one_part_after_the_other():
    config = yaml.safe_load((HOME / "config/studies/maccal_ablation.yaml").read_text())
    book = MethodCatalog(config["methods"], [], DatasetCatalog({}))
    rows = [
        book.resolve(RunKey("digits", "digits", "resnet8", name, 1))
        for name in ("maccal_a1", "maccal_a2", "maccal_a3", "maccal_a4", "maccal")
    ]
    assert {row.first_stage for row in rows} == {"ce"}
    parts = ("head", "gradient", "sparsity")
    assert [tuple(row.procedure_options[part] for part in parts) for row in rows] == [
        ("linear", "straight_through", "fixed"),
        ("linear", "masked", "fixed"),
        ("bottleneck", "masked", "fixed"),
        ("bottleneck", "masked", "static"),
        ("bottleneck", "masked", "decaying"),
    ]
    for row in rows:
        rest = {name: value for name, value in row.procedure_options.items() if name not in parts}
        assert rest == {
            name: value for name, value in rows[-1].procedure_options.items() if name not in parts
        }
