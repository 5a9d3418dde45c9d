"""The two published lines of training on CIFAR and on Tiny-ImageNet, as their protocol files say."""

import pytest

from calgrid.configuration.protocols import ProtocolBook, for_stage
from calgrid.training.schedule import learning_rate

LINES = ("aclsline", "fcline")


@pytest.fixture(scope="module")
def book(home):
    return ProtocolBook(home / "config" / "protocols", home / "workflow" / "schemas" / "protocol.schema.yaml", {})


@pytest.fixture(params=LINES)
def protocol(request, book):
    return book.get(request.param, "the test")


def rates(protocol, epochs):
    return [learning_rate(protocol, epoch, step, 352) for epoch in epochs for step in (0, 351)]


def test_the_rate_falls_to_a_tenth_at_epochs_150_and_250(protocol):
    assert protocol["epochs"] == 350
    expected = [rate for rate in (0.1, 0.1, 0.01, 0.01, 0.001, 0.001) for _ in range(2)]
    assert rates(protocol, (0, 149, 150, 249, 250, 349)) == pytest.approx(expected)


def test_optimiser_batch_and_augmentation_are_the_same_in_both(protocol):
    optimizer = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": False}
    assert protocol["optimizer"] == optimizer
    assert protocol["batch_size"] == 128
    assert protocol["augmentation"] == {"crop_padding": 4, "flip": True}
    assert protocol["clip_grad_norm"] == 2.0


@pytest.mark.parametrize(("name", "reduction", "tested"), [("aclsline", "mean", "best"), ("fcline", "sum", "last")])
def test_what_tells_the_lines_apart(book, name, reduction, tested):
    protocol = book.get(name, "the test")
    assert protocol["reduction"] == reduction
    # the first one is what second stages start from, and what is ranked
    assert protocol["checkpoints"][0] == tested


def test_the_line_of_focal_calibration_never_picks_a_checkpoint_by_validation(book):
    assert book.get("fcline", "the test")["checkpoints"] == ["last"]


def test_second_stages_train_40_more_epochs_at_a_constant_rate(protocol):
    second = for_stage(protocol, second=True)
    assert second["epochs"] == 40
    assert rates(second, (0, 20, 39)) == pytest.approx([0.1] * 6)
    assert second["checkpoints"] == ["last"]
    assert second["reduction"] == "mean"
    for key in ("batch_size", "optimizer", "clip_grad_norm", "augmentation"):
        assert second[key] == protocol[key]


@pytest.mark.parametrize(
    "name", ["aclsline", "aclsline_tiny", "fcline", "fcline_tiny", "finegrained", "finegrained_vit"]
)
def test_protocols_of_papers_train_in_full_precision(book, name):
    assert book.get(name, "the test")["precision"] == "fp32"


def test_fine_grained_protocols_differ_in_network_optimiser_and_crop(book):
    cnn, vit = (book.get(name, "the test") for name in ("finegrained", "finegrained_vit"))
    assert (cnn["crop_size"], vit["crop_size"]) == (224, 384)
    assert cnn["optimizer"]["name"] == "sgd"
    assert (vit["optimizer"]["name"], vit["optimizer"]["lr"], vit["optimizer"]["weight_decay"]) == ("adamw", 1e-4, 5e-4)
    assert {key for key in cnn if cnn[key] != vit[key]} == {"crop_size", "optimizer"}
    assert (cnn["epochs"], cnn["batch_size"], cnn["pretrained"]) == (200, 16, True)
    expected = [rate for rate in (0.1, 0.1, 0.01, 0.01, 0.001, 0.001) for _ in range(2)]
    assert rates(cnn, (0, 79, 80, 159, 160, 199)) == pytest.approx(expected)


def test_the_protocol_for_an_evening_lets_validation_choose_nothing(book):
    protocol = book.get("evening", "the test")
    assert protocol["checkpoints"] == for_stage(protocol, second=True)["checkpoints"] == ["last"]
    assert protocol["epochs"] < book.get("aclsline", "the test")["epochs"] / 10
    assert rates(protocol, (29,))[1] < 1e-3 * protocol["optimizer"]["lr"]


@pytest.mark.parametrize("line", LINES)
def test_tiny_imagenet_differs_in_length_and_batch_only(book, line):
    tiny, cifar = (book.get(name, "the test") for name in (f"{line}_tiny", line))
    assert tiny["epochs"] == 100
    assert tiny["batch_size"] == 64
    expected = [rate for rate in (0.1, 0.1, 0.01, 0.01, 0.001, 0.001) for _ in range(2)]
    assert rates(tiny, (0, 39, 40, 59, 60, 99)) == pytest.approx(expected)
    same = set(cifar) - {"epochs", "batch_size", "drop_last", "schedule", "second_stage"}
    assert {key: tiny[key] for key in same} == {key: cifar[key] for key in same}
    second = for_stage(tiny, second=True)
    assert (second["epochs"], second["batch_size"], second["checkpoints"]) == (40, 128, ["last"])
    assert rates(second, (0, 39)) == pytest.approx([0.1] * 4)
