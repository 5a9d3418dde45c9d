"""Training steps as CUDA graphs: on the CPU by a stand-in that records and replays a step."""

import contextlib

import pytest
import torch
from tests.procedures.test_every_procedure import MASKS, ONE_STAGE, OPTIONS
from tests.training.recorded import Graph, graphs
from tests.training.test_trainer import StopAfter, assert_same_result, build, finished, resumed, run

from calgrid.components import registry
from calgrid.errors import ConfigError
from calgrid.jobs.train import allows_graph, build_trainer
from calgrid.losses.ce import CrossEntropy
from calgrid.procedures.standard import Standard
from calgrid.training import environment
from calgrid.training import trainer as trainer_module
from calgrid.training.protocol import TrainingProtocol

CUDA = torch.device("cuda")
#: four batches and a smaller one in each of three epochs
SETTINGS = {"batch_size": 9, "head_dropout": 0.2}
#: without state, and each kind of state; a loss without state that waits for the device is found by
#: tests/procedures/test_other_device.py
LOSSES = ("ce", "adafocal", "crl", "fedlas_ls")
#: settings without a graph of steps
FORBIDS = {"deterministic": True, "gpus": 2, "procedure": "mit_l"}
CAPABLE = [
    (name, OPTIONS.get(name, {}))
    for name, each in registry.descriptions("procedure").items()
    if each.info["cuda_graph"]
]


#: weights of a first stage, which tests only read
FIRST = {}


@pytest.fixture
def start(prepared, make_spec, tmp_path_factory):
    """Build a trainer, with steps as graphs or without."""

    def make(method="ce", procedure="standard", *, graph, folder=None, **changes):
        second = procedure not in ONE_STAGE
        if second and not FIRST:
            trained = run(make_spec(epochs=1), prepared, tmp_path_factory.mktemp("first"))[0]
            FIRST.update(trained.model.state_dict())
        state = FIRST if second else None
        spec = make_spec(method, procedure, **{**SETTINGS, **changes})
        folder = folder or tmp_path_factory.mktemp("run")
        trainer = build(spec, prepared, folder, first=state)
        # as on a GPU
        trainer.optimizer.param_groups[0].update(fused=True, foreach=False, lr=torch.zeros(()))
        if graph:
            trainer._use_cuda_graph()
        return trainer

    return make


@pytest.mark.parametrize("loss", LOSSES)
def test_a_training_of_a_loss_with_or_without_state_is_that_without_graph(loss, start, monkeypatch):
    averages = {"checkpoints": ["best", "last", "ema", "swa"]}
    plain = finished(start(loss, graph=False, **averages))
    with graphs(monkeypatch) as made:
        trainer, position = finished(start(loss, graph=True, **averages))
    assert_same_result(*plain, trainer, position)
    # all but three steps of the first epoch, one of each epoch after which the loss may be another,
    # and the smaller batches
    assert sum(each.replays for each in made) == trainer.graph.replays == (9, 7)[len(made) > 1]


@pytest.mark.parametrize(("procedure", "options"), [*CAPABLE, ("maccal", MASKS[1])])
def test_a_training_of_any_procedure_is_that_without_a_graph_one_after_an_interruption(
    procedure, options, start, monkeypatch, tmp_path
):
    changes = {"procedure": procedure, "procedure_options": options, "epochs": 2}
    steps = [4] if procedure == "balcal" else []
    plain = finished(start(graph=False, **changes))
    with graphs(monkeypatch) as made:
        trainer = resumed(lambda: start(graph=True, folder=tmp_path, **changes), *steps)
        assert_same_result(*plain, *finished(trainer))
    assert made
    assert all(each.replays for each in made)


def test_a_training_with_adamw_and_two_rates_is_that_without_a_graph(start, monkeypatch):
    """The rates are tensors, which a warm-up changes in each step."""
    changes = {
        "optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.1, "norm_bias_factor": 4.0},
        "schedule": {"name": "cosine", "warmup_epochs": 1.5},
        "lookahead": {"every": 2},
    }

    def adamw(graph):
        trainer = start(graph=False, **changes)
        for group in trainer.optimizer.param_groups:
            group.update(fused=True, foreach=False, lr=torch.zeros(()))
        if graph:
            trainer._use_cuda_graph()
        return finished(trainer)

    plain = adamw(False)
    with graphs(monkeypatch):
        assert_same_result(*plain, *adamw(True))


class Counting(CrossEntropy):
    """A loss with a number that changes in each call."""

    calls = 0

    def compute(self, logits, labels, features, index):
        self.calls += 1
        total, terms = super().compute(logits, labels, features, index)
        return total / self.calls, terms


class LateChange(Standard):
    """A procedure with a number that changes after a step in the middle of an epoch."""

    factor, steps = 1.0, 0

    def after_step(self, model):
        steps = vars(self).setdefault("hidden", [])
        steps.append(1)
        if len(steps) == 4:
            self.factor = 0.5

    def forward_loss(self, model, loss, batch):
        logits, total = super().forward_loss(model, loss, batch)
        return logits, self.factor * total


@pytest.mark.parametrize(
    ("part", "kind", "name"), [("loss", Counting, "calls"), ("procedure", LateChange, "factor")]
)
def test_a_number_that_changes_is_found(part, kind, name, start, monkeypatch, capsys, refuses):
    def changed(**changes):
        trainer = start(graph=False, **changes)
        getattr(trainer, part).__class__ = kind
        return trainer

    plain = finished(changed())
    with graphs(monkeypatch):
        trainer = changed()
        trainer._use_cuda_graph()
        assert_same_result(*plain, *finished(trainer))
        said = f"'{name}' changes from step to step"
        assert capsys.readouterr().err.count(f"{said}; it is trained without.") == 1
        asked = changed(cuda_graph=True)
        asked._use_cuda_graph()
        with refuses(ConfigError, "cannot be a CUDA graph", said, "leave cuda_graph out"):
            finished(asked)


def test_a_step_that_needs_the_host_is_computed_without_a_graph(start, capsys, monkeypatch):
    """On a CPU losses read their logits."""
    monkeypatch.setattr(trainer_module, "side_stream", contextlib.nullcontext)
    trainer, _ = finished(start(graph=True))
    assert trainer.graph.replays == 0
    assert "aten._local_scalar_dense.default needs the host" in capsys.readouterr().err


def test_a_graph_that_pytorch_fails_to_make_ends_the_training(start, monkeypatch, refuses):
    def fail(*_, **__):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(Graph, "capture_begin", fail)
    with graphs(monkeypatch), refuses(ConfigError, "not permitted", "set cuda_graph: false"):
        finished(start(graph=True))


def test_on_the_cpu_there_is_no_graph(make_spec, prepared, tmp_path):
    assert run(make_spec(cuda_graph=True), prepared, tmp_path)[0].graph is None


@pytest.mark.parametrize(
    ("changes", "allowed"), [({}, True), *(({key: value}, False) for key, value in FORBIDS.items())]
)
def test_without_being_asked_a_graph_is_used_where_it_can_be(changes, allowed, make_spec):
    spec = make_spec(**changes)
    assert spec["protocol"]["cuda_graph"] == "auto"
    assert allows_graph(spec, TrainingProtocol.model_validate(spec["protocol"])) == allowed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("method", "procedure"),
    [
        *((loss, "standard") for loss in ("ce", "fedlas_ls", "crl")),
        *(("ce", procedure) for procedure in ("mixup", "rankmixup_mrl", "balcal", "plp")),
    ],
)
def test_on_a_gpu_a_training_is_near_that_without_a_graph(
    method, procedure, precision, make_spec, prepared, tmp_path
):
    environment.prepare(CUDA, 1, deterministic=True)
    weights = []
    for graph in (False, True):
        folder = tmp_path / str(graph)
        folder.mkdir()
        spec = make_spec(method, procedure, **SETTINGS, cuda_graph=graph, precision=precision)
        trainer = build_trainer(spec, prepared, None, CUDA, folder, 1e9)
        trainer.run(StopAfter(10**9))
        assert (trainer.graph is not None and trainer.graph.replays > 0) == graph
        weights.append(trainer.model.state_dict())
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, rtol=1e-3, atol=1e-4)
