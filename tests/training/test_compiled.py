"""Training with a compiled network: by a stand-in for ``torch.compile``, and by a compiler."""

import shutil

import pytest
import torch
from tests.training.test_trainer import StopAfter, assert_same_result, build, finished, resumed, run

from calgrid.jobs.train import build_trainer
from calgrid.study.protocols import second_stage_of
from calgrid.training import environment
from calgrid.training.protocol import TrainingProtocol

#: the last of three batches of an epoch is smaller than the others
BATCHES = {"batch_size": 25, "checkpoints": ["best", "last", "ema", "swa"]}
SETTINGS = {**BATCHES, "compile": True}
CUDA = torch.device("cuda")


def test_training_alone_is_compiled_for_whole_batches(make_spec, prepared, monkeypatch, tmp_path):
    calls = []

    def stand_in(function, **options):
        return lambda images: calls.append(len(images)) or function(images)

    monkeypatch.setattr(torch, "compile", stand_in)
    plain = run(make_spec(**BATCHES), prepared, tmp_path / "plain")
    assert not calls
    compiled = run(make_spec(**SETTINGS), prepared, tmp_path / "compiled")
    assert_same_result(*plain, *compiled)
    steps = compiled[1].epoch * (compiled[0].steps - 1)
    assert compiled[0].last_batch < 25
    assert calls == [25] * (1 + steps)


def test_without_a_compiler_training_is_plain(make_spec, prepared, monkeypatch, tmp_path, capsys):
    def fail(function, **options):
        raise RuntimeError("No working C++ compiler found\n\nSet TORCHDYNAMO_VERBOSE=1")

    monkeypatch.setattr(torch, "compile", fail)
    trainer, _ = run(make_spec(**SETTINGS), prepared, tmp_path)
    assert trainer.compile_seconds is None
    said = "cannot compile the network: No working C++ compiler found; it is trained without.\n"
    assert said in capsys.readouterr().err


def test_a_second_stage_is_not_compiled(make_spec):
    protocol = TrainingProtocol.model_validate(make_spec(**SETTINGS)["protocol"])
    assert protocol.compile
    assert not second_stage_of(protocol).compile


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_compiled_training_is_near_a_plain_one_and_resumes_exactly(make_spec, prepared, tmp_path):
    plain, _ = run(make_spec(**BATCHES), prepared, tmp_path / "plain")
    compiled = run(make_spec(**SETTINGS), prepared, tmp_path / "compiled")
    assert compiled[0].compile_seconds > 0
    broken = resumed(lambda: build(make_spec(**SETTINGS), prepared, tmp_path), 4)
    assert_same_result(*compiled, *finished(broken))
    weights = compiled[0].model.state_dict()
    for name, tensor in plain.model.state_dict().items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("cuda_graph", [False, True])
def test_on_a_gpu_compiled_training_is_near_a_plain_one(cuda_graph, make_spec, prepared, tmp_path):
    environment.prepare(CUDA, 1, deterministic=True)
    weights = []
    for name in (False, True):
        folder = tmp_path / str(name)
        folder.mkdir()
        spec = make_spec(batch_size=25, compile=name, cuda_graph=name and cuda_graph)
        trainer = build_trainer(spec, prepared, None, CUDA, folder, 1e9)
        trainer.run(StopAfter(10**9))
        assert (trainer.compile_seconds is not None) == name
        weights.append(trainer.model.state_dict())
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, rtol=1e-3, atol=1e-4)
