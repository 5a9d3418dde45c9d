"""The body of a network as a CUDA graph: on the CPU beside a stand-in for PyTorch's, which computes
in memory that each call overwrites.
"""

import pytest
import torch
from tests.training.test_trainer import StopAfter, assert_same_result, run

from calgrid.backbones import build_backbone
from calgrid.components import registry
from calgrid.errors import ConfigError
from calgrid.jobs.train import allows_graph, build_trainer
from calgrid.training import environment
from calgrid.training.cuda_graph import Body, GraphedFeatures
from calgrid.training.interrupt import StoppedError
from calgrid.training.protocol import TrainingProtocol

CUDA = torch.device("cuda")
BATCHES = {"batch_size": 25, "checkpoints": ["best", "last", "ema", "swa"]}
SETTINGS = {**BATCHES, "cuda_graph": True}


def graphed(body, sample):
    """What ``torch.cuda.make_graphed_callables`` does, without a graph."""
    parameters = [each for each in body.parameters() if each.requires_grad]
    given = sample[0].clone()
    for _ in range(3):
        torch.autograd.grad(body(given).sum(), parameters)
    returned = torch.empty_like(body(given)).detach()
    gradients = [torch.empty_like(each) for each in parameters]
    calls = []

    class Replay(torch.autograd.Function):
        @staticmethod
        def forward(ctx, images, *_):
            given.copy_(images)
            with torch.enable_grad():
                calls.append(body(given))
            return returned.copy_(calls[-1]).detach()

        @staticmethod
        def backward(ctx, upstream):
            found = torch.autograd.grad(calls[-1], parameters, upstream)
            for gradient, new in zip(gradients, found, strict=True):
                gradient.copy_(new)
            return None, *(each.detach() for each in gradients)

    def replay(images):
        assert images.shape == given.shape
        return Replay.apply(images, *parameters)

    replay.calls = calls
    return replay


@pytest.fixture
def build(prepared, make_spec, monkeypatch):
    """Build a trainer whose network is a graph by the stand-in; ``graphs`` are those."""
    graphs = []

    def keep(body, sample):
        graphs.append(graphed(body, sample))
        return graphs[-1]

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", keep)

    def make(folder, method="ce", **changes):
        trainer = build_trainer(
            make_spec(method, **{**SETTINGS, **changes}),
            prepared,
            None,
            torch.device("cpu"),
            folder,
            1e9,
        )
        trainer._use_cuda_graph()
        return trainer

    make.graphs = graphs
    return make


CASES = [("ce", "standard"), ("fedlas_ls", "standard"), ("ce", "mixup")]


@pytest.mark.parametrize(("method", "procedure"), CASES)
def test_a_training_is_that_without_a_graph_also_after_an_interruption(
    method, procedure, build, make_spec, prepared, tmp_path
):
    """Two of the batches of an epoch have the size of the graph, the last one has not."""
    spec = make_spec(method, procedure, **BATCHES)
    plain = run(spec, prepared, tmp_path / "plain")
    with pytest.raises(StoppedError):
        build(tmp_path, method, procedure=procedure).run(StopAfter(3))
    resumed = build(tmp_path, method, procedure=procedure)
    assert_same_result(*plain, resumed, resumed.run(StopAfter(10**9)))
    assert plain[0].last_batch < 25
    assert all(each.calls for each in build.graphs)


def test_making_a_graph_leaves_the_network_as_it_is(build, tmp_path):
    trainer = build(tmp_path)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    assert any(name.endswith("running_mean") for name in before)
    trainer._use_cuda_graph()
    after = trainer.model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_on_the_cpu_there_is_no_graph(make_spec, prepared, tmp_path):
    trainer = run(make_spec(**SETTINGS), prepared, tmp_path)[0]
    assert "features" not in vars(trainer.model)


def test_a_network_that_no_graph_can_hold_is_refused_where_it_was_asked_for(
    build, monkeypatch, tmp_path, refuses, capsys
):
    def fail(body, sample):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", fail)
    with refuses(ConfigError, "cannot be a CUDA graph", "not permitted", "leave cuda_graph out"):
        build(tmp_path)
    assert "features" not in vars(build(tmp_path, cuda_graph="auto").model)
    assert "it is trained without" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({}, True),
        ({"deterministic": True}, False),
        ({"gpus": 2}, False),
        ({"procedure": "mit_l"}, False),
    ],
)
def test_without_being_asked_a_graph_is_used_where_it_can_be(changes, allowed, make_spec):
    spec = make_spec(**changes)
    assert spec["protocol"]["cuda_graph"] == "auto"
    assert allows_graph(spec, TrainingProtocol.model_validate(spec["protocol"])) == allowed


@pytest.mark.parametrize("name", sorted(registry.descriptions("backbone").keys() - {"timm"}))
def test_the_body_has_all_weights_but_those_of_the_head(name):
    with torch.device("meta"):
        backbone = build_backbone(name, 10)
    body = {id(each) for each in Body(backbone).parameters()}
    head = {id(each) for each in backbone.head.parameters()}
    assert body | head == {id(each) for each in backbone.parameters()}
    assert not body & head


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", ["resnet8", "airbench24"])
def test_features_and_gradients_are_those_without_a_graph(name, autocast):
    environment.prepare(CUDA, 1, deterministic=True)
    torch.manual_seed(0)
    backbone = build_backbone(name, 10).to(CUDA, memory_format=torch.channels_last)
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    images = torch.randn(3, 16, 3, 32, 32, device=CUDA)

    def passes(features):
        backbone.load_state_dict(before)
        backbone.train()
        found = []
        for batch in (images[0], images[1], images[2, :7]):
            backbone.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                output = features(batch)
            output.float().square().sum().backward()
            gradients = [
                each.grad.clone() for each in backbone.parameters() if each.grad is not None
            ]
            found.append([output.detach(), *gradients])
        return [*found, [each.clone() for each in backbone.buffers()]]

    plain = passes(backbone.features)
    as_graph = passes(GraphedFeatures(backbone, images[0], autocast))
    for one, other in zip(plain, as_graph, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("method", "procedure"), CASES)
def test_on_a_gpu_a_training_is_near_that_without_a_graph(
    method, procedure, make_spec, prepared, tmp_path
):
    environment.prepare(CUDA, 1, deterministic=True)
    weights = []
    for name in (False, True):
        folder = tmp_path / str(name)
        folder.mkdir()
        spec = make_spec(method, procedure, batch_size=25, cuda_graph=name)
        trainer = build_trainer(spec, prepared, None, CUDA, folder, 1e9)
        trainer.run(StopAfter(10**9))
        weights.append(trainer.model.state_dict())
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, rtol=1e-3, atol=1e-4)
