"""Job ``train`` in several processes, one for each GPU: the first one makes the result."""

import contextlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from calgrid.components.registry import load
from calgrid.datasets import Prepared, open_prepared
from calgrid.errors import ConfigError
from calgrid.jobs.train import OUTPUTS, SAMPLES, build_trainer, write_outputs
from calgrid.procedures.network import build_network
from calgrid.storage.publish import Call, make_result
from calgrid.storage.records import TRAIN, Facts
from calgrid.storage.specs import TrainSpec
from calgrid.training import distributed, environment
from calgrid.training.interrupt import StoppedError, StopRequest
from calgrid.training.procedure import Procedure
from calgrid.training.trainer import Trainer, norm_layers


def check(spec: TrainSpec, data: Path, device: str) -> None:
    """Raise ConfigError if this machine cannot train a run; called before workers start."""
    where, count = environment.choose_device(device), spec["protocol"]["gpus"]
    protocol = spec["key"]["protocol"]
    if where.type == "cuda":
        found = torch.cuda.device_count()
        if found < count:
            raise ConfigError(
                f"Protocol '{protocol}' trains on {count} GPUs and this machine has {found}; give "
                "it a variant with fewer gpus, or use another machine."
            )
    else:
        network, _ = build_network(spec, open_prepared(data).n_classes)
        if norm_layers(network):
            raise ConfigError(
                f"Protocol '{protocol}' trains in {count} processes, and without GPUs PyTorch "
                f"cannot share the batch normalisation of '{spec['key']['backbone']}' among them; "
                "use GPUs, or leave out gpus in the protocol."
            )


def run(call: Call) -> None:
    """Train the run of a job in one of the processes started by ``torchrun``; threads are per
    process.

    See :func:`calgrid.jobs.train.train`.
    """
    spec, data = call.spec, call.reads[0].parent
    with distributed.joined(spec["protocol"]["gpus"]) as process:
        where = environment.choose_device(call.device)
        if where.type == "cuda":
            where = torch.device("cuda", process)
            torch.cuda.set_device(where)
        environment.prepare(where, call.threads, spec["protocol"]["deterministic"])
        prepared = open_prepared(data, fingerprint=spec.get("data"), threads=call.threads)
        images = _in_parts(prepared, spec)

        def build(folder: Path) -> Trainer:
            kind = distributed.DistributedTrainer
            trainer = build_trainer(spec, images, None, where, folder, call.resume_every, kind)
            call.check()  # imported code, before a state is stored
            return trainer

        def produce(folder: Path) -> Facts:
            prepared.verify()
            trainer = build(folder)  # before the others, so that errors are said once
            distributed.from_first(folder)
            with StopRequest() as stop:
                position = trainer.run(stop)
            return write_outputs(folder, spec, trainer, position, where)

        if process == 0:
            if not make_result(call, TRAIN, OUTPUTS, produce, call.digests(), [SAMPLES]):
                distributed.from_first(None)
        elif (folder := distributed.from_first()) is not None:
            # the first process says all of it
            with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(StoppedError):
                trainer = build(folder)
                with StopRequest() as stop:
                    trainer.run(stop)


def _in_parts(prepared: Prepared, spec: TrainSpec) -> Prepared:
    """Data of which a process reads its part of each batch only, if this suffices for the
    procedure.
    """
    if load("procedure", spec["procedure"]["id"]).forward_loss is not Procedure.forward_loss:
        return prepared
    train = prepared.splits["train"]
    parts: Any = distributed.PartOfBatches(train.images)
    return replace(prepared, splits={**prepared.splits, "train": replace(train, images=parts)})
