"""Losses, trainings, predictions and probes on a device beside the CPU: nothing mixes the two, the
numbers are those of the CPU, and no step waits for the device.
"""

import contextlib

import numpy as np
import pandas as pd
import pytest
import torch
from tests.losses.cases import random_batch
from tests.procedures.test_every_procedure import ONE_STAGE, OPTIONS, PROCEDURES
from tests.training.elsewhere import DEVICE, Elsewhere, other_device
from tests.training.test_trainer import StopAfter

from calgrid.components import registry
from calgrid.jobs import network, predict
from calgrid.jobs.predict import KeptFile, _Exporter
from calgrid.jobs.train import build_trainer
from calgrid.losses import build_loss
from calgrid.probes import build_probe
from calgrid.probes.base import Subject
from calgrid.procedures import network as networks
from calgrid.training import data, environment, trainer
from calgrid.training.cuda_graph import HostWatch
from calgrid.training.interrupt import StoppedError

pytestmark = pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
EXPORT = {"export_features": True, "test_normalisation": {}}
TRAININGS = {
    **{
        name: {"procedure": name, "procedure_options": OPTIONS.get(name)}
        for name in PROCEDURES
        if name != "standard"
    },
    "random indicator": {"loss": "fedlas_ls", "loss_options": {"indicator": "random"}},
    "adamw": {
        "optimizer": {"name": "adamw", "lr": 0.001},
        "head_dropout": 0.5,
        "augmentation": {"augmix": {"depth": 1, "width": 1}},
    },
    "recipe": {
        "loss": "fedlas_ls",
        "lookahead": {"every": 2},
        "reduction": "sum",
        "crop_size": 6,
        "disjoint_validation": True,
        "checkpoints": ["last", "ema", "swa"],
        "augmentation": {
            "crop_padding": 2,
            "padding_mode": "reflect",
            "flip": "alternate",
            "randaugment": {"n": 1},
        },
    },
}


@pytest.mark.parametrize("name", registry.descriptions("loss"))
def test_a_loss_is_that_of_the_cpu_and_does_not_wait(name, monkeypatch):
    batch = (*random_batch(0, 12, 5), torch.rand(12, 3), torch.arange(12))

    def found(device, waits):
        torch.manual_seed(0)
        loss = build_loss(name, 5).to(device)
        logits, labels, features, index = (each.clone().to(device) for each in batch)
        loss.begin_training(labels)
        logits.requires_grad_()
        values = []
        for epoch in range(2):
            begin = len(waits)
            total = loss(logits, labels, features, index)
            total.backward()
            loss.after_step(logits.detach(), labels, index)
            waited = waits[begin:]  # in the second epoch: the first call checks the labels
            values += [total.detach().cpu(), logits.grad.clone().cpu()]
            loss.pop_diagnostics()
            loss.end_epoch(epoch, logits.detach(), labels)
        assert not waited
        return [*values, *(each.cpu() for each in loss.state_dict().values())]

    expected = found(CPU, [])
    with other_device(monkeypatch) as device:
        values = found(DEVICE, device.waits)
    assert all(map(torch.equal, values, expected))


@pytest.fixture
def start(make_spec, prepared, tmp_path):
    """Start a training on a device; ``folder`` is that of an interrupted one."""
    first = None

    def make(device, folder="", **changes):
        nonlocal first
        wanted = changes.get("procedure", "standard") not in ONE_STAGE
        if wanted and first is None:
            (tmp_path / "first").mkdir()
            plain = build_trainer(make_spec(), prepared, None, CPU, tmp_path / "first", 1e9)
            first = plain.model.state_dict()
        folder = tmp_path / (folder or device.type)
        folder.mkdir(exist_ok=True)
        # two batches an epoch, of 25 and 15 images
        spec = make_spec(**{"epochs": 2, "batch_size": 25, **changes})
        return build_trainer(spec, prepared, first if wanted else None, device, folder, 1e9)

    return make


def results(trainer):
    """History and weights at the end of a training, on the CPU."""
    history = trainer.run(StopAfter(10**9)).history
    states = trainer.states().values()
    tensors = {name: tensor.cpu() for state in states for name, tensor in state.items()}
    return repr(history), tensors


def assert_same(one, other):
    assert one[0] == other[0]
    assert one[1].keys() == other[1].keys()
    assert all(torch.equal(one[1][name], other[1][name]) for name in one[1])


@pytest.mark.parametrize("training", TRAININGS)
def test_a_training_is_that_of_the_cpu_and_its_steps_do_not_wait(training, start, monkeypatch):
    changes = TRAININGS[training]
    expected = results(start(CPU, **changes))
    with other_device(monkeypatch) as device:
        trainer = start(DEVICE, **changes)
        step, waited = trainer._train_step, []
        compute, watch = trainer._compute, HostWatch()

        def counted(index):
            before = len(device.waits)
            step(index)
            waited.append(device.waits[before:])

        def watched(batch):
            with watch if len(waited) == 1 else contextlib.nullcontext():
                return compute(batch)

        trainer._train_step, trainer._compute = counted, watched
        found = results(trainer)
        tensors = [*trainer.model.state_dict().values(), *trainer.loss.buffers()]
    assert_same(found, expected)
    assert all(isinstance(each, Elsewhere) for each in tensors)
    for states in trainer.position.chosen.values():
        chosen = [each for state in states.values() for each in state.values()]
        assert not any(isinstance(each, Elsewhere) for each in chosen)
    assert waited[1:] == [[]] * (len(waited) - 1)  # the first checks the labels
    # the random indicator is drawn on the CPU; adamw is fused on a GPU alone
    needs_the_host = training == "random indicator"
    capable = trainer.procedure.registered.get("cuda_graph", False) and training != "adamw"
    assert bool(watch.found) == needs_the_host or not capable


def test_the_terms_of_an_epoch_and_the_weights_of_two_checkpoints_are_read_once(start, monkeypatch):
    def waits(folder, **changes):
        training = start(DEVICE, folder, epochs=1, **changes)
        finish, before = training._finish_epoch, []
        training._finish_epoch = lambda: before.append(len(device.waits)) or finish()
        training.run(StopAfter(10**9))
        return len(device.waits) - before[0]

    with other_device(monkeypatch) as device:
        plain = waits("plain", checkpoints=["best"])
        assert waits("terms", checkpoints=["best"], loss="mdca_nll") == plain
        assert waits("both", checkpoints=["best", "refined"]) == plain


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("training", TRAININGS)
def test_a_deterministic_training_on_a_gpu_repeats_itself_and_steps_do_not_wait(training, start):
    environment.prepare(CUDA, 1, deterministic=True)
    runs = []
    for folder in ("one", "two"):
        trainer = start(CUDA, folder, **TRAININGS[training])
        trainer._train_step = never_waiting(trainer._train_step)
        runs.append(results(trainer))
    assert_same(*runs)


def never_waiting(step):
    """The step of a trainer, which may wait for the GPU only when it is taken first."""
    taken = []

    def checked(index):
        torch.cuda.set_sync_debug_mode("error" if taken else "default")
        try:
            step(index)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        taken.append(index)

    return checked


def test_an_interrupted_training_goes_on_on_another_device(start, monkeypatch):
    """To the CPU in the second epoch, and back for its last step."""
    monkeypatch.setattr(network, "HELD_BYTES", 0)
    changes = {"loss": "fedlas_ls", "procedure": "plp", "lookahead": {"every": 2}, "batch_size": 16}
    changes["checkpoints"] = ["best", "last", "ema", "swa"]
    expected = results(start(CPU, **changes))
    with other_device(monkeypatch), pytest.raises(StoppedError):
        start(DEVICE, "broken", **changes).run(StopAfter(3))
    on_cpu = start(CPU, "broken", **changes)
    assert (on_cpu.position.epoch, on_cpu.position.step) == (1, 1)
    assert on_cpu.streamed
    with pytest.raises(StoppedError):
        on_cpu.run(StopAfter(0))
    with other_device(monkeypatch):
        assert_same(results(start(DEVICE, "broken", **changes)), expected)


@pytest.mark.parametrize("procedure", ["standard", "vtst"])
def test_predictions_and_probes_are_those_of_the_cpu(
    procedure, start, make_spec, prepared, monkeypatch, tmp_path
):
    trainer = start(CPU, procedure=procedure)
    spec = make_spec(procedure=procedure)
    states = {f"last.{part}": state for part, state in trainer.states().items()}
    export = {**EXPORT, "key": spec["key"], "test_views": "mirror_translate"}

    def found(device):
        ((_, model, method),) = networks.tested_networks(states, spec, ["last"], 4, device)
        exporter = _Exporter(export, prepared, model, method, device, trainer.protocol)
        file = KeptFile(tmp_path, device.type, {})
        subject = Subject(model, method, prepared, device, channels_last=True)
        attack = build_probe("margin_attack", samples=4)
        probes = [attack, build_probe("prototypes")]
        if method.linear_head:
            probes.append(build_probe("masking", draws=1))
        return exporter.split(file, "test", {}), [probe.measure(subject) for probe in probes]

    logits, tables = found(CPU)
    with other_device(monkeypatch):
        logits_there, tables_there = found(DEVICE)
    assert np.array_equal(logits.logits, logits_there.logits)
    assert np.array_equal(logits.features, logits_there.features)
    for table, there in zip(tables, tables_there, strict=True):
        pd.testing.assert_frame_equal(table, there)


@pytest.mark.parametrize("kind", [data.DeviceImages, data.StreamedImages])
def test_the_last_of_several_batches_is_filled_with_its_last_image_there(kind, monkeypatch):
    images = np.arange(10 * 3 * 16, dtype=np.uint16).astype(np.uint8).reshape(10, 3, 4, 4)
    arguments = images, np.arange(10), (0.5,) * 3, (0.25,) * 3
    (whole,) = kind(*arguments, CPU, True).batches(10)
    with other_device(monkeypatch):
        split = kind(*arguments, DEVICE, True)
        (alone,) = split.batches(16, filled=True)
        batches = list(split.batches(4, filled=True))
        found = torch.cat([batch.images for batch in batches]).cpu()
        index = torch.cat([batch.index for batch in batches]).cpu()
        labels = torch.cat([batch.labels for batch in batches]).cpu()
    assert len(alone) == 10
    assert [len(batch) for batch in batches] == [4, 4, 4]
    assert index.tolist() == labels.tolist() == [*range(10), 9, 9]
    assert torch.equal(found, whole.images[index])


def test_validation_and_predictions_have_one_shape_of_batches_there(
    start, make_spec, prepared, monkeypatch, tmp_path
):
    """Within rounding they are those of the CPU: products of more rows are summed otherwise."""
    monkeypatch.setattr(predict, "EVALUATION_BATCH", 8)
    monkeypatch.setattr(trainer, "EVALUATION_BATCH", 8)
    trained = start(CPU).states()
    states = {f"last.{part}": state for part, state in trained.items()}
    spec = make_spec()
    export = {**EXPORT, "key": spec["key"], "test_views": "mirror"}

    def found(device):
        ((_, model, method),) = networks.tested_networks(states, spec, ["last"], 4, device)
        sizes, plain = [], model.features
        model.features = lambda images: sizes.append(len(images)) or plain(images)
        training = start(device, f"on {device.type}")
        exporter = _Exporter(export, prepared, model, method, device, training.protocol)
        logits = exporter.split(KeptFile(tmp_path, device.type, {}), "test", {})
        return sizes, logits, training._validation_logits().cpu()

    sizes, logits, validation = found(CPU)
    with other_device(monkeypatch):
        sizes_there, logits_there, validation_there = found(DEVICE)
    assert sizes == [8] * 4 + [4] * 2
    assert sizes_there == [8] * 6
    np.testing.assert_allclose(logits_there.logits, logits.logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(logits_there.features, logits.features, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(validation_there, validation)
