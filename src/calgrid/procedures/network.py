"""Networks of runs: construction from a specification, and the checkpoints of trained ones."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from calgrid.backbones import planned_backbone
from calgrid.backbones.base import Network, drop_features
from calgrid.components.registry import load
from calgrid.storage import specs
from calgrid.training.procedure import Procedure
from calgrid.training.protocol import TrainingProtocol, read_protocol


def build_network(
    spec: specs.TrainSpec,
    num_classes: int,
    first: Mapping[str, torch.Tensor] | None = None,
    pretrained: bool = False,
) -> tuple[Network, Procedure[Any]]:
    """Build network and procedure of a run; a second stage takes layers from the weights ``first``
    of its first.

    Without ``pretrained``, weights are drawn with the global generator of torch, instead of loading
    published ones.
    """
    key = spec["key"]
    procedure = load("procedure", spec["procedure"]["id"])(**spec["procedure"]["options"])
    backbone = planned_backbone(key["backbone"], num_classes, pretrained)
    protocol = read_protocol(spec["protocol"])
    if isinstance(protocol, TrainingProtocol) and protocol.head_dropout is not None:
        drop_features(backbone, protocol.head_dropout)
    model: Any = procedure.build_model(backbone, num_classes)
    if first is not None:
        procedure.load_first_stage(model, first)
    return model, procedure


def tested_networks(
    states: Mapping[str, Mapping[str, torch.Tensor]],
    spec: specs.TrainSpec,
    checkpoints: Iterable[str],
    num_classes: int,
    device: torch.device,
) -> Iterator[tuple[str, Network, Procedure[Any]]]:
    """Yield each checkpoint of a trained run with its network, on the device, and its procedure."""
    network, procedure = build_network(spec, num_classes)
    network = to_device(network, device, read_protocol(spec["protocol"]).channels_last)
    for checkpoint in checkpoints:
        network.load_state_dict(states[f"{checkpoint}.model"])
        procedure.load_state_dict(states.get(f"{checkpoint}.procedure", {}))
        yield checkpoint, network, procedure


def to_device(network: Network, device: torch.device, channels_last: bool) -> Network:
    """Move a network to a device, in a memory format."""
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    return network.to(device, memory_format=memory_format)  # type: ignore[call-overload]  # torch does not annotate it
