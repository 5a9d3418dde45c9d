"""Job ``train``: train a run and write ``model.safetensors``, ``history.parquet`` and
``train.json``.

A loss that records training samples adds ``samples.parquet``, with one row per sample and recorded
epoch.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import torch

from calgrid.components import registry
from calgrid.datasets import Prepared, open_prepared
from calgrid.jobs.network import (
    check_images,
    model_description,
    network_record,
    read_images,
    training_images,
)
from calgrid.losses import planned_loss
from calgrid.procedures.network import build_network, to_device
from calgrid.storage.checkpoint import load_checkpoint, save_checkpoint
from calgrid.storage.publish import Call, make_result
from calgrid.storage.records import HISTORY, MODEL, TRAIN, Facts
from calgrid.storage.specs import TrainSpec
from calgrid.storage.tables import write_frame
from calgrid.training import environment
from calgrid.training.interrupt import StopRequest
from calgrid.training.protocol import TrainingProtocol
from calgrid.training.seeds import stream
from calgrid.training.trainer import Trainer, TrainingState

OUTPUTS = (MODEL, HISTORY)
SAMPLES = "samples.parquet"


def run(call: Call) -> bool:
    """Train the run of a job; return False if the result already exists.

    The job reads the manifest of its data and, of a second stage, ``model.safetensors`` of its
    first; ``call.resume_every`` are the seconds between two resume states.
    """
    spec: TrainSpec = call.spec
    data, *models = call.reads
    where = environment.choose_device(call.device)
    environment.prepare(where, call.threads, spec["protocol"]["deterministic"])
    prepared = open_prepared(data.parent, fingerprint=spec.get("data"), threads=call.threads)
    results = call.digests()
    first, wanted = None, spec.get("first_stage")
    if wanted is not None:
        (model,) = models
        states, _ = load_checkpoint(model, wanted["fingerprint"])
        first = states[f"{wanted['checkpoint']}.model"]

    def produce(folder: Path) -> Facts:
        prepared.verify()
        trainer = build_trainer(spec, prepared, first, where, folder, call.resume_every)
        call.check()  # imported code, before a state is stored
        with StopRequest() as stop:
            position = trainer.run(stop)
        return write_outputs(folder, spec, trainer, position, where)

    return make_result(call, TRAIN, OUTPUTS, produce, results, [SAMPLES])


def build_trainer(
    spec: TrainSpec,
    prepared: Prepared,
    first: Mapping[str, torch.Tensor] | None,
    device: torch.device,
    folder: Path,
    resume_every: float,
    kind: Callable[..., Trainer] = Trainer,
) -> Trainer:
    """Trainer of a run from its prepared data, and the state of its first stage or None."""
    key, protocol = spec["key"], TrainingProtocol.model_validate(spec["protocol"])
    if protocol.cuda_graph == "auto" and not allows_graph(spec, protocol):
        protocol = protocol.model_copy(update={"cuda_graph": False})
    classes, seed = prepared.n_classes, key["seed"]
    check_images(key, protocol, prepared)
    torch.manual_seed(stream(seed, "weights"))
    # a second stage takes its layers from the first, which started from the published weights
    model, procedure = build_network(
        spec, classes, first, pretrained=protocol.pretrained and first is None
    )
    torch.manual_seed(stream(seed, "loss weights"))
    loss = planned_loss(spec["loss"]["id"], classes, spec["loss"]["options"]).to(device)
    train_images, val_images = training_images(prepared, protocol, device)
    model = to_device(model, device, protocol.channels_last)
    if first is None:
        read_images(model, train_images)
    return kind(
        model,
        loss,
        procedure,
        protocol,
        train_images,
        val_images,
        seed=seed,
        autocast=protocol.precision == "bf16" and environment.computes_bf16(device),
        folder=folder,
        resume_every=resume_every,
        title=f"train {key['dataset']}/{key['backbone']}/{key['method']}/seed{seed}",
    )


def allows_graph(spec: TrainSpec, protocol: TrainingProtocol) -> bool:
    """Whether a training may be a CUDA graph unasked: its bits may differ from plain training."""
    facts = registry.load("procedure", spec["procedure"]["id"]).registered
    return facts.get("cuda_graph", False) and protocol.gpus == 1 and not protocol.deterministic


def write_outputs(
    folder: Path, spec: TrainSpec, trainer: Trainer, position: TrainingState, device: torch.device
) -> Facts:
    """Write model and history; return the content of the record."""
    last = trainer.states()
    tested = {"last": last, **position.chosen}
    states = {
        f"{checkpoint}.{part}": tested[checkpoint][part]
        for checkpoint in trainer.protocol.checkpoints
        for part in last
    }
    save_checkpoint(folder / MODEL, states, model_description(spec))
    write_frame(folder / HISTORY, pd.DataFrame(position.history).astype({"epoch": "int32"}))
    if position.samples:
        epochs = pd.concat([pd.DataFrame(table) for table in position.samples], ignore_index=True)
        write_frame(folder / SAMPLES, epochs.astype({"epoch": "int32"}))
    return {
        **network_record(spec, trainer.model, position.seconds, device),
        "precision": "bf16" if trainer.autocast else "fp32",
        "images": "streamed" if trainer.streamed else "resident",
        "cuda_graph": trainer.graph is not None and trainer.graph.replays > 0,
        "compile_seconds": trainer.compile_seconds,
        "epochs": position.epoch,
        "interruptions": position.interruptions,
        "last_batch": trainer.last_batch,
        "trained_parameters": sum(p.numel() for p in trainer.trained),
    }
