"""Protocols (``config/protocols``), variants of them in a configuration, and published checkpoints.

A protocol describes the training of networks, or the source of trained weights.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from calgrid.components import registry
from calgrid.configuration.components import STANDARD, Method
from calgrid.configuration.files import fill_defaults, read_mapping, validate
from calgrid.errors import ConfigError, unknown_id
from calgrid.specs import CheckpointFile, Protocol
from calgrid.training.schedule import epoch_batches

#: value of ``weights`` of a protocol that trains networks
TRAINED = "trained"
#: keys that a protocol with published weights may have, and the values of the others
READY_KEYS = ("weights", "deterministic", "channels_last", "export_features", "test_normalisation")
READY = {
    "epochs": 0,
    "batch_size": 0,
    "checkpoints": ["last"],
    "pretrained": False,
    "crop_size": None,
    "disjoint_validation": False,
}
FOCAL_CALIBRATION = "focal_calibration"
#: address of the checkpoints of torrvision/focal_calibration; our names -> its folders and networks
ADDRESS = "https://www.robots.ox.ac.uk/~viveka/focal_calibration"
FOLDERS = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}
NETWORKS = {
    "resnet50": "resnet50",
    "resnet110": "resnet110",
    "wrn26_10": "wide_resnet",
    "densenet121": "densenet121",
}
#: our losses -> hyper-parameters of the checkpoints, and the loss in their file names
LOSSES: Mapping[str, tuple[Mapping[str, float], str]] = {
    "ce": ({}, "cross_entropy"),
    "brier": ({}, "brier_score"),
    "mmce_w": ({"lambda_": 2.0}, "mmce_weighted_lamda_2.0"),
    "ls": ({"alpha": 0.05}, "cross_entropy_smoothed_smoothing_0.05"),
    "flsd53": ({"gamma": 3.0, "gamma_hard": 5.0}, "focal_loss_adaptive_53"),
    "fl3": ({"gamma": 3.0}, "focal_loss_gamma_3.0"),
}
#: epochs in the file names, and the exceptions (dataset, backbone, loss) in the evaluation scripts
EPOCHS = 350
OTHER_EPOCHS = {("cifar10", "wrn26_10", "brier"): 550, ("cifar100", "resnet110", "brier"): 430}


class ProtocolCatalog:
    """Protocols, the files ``config/protocols/<id>.yaml`` in ``home``, and variants of them.

    ``variants`` maps names to {"base": id, key: value, ...}; nested mappings are merged.
    """

    def __init__(self, home: Path, variants: Mapping[str, Mapping[str, Any]]) -> None:
        self.schema, self.variants = (
            home / "workflow" / "schemas" / "protocol.schema.yaml",
            variants,
        )
        self.files = {
            path.stem: path for path in sorted((home / "config" / "protocols").glob("*.yaml"))
        }
        for name in variants:
            if name in self.files:
                raise ConfigError(
                    f"protocols.{name}: a protocol file has this name; choose another one."
                )
            self.get(name, f"protocols.{name}")

    def get(self, name: str, where: str) -> Protocol:
        """Return a protocol with all defaults and without its description.

        An unknown name or an invalid protocol raises ConfigError.
        """
        if name in self.variants:
            change = {key: value for key, value in self.variants[name].items() if key != "base"}
            raw = merge(
                self._read(self.variants[name]["base"], f"{where}.base", self.files), change
            )
        else:
            raw = self._read(name, where, [*self.files, *self.variants])
        at = f"protocol '{name}'"
        validate(raw, self.schema, at)
        filled = fill_defaults({"augmentation": {}, **raw}, self.schema)
        del filled["description"]
        protocol = cast(Protocol, filled)
        known = [id for id, each in registry.specs("dataset").items() if each.info.get("mean")]
        for used in itertools.chain.from_iterable(protocol["test_normalisation"].items()):
            if used not in known:
                raise unknown_id("data set", used, known, f"{at}: test_normalisation")
        if not trains(protocol):
            if extra := sorted(set(raw) - {"description", *READY_KEYS}):
                weights = f"weights: {filled['weights']}"
                raise ConfigError(
                    f"{at}: with {weights} nothing is trained; remove {', '.join(extra)}."
                )
            return cast(Protocol, {**{key: filled[key] for key in READY_KEYS}, **READY})
        _check_schedule(protocol, at)
        if "second_stage" in protocol:
            _check_schedule(for_stage(protocol, second=True), f"{at}: second_stage")
        return protocol

    def _read(self, name: str, where: str, known: Iterable[str]) -> dict[str, Any]:
        if name not in self.files:
            raise unknown_id("protocol", name, known, where)
        return read_mapping(self.files[name], f"The protocol file {self.files[name]}")


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` updated with ``change``; nested mappings are merged."""
    result = dict(base)
    for key, value in change.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merge(result[key], value) if both else value
    return result


def trains(protocol: Protocol) -> bool:
    """Whether a protocol trains networks, rather than using published weights."""
    return protocol["weights"] == TRAINED


def for_stage(protocol: Protocol, second: bool) -> Protocol:
    """Return the protocol of the first or of the second stage."""
    own = {key: value for key, value in protocol.items() if key != "second_stage"}
    change = protocol.get("second_stage", {}) if second else {}
    # a schedule is replaced and not merged: milestones of the first stage do not apply to the
    # second
    schedule = {"schedule": change["schedule"]} if "schedule" in change else {}
    return cast(Protocol, {**merge(own, change), **schedule})


def cropped(size: Sequence[int] | None, protocol: Protocol, where: str) -> tuple[int, int] | None:
    """Height and width of network inputs for images of ``size`` (height, width), or None if
    unknown.

    Images that are smaller than the crop or the padding raise ConfigError.
    """
    crop, padding = (
        protocol["crop_size"],
        protocol["augmentation"]["crop_padding"] if trains(protocol) else 0,
    )
    does = {
        f"crops images to {crop}x{crop} pixels": crop or 0,
        f"pads images by {padding} pixels": padding,
    }
    for what, pixels in does.items():
        if size is not None and pixels > min(size):
            raise ConfigError(
                f"{where}: the protocol {what}, but these have {size[0]}x{size[1]}; use larger "
                f"images or another "
                "protocol."
            )
    if crop:
        return crop, crop
    return None if size is None else (size[0], size[1])


def check_batches(protocol: Protocol, samples: int, where: str) -> None:
    """Raise ConfigError if an epoch over ``samples`` images has no batch or a last batch of one
    image.
    """
    size = protocol["batch_size"]
    try:
        _, last = epoch_batches(samples, protocol)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if last == 1 < size:
        raise ConfigError(
            f"{where}: {samples} training images in batches of {size} leave a last batch of one "
            f"image; set drop_last: "
            "true or another batch_size in the protocol."
        )


def checkpoint_file(dataset: str, backbone: str, method: Method, where: str) -> CheckpointFile:
    """Name, folder and URL of the checkpoint of torrvision/focal_calibration for a run, as in its
    evaluation scripts.

    A run without such a checkpoint raises ConfigError.
    """
    options, loss = LOSSES.get(method.loss, ({}, None))
    plain = method.procedure == STANDARD and method.first_stage is None
    same = all(method.loss_options[name] == value for name, value in options.items())
    if dataset not in FOLDERS or backbone not in NETWORKS or loss is None or not plain or not same:
        trained = ", ".join(
            " ".join([id, *(f"{k}={v}" for k, v in own.items())]) for id, (own, _) in LOSSES.items()
        )
        raise ConfigError(
            f"{where}: torrvision/focal_calibration published no checkpoint of '{method.id}' with "
            f"'{backbone}' on "
            f"'{dataset}'; available: {trained} with {', '.join(NETWORKS)} on {', '.join(FOLDERS)}."
        )
    epochs = OTHER_EPOCHS.get((dataset, backbone, method.loss), EPOCHS)
    name, folder = f"{NETWORKS[backbone]}_{loss}_{epochs}.model", FOLDERS[dataset]
    return {
        "name": name,
        "folder": f"{FOCAL_CALIBRATION}/{folder}",
        "url": f"{ADDRESS}/{folder}/{name}",
    }


def _check_schedule(protocol: Protocol, where: str) -> None:
    if protocol["optimizer"]["nesterov"] and not protocol["optimizer"]["momentum"]:
        raise ConfigError(f"{where}: optimizer.nesterov needs a momentum above 0; set one.")
    milestones, warmup = protocol["schedule"]["milestones"], protocol["schedule"]["warmup_epochs"]
    if any(second <= first for first, second in itertools.pairwise(milestones)):
        raise ConfigError(f"{where}: schedule.milestones must ascend, got {milestones}.")
    if warmup >= protocol["epochs"]:
        raise ConfigError(
            f"{where}: schedule.warmup_epochs must be fewer than the {protocol['epochs']} epochs, "
            f"got {warmup}."
        )
    if late := [m for m in milestones if m >= protocol["epochs"]]:
        raise ConfigError(
            f"{where}: milestone {late[0]} is not before the last of {protocol['epochs']} epochs; "
            f"remove it or train "
            "longer."
        )
