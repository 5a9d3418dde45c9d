"""Every registered procedure resumes to the same bytes and predicts from its checkpoint alone."""

import math

import pytest
import torch
from tests.training.test_trainer import METHODS, assert_same_result, build, finished, resumed, run

from calgrid.components import registry
from calgrid.losses import build_loss
from calgrid.procedures.network import build_network
from calgrid.training.trainer import RESUME_FILE

SPECS = registry.descriptions("procedure")
PROCEDURES = list(SPECS)
ONE_STAGE = [name for name, spec in SPECS.items() if not spec.info.get("second_stage")]
#: with a forward pass of their own
FORWARD = [name for name in ONE_STAGE if name not in ("standard", "pcs", "plp")]
MASKS = [
    {"bottleneck": 64, "eval_mask": "expect", "sparsity": "static"},
    {"head": "linear", "gradient": "straight_through", "mask_mode": "zero", "cached": True},
    {"mask_mode": "zero", "eval_mask": "none", "p_min": 0.5},
]
OPTIONS = {"pcs": {"combinations": 2}}
RANKED = {"lambda_": 0.1, "replay": False}
PUBLISHED = [
    ("regmixup", "cifar10", {"alpha": 20.0}),
    ("regmixup", "cifar100", {"alpha": 10.0}),
    ("rankmixup_mrl", "cifar10", {**RANKED, "alpha": 2.0, "margin": 2.0}),
    ("rankmixup_mrl", "tiny_imagenet", {**RANKED, "alpha": 1.0, "margin": 1.0}),
]
VARIANTS = [
    *((name, OPTIONS.get(name, {})) for name in PROCEDURES),
    *(("maccal", options) for options in MASKS),
]


#: finished trainings, by variant; tests only read them
FINISHED = {}


@pytest.fixture(autouse=True)
def unfilled_memory(monkeypatch):
    """As in jobs."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)


@pytest.fixture
def first(make_spec, prepared, tmp_path_factory):
    """Weights of a network trained with plain cross-entropy, from which second stages start."""
    if "first" not in FINISHED:
        FINISHED["first"] = run(make_spec(epochs=1), prepared, tmp_path_factory.mktemp("first"))
    return FINISHED["first"][0].model.state_dict()


@pytest.fixture
def trainer_of(make_spec, prepared, first, tmp_path_factory):
    """Build a trainer of a procedure."""

    def make(procedure, folder=None, loss="ce", **changes):
        weights = None if procedure in ONE_STAGE else first
        folder = folder or tmp_path_factory.mktemp(procedure)
        if SPECS[procedure].info["averaged_weights"]:
            checkpoints = {"checkpoints": ["best", "last", "ema", "swa"], "swa": {"start": 0.4}}
            changes = {**checkpoints, **changes}
        return build(make_spec(loss, procedure, **changes), prepared, folder, first=weights)

    return make


def undisturbed(trainer_of, procedure, options):
    key = procedure, repr(options)
    if key not in FINISHED:
        FINISHED[key] = finished(trainer_of(procedure, procedure_options=options))
    return FINISHED[key]


def attributes(trainer):
    """Attributes of a trainer's procedure, except the facts of the run with its folder, as text."""
    found = vars(trainer.procedure).items()
    return repr({name: value for name, value in found if name != "training"})


def losses_of(procedure):
    """Losses that a procedure says it takes."""
    takes = {
        "any": lambda info: True,
        "affine": lambda info: not info["hard_labels"],
        "stateless": lambda info: info["needs"] == () and info["state"] == "none",
    }[SPECS[procedure].info["losses"]]
    return [name for name, spec in registry.descriptions("loss").items() if takes(spec.info)]


@pytest.mark.parametrize(("procedure", "dataset", "options"), PUBLISHED)
def test_options_are_those_of_the_official_commands(procedure, dataset, options):
    assert SPECS[procedure].resolve(dataset=dataset).items() >= options.items()


@pytest.mark.parametrize(
    ("procedure", "options", "loss"),
    [*((*each, "ce") for each in VARIANTS), *(("standard", {}, loss) for loss in METHODS)],
)
def test_interrupted_runs_end_with_the_same_bytes(
    procedure, options, loss, trainer_of, tmp_path, monkeypatch
):
    """The end of the first of three epochs of three steps, and the middle of the second.

    The interrupted one fills new tensors with NaN, which jobs do without: it reads no memory that
    was never written.
    """

    def start(folder):
        return trainer_of(procedure, folder, loss, procedure_options=options)

    same = loss == "ce"
    whole = undisturbed(trainer_of, procedure, options) if same else finished(start(None))
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    broken = resumed(lambda: start(tmp_path), 3, 2)
    assert (tmp_path / RESUME_FILE).is_file()
    assert (broken.position.epoch, broken.position.step) == (1, 2)
    assert_same_result(*whole, *finished(broken))
    assert broken.position.interruptions == 2
    assert attributes(broken) == attributes(whole[0])


@pytest.mark.parametrize(("procedure", "options"), VARIANTS)
def test_a_checkpoint_is_all_that_its_predictions_need(
    procedure, options, first, trainer_of, make_spec, prepared
):
    """The checkpoint of the last epoch gives the very logits that the history's last row was
    validated with.

    The body of a second stage is bit by bit that of the first, with its batch statistics.
    """
    trainer, position = undisturbed(trainer_of, procedure, options)
    states = trainer.states()
    torch.manual_seed(99)
    network, rebuilt = build_network(
        make_spec("ce", procedure, procedure_options=options), prepared.n_classes
    )
    network.load_state_dict(states["model"])
    rebuilt.load_state_dict(states["procedure"])
    network.eval()
    with torch.no_grad():
        batch = next(iter(trainer.val_images.batches(1024)))
        logits, features = rebuilt.predict(network, batch)
        again, _ = trainer.procedure.predict(trainer.model, batch)
    assert logits.shape == (30, 4)
    assert features.shape == (30, 64)
    assert torch.equal(logits, again)
    if rebuilt.linear_head:
        weight, bias = network.head.weight, network.head.bias
        torch.testing.assert_close(features @ weight.T + bias, logits)
    nll = torch.nn.functional.cross_entropy(logits.double(), batch.labels)
    assert float(nll) == position.history[-1]["val_nll"]
    if procedure not in ONE_STAGE:
        for state in (states, *position.chosen.values()):
            for name, value in state["model"].items():
                if name.startswith("body."):
                    assert torch.equal(first[name.removeprefix("body.")], value)


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_sum_reduction_multiplies_gradients_by_the_batch_size(procedure, trainer_of, monkeypatch):
    gradients = {}
    for reduction in ("mean", "sum"):
        trainer = trainer_of(procedure, reduction=reduction, clip_grad_norm=None)
        monkeypatch.setattr(trainer.optimizer, "step", lambda closure=None: None)
        trainer.procedure.begin_epoch(trainer.model, 0)
        trainer._train_step(torch.arange(16))
        gradients[reduction] = [parameter.grad.clone() for parameter in trainer.trained]
    assert gradients["mean"]
    for one, many in zip(gradients["mean"], gradients["sum"], strict=True):
        torch.testing.assert_close(many, 16 * one, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_reduced_precision_stays_finite_and_the_loss_gets_float32(procedure, trainer_of):
    options = OPTIONS.get(procedure, {})
    trainer = trainer_of(procedure, precision="bf16", procedure_options=options)
    trainer.autocast = True  # also where the processor only emulates it
    seen = []
    trainer.loss.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    trainer.procedure.begin_epoch(trainer.model, 0)
    trainer._train_step(torch.arange(16))
    assert set(seen) == {torch.float32}
    assert all(total.isfinite() for total in trainer.position.sums.values())
    assert trainer._validation_logits().isfinite().all()


@pytest.mark.parametrize("procedure", FORWARD)
def test_all_losses_that_it_takes_train(procedure, trainer_of):
    losses = losses_of(procedure)
    assert "ce" in losses
    trainer = trainer_of(procedure)
    trainer.procedure.begin_epoch(trainer.model, 0)
    for loss in losses:
        trainer.loss = build_loss(loss, 4)
        trainer.loss.begin_training(trainer.train_images.labels)
        before = [parameter.detach().clone() for parameter in trainer.trained]
        trainer._train_step(torch.arange(16))
        assert math.isfinite(trainer.position.sums["train_loss"]), loss
        assert all(parameter.isfinite().all() for parameter in trainer.trained), loss
        assert not any(torch.equal(a, b) for a, b in zip(before, trainer.trained, strict=True)), (
            loss
        )
