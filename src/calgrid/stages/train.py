"""Stage ``train``: one run from its specification to ``model.safetensors``, ``history.parquet`` and ``train.json``.

A loss that records its training samples adds ``samples.parquet``: one row a sample and sampled epoch. Where weights are
taken as they are, nothing is trained: the history has no rows, and the record says where they come from.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from calgrid.backbones import build_backbone
from calgrid.backbones._catalogue import check_image_size, describe
from calgrid.backbones._focal_calibration import load_checkpoint as load_published_checkpoint
from calgrid.backbones.base import Backbone, HeadDropout
from calgrid.conventions import TRAINED
from calgrid.datasets import Prepared, open_prepared
from calgrid.datasets._download import download_pinned
from calgrid.errors import DataError, StateError
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure
from calgrid.storage.checkpoint import load_checkpoint, save_checkpoint
from calgrid.storage.records import MODEL, TRAIN, Record, sha256_of
from calgrid.storage.sources import record
from calgrid.storage.stage import run_stage
from calgrid.storage.tables import write_frame
from calgrid.training import environment
from calgrid.training.data import DeviceImages
from calgrid.training.interrupt import StopRequest
from calgrid.training.procedure import Procedure
from calgrid.training.seeds import stream
from calgrid.training.trainer import Position, Trainer

OUTPUTS = (MODEL, "history.parquet")
SAMPLES = "samples.parquet"


def train(
    spec: Mapping[str, Any],
    data: Path,
    out: Path,
    *,
    first_stage: Path | None = None,
    data_root: Path | None = None,
    device: str = "auto",
    threads: int = 1,
    resume_every: float = 60.0,
) -> bool:
    """Train the run that ``spec`` describes and publish its files in ``out``.

    Parameters
    ----------
    spec : resolved run (``calgrid.configuration.plan``): key, protocol, procedure, loss, seed, fingerprints.
    data : folder of the prepared data set.
    first_stage : model.safetensors of the first stage, for second stages.
    data_root : folder for published checkpoints, where the weights are such.
    resume_every : seconds between two resume states.

    Returns
    -------
    False if another process had already finished the same run, else True.
    """
    where = environment.choose_device(device)
    environment.prepare(where, threads, spec["protocol"]["deterministic"])
    first = _first_stage_state(spec, first_stage)
    prepared = open_prepared(data, fingerprint=spec.get("data"))
    inputs = {"data": prepared.digest}
    if first is not None and first_stage is not None:
        inputs["first_stage"] = model_digest(first_stage)

    def produce(folder: Path) -> Mapping[str, Any]:
        prepared.verify()
        if spec["protocol"]["weights"] != TRAINED:
            return _take_weights(folder, spec, prepared, data_root, where)
        trainer = _build_trainer(spec, prepared, first, where, folder, resume_every)
        with StopRequest() as stop:
            position = trainer.run(stop)
        return _write_outputs(folder, spec, trainer, position, where)

    return run_stage(
        out, "train", spec["fingerprint"], OUTPUTS, produce, record=TRAIN, inputs=inputs, optional=[SAMPLES]
    )


def model_digest(model: Path) -> str:
    """SHA-256 of a run's model, as its record has it; of the file where it lies elsewhere, without a record."""
    recorded = model.with_name(TRAIN).is_file()
    return Record.read(model.parent, TRAIN).sha256(model.name) if recorded else sha256_of(model)


def build_network(
    spec: Mapping[str, Any],
    num_classes: int,
    first: Mapping[str, torch.Tensor] | None = None,
    pretrained: bool = False,
) -> tuple[nn.Module, Procedure]:
    """Network and procedure of a run, its weights drawn (global generator), published, or those of a first stage."""
    key = spec["key"]
    procedure = build_procedure(spec["procedure"]["id"], **spec["procedure"]["options"])
    backbone = build_backbone(key["backbone"], num_classes, pretrained)
    if "head_dropout" in spec["protocol"]:
        HeadDropout(spec["protocol"]["head_dropout"]).on(backbone)
    model = procedure.build_model(backbone, num_classes)
    if first is not None:
        procedure.load_first_stage(model, first)
    return model, procedure


def to_device(network: nn.Module, protocol: Mapping[str, Any], device: torch.device) -> nn.Module:
    """Put a network on the device, its convolutions in the memory format of the protocol."""
    memory_format = torch.channels_last if protocol["channels_last"] else torch.contiguous_format
    return network.to(device, memory_format=memory_format)


def _first_stage_state(spec: Mapping[str, Any], path: Path | None) -> Mapping[str, torch.Tensor] | None:
    wanted = spec.get("first_stage")
    if wanted is None:
        return None
    if path is None:
        raise StateError(
            f"Method '{spec['key']['method']}' needs the checkpoint of its first stage: give --first-stage."
        )
    states, _ = load_checkpoint(path, wanted["fingerprint"])
    return states[f"{wanted['checkpoint']}.model"]


def _build_trainer(
    spec: Mapping[str, Any],
    prepared: Prepared,
    first: Mapping[str, torch.Tensor] | None,
    device: torch.device,
    folder: Path,
    resume_every: float,
) -> Trainer:
    key, protocol = spec["key"], spec["protocol"]
    classes, seed = prepared.n_classes, key["seed"]
    _check_images(key, protocol, prepared)
    torch.manual_seed(stream(seed, "weights"))
    # a second stage takes its body from the first, which began with the published weights
    model, procedure = build_network(spec, classes, first, pretrained=protocol["pretrained"] and first is None)
    torch.manual_seed(stream(seed, "loss weights"))
    loss = build_loss(spec["loss"]["id"], classes, **spec["loss"]["options"]).to(device)
    train_images, val_images = (
        device_images(prepared, split, device, protocol["channels_last"], protocol["crop_size"])
        for split in ("train", "val")
    )
    return Trainer(
        to_device(model, protocol, device),
        loss,
        procedure,
        protocol,
        train_images,
        val_images,
        seed=seed,
        autocast=protocol["precision"] == "bf16" and environment.computes_bf16(device),
        folder=folder,
        resume_every=resume_every,
        title=f"train {key['dataset']}/{key['backbone']}/{key['method']}/seed{seed}",
    )


def _check_images(key: Mapping[str, Any], protocol: Mapping[str, Any], prepared: Prepared) -> None:
    crop = protocol["crop_size"]
    height, width = (crop, crop) if crop else prepared.splits["test"].images.shape[-2:]
    check_image_size(describe(key["backbone"]), height, width, f"data set '{key['dataset']}'")


def device_images(
    prepared: Prepared, split: str, device: torch.device, channels_last: bool, crop_size: int | None = None
) -> DeviceImages:
    """Put a prepared split on the device with the normalisation of its data set."""
    arrays = prepared.splits[split]
    return DeviceImages(arrays.images, arrays.labels, prepared.mean, prepared.std, device, channels_last, crop_size)


def _write_outputs(
    folder: Path, spec: Mapping[str, Any], trainer: Trainer, position: Position, device: torch.device
) -> dict[str, Any]:
    """Write model and history; return what the record says."""
    last = trainer.states()
    tested = {"best": position.best, "last": last}
    states = {
        f"{checkpoint}.{part}": tested[checkpoint][part]
        for checkpoint in spec["protocol"]["checkpoints"]
        for part in last
    }
    save_checkpoint(folder / MODEL, states, {"fingerprint": spec["fingerprint"], "spec": dict(spec)})
    write_frame(folder / "history.parquet", pd.DataFrame(position.history).astype({"epoch": "int32"}))
    if position.samples:
        epochs = pd.concat([pd.DataFrame(table) for table in position.samples], ignore_index=True)
        write_frame(folder / SAMPLES, epochs.astype({"epoch": "int32"}))
    return {
        **_record(spec, trainer.model, position.seconds, device),
        "precision": "bf16" if trainer.autocast else "fp32",
        "epochs": position.epoch,
        "interruptions": position.interruptions,
        "last_batch": trainer.last_batch,
        "trained_parameters": sum(p.numel() for p in trainer.trained),
    }


def _take_weights(
    folder: Path, spec: Mapping[str, Any], prepared: Prepared, data_root: Path | None, device: torch.device
) -> dict[str, Any]:
    """Write the outputs of a run whose weights are taken as they are; return what the record says."""
    key, begin = spec["key"], time.monotonic()
    _check_images(key, spec["protocol"], prepared)
    known = describe(key["backbone"]).info["parameters"]
    if prepared.n_classes not in known:
        raise DataError(
            f"Data set '{key['dataset']}' has {prepared.n_classes} classes, the published weights of "
            f"'{key['backbone']}' {', '.join(map(str, known))}: fine-tune them (pretrained: true)."
        )
    model, _ = build_network(spec, prepared.n_classes, pretrained="checkpoint" not in spec)
    source = _take_checkpoint(model, spec["checkpoint"], data_root) if "checkpoint" in spec else model.published()
    description = {"fingerprint": spec["fingerprint"], "spec": dict(spec)}
    save_checkpoint(folder / MODEL, {"last.model": model.state_dict()}, description)
    write_frame(folder / "history.parquet", pd.DataFrame({"epoch": pd.Series(dtype="int32")}))
    return {
        **_record(spec, model, time.monotonic() - begin, device),
        "epochs": 0,
        "interruptions": 0,
        "trained_parameters": 0,
        "weights": {"source": spec["protocol"]["weights"], **source},
    }


def _take_checkpoint(model: Backbone, file: Mapping[str, str], data_root: Path | None) -> dict[str, Any]:
    """Load a published checkpoint; return where it comes from."""
    if data_root is None:
        raise DataError(f"Give a data_root, the folder for {file['name']} from {file['url']}.")
    path = download_pinned(file, data_root / file["folder"])
    load_published_checkpoint(model, path)
    trusted = {"verified_by": "the checksum of its first use here; none is published"}
    return {"url": file["url"], **record(path, f"{file['folder']}/{file['name']}"), **trusted}


def _record(spec: Mapping[str, Any], model: nn.Module, seconds: float, device: torch.device) -> dict[str, Any]:
    """What the records of all trained or taken networks say."""
    return {
        **environment.run_record(spec, seconds, device),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
