"""The training loop: what it optimises and records, and that an interrupted run is the same."""

import re

import pytest
import torch
from tests.datasets.pictures import draw, write_folder
from tests.datasets.pictures import prepared as prepared_files

from calgrid.datasets import open_prepared
from calgrid.errors import ConfigError, DataError
from calgrid.jobs import network
from calgrid.jobs.train import build_trainer
from calgrid.training import environment, protocol
from calgrid.training.averages import Lookahead
from calgrid.training.interrupt import StoppedError, StopRequest
from calgrid.training.procedure import Procedure
from calgrid.training.trainer import RESUME_FILE, build_optimizer, copied
from calgrid.training.val_rows import rows_by_purpose

CPU, NAN = torch.device("cpu"), float("nan")
#: losses with parameters, counts of samples, and state that the validation moves
METHODS = ["fedlas_ls", "crl", "adafocal", "cals_alm"]
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.85, "weight_decay": 1e-3}
RECIPE = {
    "optimizer": {**SGD, "nesterov": True, "norm_bias_factor": 64.0},
    "schedule": {"name": "triangular", "start": 0.2, "peak": 0.23, "end": 0.07},
    "augmentation": {"crop_padding": 2, "padding_mode": "reflect", "flip": "alternate"},
    "lookahead": {"every": 2, "decay": 0.77},
    "checkpoints": ["best", "refined", "last", "ema", "swa"],
    "swa": {"start": 0.4},
}


class StopAfter(StopRequest):
    """Asks to stop when it has been asked ``steps`` times."""

    def __init__(self, steps):
        self.left = steps

    @property
    def requested(self):
        self.left -= 1
        return "SIGTERM" if self.left < 0 else ""

    def check(self):
        if self.left < 0:
            raise StoppedError("stopped")


def build(spec, prepared, folder, resume_every=1e9, first=None):
    folder.mkdir(exist_ok=True)
    return build_trainer(spec, prepared, first, CPU, folder, resume_every)


def finished(trainer):
    return trainer, trainer.run(StopAfter(10**9))


def run(spec, prepared, folder, first=None):
    return finished(build(spec, prepared, folder, first=first))


def resumed(start, *steps):
    """Trainer of ``start()`` that takes up a run which was stopped after these numbers of steps."""
    for number in steps:
        with pytest.raises(StoppedError):
            start().run(StopAfter(number - 1))
    torch.rand(17)  # a global generator that was used in between must not matter
    return start()


def flat(states):
    return {
        f"{group}/{name}": value for group, state in states.items() for name, value in state.items()
    }


def assert_same_states(left, right):
    left, right = flat(left), flat(right)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def assert_same_result(trainer, position, other, other_position):
    assert_same_states(trainer.states(), other.states())
    assert position.chosen.keys() == other_position.chosen.keys()
    for checkpoint, states in position.chosen.items():
        assert_same_states(states, other_position.chosen[checkpoint])
    assert repr(position.history) == repr(other_position.history)  # exact, and NaN equals NaN


def assert_other_images(trainer, other):
    first, second = (each._augmented(torch.arange(16), 0, 0).images for each in (trainer, other))
    assert not torch.equal(first, second)


def test_training_learns_the_classes_as_its_history_says(make_spec, prepared, tmp_path):
    """The best epoch has the highest accuracy, and the refined one the lowest refinement."""
    schedule = {"name": "step", "milestones": [9]}
    spec = make_spec(epochs=12, schedule=schedule, checkpoints=["best", "refined"])
    _, position = run(spec, prepared, tmp_path)
    history = position.history
    assert history[-1]["train_loss"] < 0.5 * history[0]["train_loss"]
    assert history[-1]["val_accuracy"] > 0.7
    assert [row["epoch"] for row in history] == list(range(12))
    rates = [row["learning_rate"] for row in history]
    assert rates == pytest.approx([0.05] * 9 + [0.005] * 3)
    for row in history:
        assert 0 <= row["train_accuracy"] <= 1
        assert row["val_nll"] == pytest.approx(row["val_refinement"] + row["val_calibration"])
        assert row["val_calibration"] >= 0
    assert position.chosen.keys() == {"best", "refined"}
    assert position.scores == {
        "best": max(row["val_accuracy"] for row in history),
        "refined": -min(row["val_refinement"] for row in history),
    }


def test_another_seed_is_another_run(make_spec, prepared, tmp_path):
    spec = make_spec()
    trainer = build(spec, prepared, tmp_path)
    other = build({**spec, "key": {**spec["key"], "seed": 2}}, prepared, tmp_path)
    assert not torch.equal(trainer.model.head.weight, other.model.head.weight)
    assert not torch.equal(trainer._batches(0)[0], other._batches(0)[0])
    assert_other_images(trainer, other)


def test_streamed_images_give_the_same_bits(make_spec, prepared, tmp_path, monkeypatch):
    spec = make_spec("ce", "balcal", crop_size=6)
    resident = run(spec, prepared, tmp_path / "resident")
    monkeypatch.setattr(network, "HELD_SHARE", 0)
    streamed = resumed(lambda: build(spec, prepared, tmp_path / "streamed"), 4)
    assert (resident[0].streamed, streamed.streamed) == (False, True)
    assert_same_result(*resident, *finished(streamed))


def test_random_parts_give_the_same_bits_after_a_stop_and_with_more_threads(make_spec, tmp_path):
    pixels, labels = draw(49, size=20)
    write_folder(tmp_path / "data/train", pixels[:40], labels[:40], "abc")
    write_folder(tmp_path / "data/test", pixels[40:], labels[40:], "abc")
    options = {"base": "image_folder", "val_size": 8, "image_size": 12, "keep_encoded": True}
    images = prepared_files(tmp_path / "data", tmp_path / "prepared", **options)
    threaded = open_prepared(images.folder, threads=3)
    augmentation = {**RECIPE["augmentation"], "crop_padding": 0, "flip": True}
    spec = make_spec(augmentation={**augmentation, "resized_crop": True})
    whole = run(spec, images, tmp_path / "whole")
    broken = resumed(lambda: build(spec, threaded, tmp_path / "broken"), 3)
    assert_same_result(*whole, *finished(broken))
    plain = build(make_spec(augmentation=augmentation), images, tmp_path / "plain")
    assert_other_images(plain, broken)


@pytest.mark.parametrize(("share", "operations"), [(0.5, "randaugment"), (0, "augmix")])
def test_a_fast_recipe_resumes_to_the_same_bits_resident_and_streamed(
    share, operations, make_spec, prepared, tmp_path, monkeypatch
):
    spec = make_spec(**{**RECIPE, "augmentation": {**RECIPE["augmentation"], operations: {}}})
    undisturbed = run(spec, prepared, tmp_path / "whole")
    monkeypatch.setattr(network, "HELD_SHARE", share)
    # the end of an epoch and the middle of the next ones
    broken = resumed(lambda: build(spec, prepared, tmp_path / "broken"), 3, 2, 3)
    assert (broken.position.epoch, broken.position.step) == (2, 2)
    assert_same_result(*undisturbed, *finished(broken))
    assert_other_images(build(make_spec(**RECIPE), prepared, tmp_path / "plain"), broken)


def test_flips_mirror_each_image_in_every_other_epoch(make_spec, prepared, tmp_path, monkeypatch):
    augmentation = {**RECIPE["augmentation"], "crop_padding": 0}
    trainer = build(make_spec(epochs=4, augmentation=augmentation), prepared, tmp_path)
    images = trainer.train_images.normalise(torch.from_numpy(prepared.splits["train"].images))
    seen = []

    def record(model, loss, batch):
        mirrored = (batch.images != images[batch.index]).flatten(1).any(1)
        seen.extend(zip(batch.index.tolist(), mirrored.tolist(), strict=True))
        return Procedure.forward_loss(trainer.procedure, model, loss, batch)

    monkeypatch.setattr(trainer.procedure, "forward_loss", record)
    trainer.run(StopAfter(10**9))
    epochs = [dict(seen[begin : begin + 40]) for begin in range(0, 160, 40)]
    assert 5 < sum(epochs[0].values()) < 35
    assert epochs[2] == epochs[0]
    assert epochs[1] == epochs[3] == {image: not each for image, each in epochs[0].items()}


def test_lookahead_draws_weights_to_their_mean_and_ends_on_it():
    weights, options = torch.tensor([0.0]), protocol.Lookahead(every=2, decay=0.8)
    lookahead = Lookahead([weights], options, steps=5)
    seen = []
    for done in range(1, 6):
        weights += 1
        lookahead.after_step(done)
        seen.append(float(weights))
    # decays 0.8 * (2 / 5)**3 = 0.0512 and 0.8 * (4 / 5)**3 = 0.4096; the last step is forgotten
    second = 2 * (1 - 0.0512)
    fourth = second + 2 * (1 - 0.4096)
    assert seen == pytest.approx([1, second, second + 1, fourth, fourth])


def test_lookahead_leaves_frozen_weights_alone():
    trained, frozen = (torch.tensor([0.0], requires_grad=True) for _ in range(2))
    lookahead = Lookahead([trained, frozen], protocol.Lookahead(every=2, decay=0.8), steps=2)
    with torch.no_grad():
        trained += 1
        frozen += 1
    trained.grad = torch.ones(1)
    lookahead.after_step(2)
    assert trained.item() == pytest.approx(1 - 0.8)
    assert frozen.item() == 1


def test_biases_of_batch_normalisation_have_a_rate_of_their_own(make_spec, prepared, tmp_path):
    trainer = build(make_spec(**RECIPE), prepared, tmp_path)
    trainer._train_step(torch.arange(16))
    others, biases = trainer.optimizer.param_groups
    norms = [each for each in trainer.model.modules() if isinstance(each, torch.nn.BatchNorm2d)]
    assert [id(each) for each in biases["params"]] == [id(norm.bias) for norm in norms]
    assert len(others["params"]) + len(norms) == len(trainer.trained)
    assert (others["lr"], biases["lr"]) == pytest.approx((0.01, 0.64))
    assert others["lr"] * others["weight_decay"] == biases["lr"] * biases["weight_decay"]


def test_the_first_epoch_of_highest_score_is_kept(make_spec, prepared, tmp_path):
    scores = {"best": (0.1, 0.3, 0.3), "refined": (0.2, 0.2, 0.2), "last": (NAN, 0.1, 0.05)}
    trainer, states = build(make_spec(checkpoints=list(scores)), prepared, tmp_path), []

    def scored(epoch, row):
        states.append(copied(trainer.states()))
        return {checkpoint: each[epoch] for checkpoint, each in scores.items()}

    trainer.procedure.scores = scored
    _, position = finished(trainer)
    assert position.scores == {"best": 0.3, "refined": 0.2, "last": 0.1}
    for checkpoint, epoch in {"best": 1, "refined": 0, "last": 1}.items():
        assert_same_states(position.chosen[checkpoint], states[epoch])


def test_resume_state_is_written_at_intervals(make_spec, prepared, tmp_path):
    build(make_spec(epochs=1), prepared, tmp_path, resume_every=0.0).run(StopAfter(10**9))
    state = build(make_spec(epochs=1), prepared, tmp_path)
    assert (state.position.epoch, state.position.step) == (0, 3)


def test_truncated_resume_state_restarts_the_run_and_says_so(make_spec, prepared, tmp_path, capsys):
    resumed(lambda: build(make_spec(), prepared, tmp_path), 4)
    path = tmp_path / RESUME_FILE
    path.write_bytes(path.read_bytes()[:1000])
    restarted = build(make_spec(), prepared, tmp_path)
    assert restarted.position.epoch == 0
    assert "damaged" in capsys.readouterr().err
    assert_same_states(restarted.states(), build(make_spec(), prepared, tmp_path / "new").states())


def test_clipping_bounds_the_network_but_not_the_loss(make_spec, prepared, tmp_path, monkeypatch):
    trainer = build(make_spec("fedlas_ls", clip_grad_norm=1e-3), prepared, tmp_path)
    norms = []

    def record(closure=None):
        model = torch.nn.utils.get_total_norm([p.grad for p in trainer.trained])
        loss = torch.nn.utils.get_total_norm([p.grad for p in trainer.loss.parameters()])
        norms.append((float(model), float(loss)))

    monkeypatch.setattr(trainer.optimizer, "step", record)
    trainer._train_step(torch.arange(16))
    assert norms[0][0] <= 1.001e-3
    assert norms[0][1] > 0


def test_a_loss_knows_how_many_training_images_each_class_has(make_spec, prepared, tmp_path):
    trainer = build(make_spec("las"), prepared, tmp_path)
    counts = torch.from_numpy(prepared.splits["train"].labels).bincount()
    assert torch.equal(trainer.loss.counts, counts)


def test_parameters_of_a_loss_are_trained_with_the_network(make_spec, prepared, tmp_path):
    trainer = build(make_spec("fedlas_ls"), prepared, tmp_path)
    before = [p.detach().clone() for p in trainer.loss.parameters()]
    trainer._train_step(torch.arange(16))
    assert before
    assert any(
        not torch.equal(a, b) for a, b in zip(before, trainer.loss.parameters(), strict=True)
    )


def test_history_holds_mean_losses_whatever_the_reduction(make_spec, prepared, tmp_path):
    rows = {}
    for reduction in ("mean", "sum"):
        # a rate so small that both networks stay where they started
        optimizer = {"name": "sgd", "lr": 1e-12, "momentum": 0.0, "weight_decay": 0.0}
        spec = make_spec(reduction=reduction, epochs=1, optimizer=optimizer)
        rows[reduction] = run(spec, prepared, tmp_path / reduction)[1].history[0]
    assert rows["sum"]["train_loss"] == pytest.approx(rows["mean"]["train_loss"], rel=1e-5)


def test_an_incomplete_last_batch_is_left_out_on_request(make_spec, prepared, tmp_path):
    sizes = []
    for drop_last in (False, True):
        spec = make_spec(epochs=1, drop_last=drop_last)
        trainer = build(spec, prepared, tmp_path / str(drop_last))
        trainer.loss.register_forward_hook(
            lambda _loss, inputs, _total: sizes.append(len(inputs[1]))
        )
        (row,) = trainer.run(StopAfter(10**9)).history
        seen = 32 if drop_last else 40
        # means are over the samples that the epoch has seen
        assert row["train_accuracy"] * seen == pytest.approx(round(row["train_accuracy"] * seen))
        assert row["learning_rate"] == 0.05
        assert trainer.last_batch == (16 if drop_last else 8)
    assert sizes == [16, 16, 8, 16, 16]


@pytest.mark.parametrize(
    ("padding", "flip", "crop", "random"),
    [(0, False, None, False), (1, False, None, True), (0, True, None, True), (0, False, 6, True)],
)
def test_procedures_are_told_whether_images_are_augmented(
    padding, flip, crop, random, make_spec, prepared, tmp_path, monkeypatch
):
    told = []
    monkeypatch.setattr(
        Procedure, "begin_training", lambda _self, _model, training: told.append(training.augmented)
    )
    augmentation = {"crop_padding": padding, "flip": flip}
    build(make_spec(augmentation=augmentation, crop_size=crop), prepared, tmp_path)
    assert told == [random]


def test_a_step_on_a_single_image_is_announced(make_spec, prepared, tmp_path, capsys):
    assert build(make_spec(batch_size=13), prepared, tmp_path / "a").last_batch == 1
    assert "ends with a step on a single image, as 40 training images" in capsys.readouterr().err
    build(make_spec(batch_size=13, drop_last=True), prepared, tmp_path / "b")
    build(make_spec(batch_size=1), prepared, tmp_path / "c")
    assert not capsys.readouterr().err


@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_a_loss_that_is_not_finite_is_named(value, make_spec, prepared, tmp_path, monkeypatch):
    trainer = build(make_spec(), prepared, tmp_path)
    monkeypatch.setattr(trainer.loss, "compute", lambda logits, *_: (logits.sum() * value, {}))
    with pytest.raises(DataError, match=r"diverged in epoch 1: its loss in step 1 is (nan|-?inf)"):
        trainer.run(StopAfter(10**9))
    trainer.position.sums = {"train_loss": torch.tensor(value)}
    with pytest.raises(DataError, match=r"epoch 1: its mean loss is \w+; lower the learning rate"):
        trainer._finish_epoch()


@pytest.mark.parametrize(
    ("change", "returned"),
    [
        (lambda logits, loss: (logits.repeat(1, 2), loss), "(16, 8) and ()"),
        (lambda logits, loss: (logits, loss.expand(16)), "(16, 4) and (16,)"),
        (lambda logits, loss: (logits, loss.detach()), "(16, 4) and () without gradient"),
        (lambda logits, loss: loss, "()"),
        (lambda logits, loss: {"loss": loss}, "dict"),
    ],
)
def test_what_a_procedure_must_return_is_said(
    change, returned, make_spec, prepared, tmp_path, monkeypatch
):
    forward_loss = Procedure.forward_loss
    monkeypatch.setattr(
        Procedure, "forward_loss", lambda *arguments: change(*forward_loss(*arguments))
    )
    message = (
        "calgrid/procedures/standard.py: forward_loss() of a procedure must return logits (B, K) "
        f"and a scalar loss, here (16, 4) and (), but it returned {returned}."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        run(make_spec(), prepared, tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("images", ["resident", "streamed"])
def test_interrupted_on_a_gpu_a_deterministic_run_ends_with_the_same_bits(
    method, images, make_spec, prepared, tmp_path, monkeypatch
):
    device = torch.device("cuda")
    environment.prepare(device, 1, deterministic=True)

    def start(name):
        (tmp_path / name).mkdir(exist_ok=True)
        return build_trainer(make_spec(method), prepared, None, device, tmp_path / name, 1e9)

    whole = finished(start("whole"))
    if images == "streamed":
        monkeypatch.setattr(network, "HELD_SHARE", 0)
    broken = resumed(lambda: start("broken"), 5)
    assert (broken.position.epoch, broken.position.step) == (1, 2)
    assert_same_result(*whole, *finished(broken))


def test_the_checkpoint_is_chosen_by_other_rows_than_the_loss_sees(make_spec, prepared, tmp_path):
    trainer = build(make_spec(disjoint_validation=True), prepared, tmp_path)
    seen = []
    trainer.loss.end_epoch = lambda epoch, logits, labels: seen.append((logits, labels))
    position = trainer.run(StopAfter(10**9))
    rows = rows_by_purpose(prepared.splits["val"].labels, disjoint=True)
    logits = trainer._validation_logits()
    labels = torch.from_numpy(prepared.splits["val"].labels)
    assert torch.equal(seen[-1][0], logits[rows["feedback"]])
    assert torch.equal(seen[-1][1], labels[rows["feedback"]])
    hits = (logits.argmax(1) == labels)[rows["choice"]]
    assert position.history[-1]["val_accuracy"] == pytest.approx(hits.double().mean().item())
    assert len(rows["choice"]) == len(rows["feedback"]) == 10


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_optimiser_is_that_of_the_protocol(name):
    settings = {"name": name, "lr": 0.3, "momentum": 0.8, "weight_decay": 0.2, "nesterov": True}
    options = protocol.Optimizer(**settings)
    (group,) = build_optimizer([torch.nn.Parameter(torch.ones(2))], options).param_groups
    assert ("momentum" in group) == (name == "sgd")
    used = settings.keys() & group.keys()
    assert used >= {"lr", "weight_decay"}
    assert {key: group[key] for key in used} == {key: settings[key] for key in used}


@pytest.mark.slow
def test_a_training_does_not_load_the_compiler(run_python):
    program = """
import sys, torch
from calgrid.training.protocol import Optimizer
from calgrid.jobs import train
from calgrid.training import environment
from calgrid.training.trainer import build_optimizer
environment.prepare(torch.device("cpu"), 1, True)
for name in ("sgd", "adamw"):
    weight = torch.nn.Parameter(torch.zeros(3))
    options = Optimizer(name=name, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True)
    optimizer = build_optimizer([weight], options)
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""
    assert run_python(program).strip() == "[]"
