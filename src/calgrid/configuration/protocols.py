"""Protocols: files in ``config/protocols`` and the variants that a configuration makes of them."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from calgrid import registry
from calgrid.configuration.reading import read_mapping
from calgrid.configuration.schema import fill_defaults, validate
from calgrid.conventions import TRAINED
from calgrid.errors import ConfigError, unknown_id
from calgrid.training.schedule import epoch_batches

#: keys that mean something in a protocol that trains nothing, and what the others are where they must be something
READY_KEYS = ("weights", "deterministic", "channels_last", "export_features", "test_normalisation")
READY = MappingProxyType(
    {
        "epochs": 0,
        "batch_size": 0,
        "checkpoints": ("last",),
        "pretrained": False,
        "crop_size": None,
        "disjoint_validation": False,
    }
)


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the keys of ``change``, nested mappings merged level by level."""
    result = dict(base)
    for key, value in change.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merge(result[key], value) if both else value
    return result


class ProtocolBook:
    """All protocols that a configuration can name.

    Parameters
    ----------
    folder : folder of protocol files, ``<id>.yaml``.
    schema : path of protocol.schema.yaml.
    variants : name -> {"base": id, key: value, ...}.
    """

    def __init__(self, folder: Path, schema: Path, variants: Mapping[str, Mapping[str, Any]]) -> None:
        self.folder, self.schema, self.variants = Path(folder), Path(schema), variants
        self.files = {path.stem: path for path in sorted(self.folder.glob("*.yaml"))}
        for name in variants:
            if name in self.files:
                raise ConfigError(f"protocols.{name}: there is a protocol file of that name; choose another one.")
            self.get(name, f"protocols.{name}")

    def get(self, name: str, where: str) -> dict[str, Any]:
        """Return a protocol with all defaults filled in, without its description.

        Raises ConfigError for an unknown name or a protocol that does not follow the schema.
        """
        if name in self.variants:
            change = {key: value for key, value in self.variants[name].items() if key != "base"}
            raw = merge(self._read(self.variants[name]["base"], f"{where}.base", self.files), change)
        else:
            raw = self._read(name, where, [*self.files, *self.variants])
        validate(raw, self.schema, f"protocol '{name}'")
        filled = fill_defaults({"augmentation": {}, **raw}, self.schema)
        _check_constants(filled["test_normalisation"], f"protocol '{name}': test_normalisation")
        if not trains(filled):
            return _ready(raw, filled, f"protocol '{name}'")
        _check(filled, f"protocol '{name}'")
        if "second_stage" in filled:
            _check(for_stage(filled, second=True), f"protocol '{name}': second_stage")
        return {key: value for key, value in filled.items() if key != "description"}

    def _read(self, name: str, where: str, known: Iterable[str]) -> dict[str, Any]:
        if name not in self.files:
            raise unknown_id("protocol", name, known, where)
        return read_mapping(self.files[name], f"The protocol file {self.files[name]}")


def trains(protocol: Mapping[str, Any]) -> bool:
    """Does a protocol train networks, or take them as they are?"""
    return protocol["weights"] == TRAINED


def for_stage(protocol: Mapping[str, Any], second: bool) -> dict[str, Any]:
    """Return the protocol of the first or of the second stage."""
    own = {key: value for key, value in protocol.items() if key != "second_stage"}
    if not second:
        return own
    change = protocol.get("second_stage", {})
    # a schedule is replaced as a whole: milestones of the first stage mean nothing in the second
    schedule = {"schedule": change["schedule"]} if "schedule" in change else {}
    return {**merge(own, change), **schedule}


def _ready(raw: Mapping[str, Any], filled: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A protocol that trains nothing, without the keys that would say how."""
    if extra := sorted(set(raw) - {"description", *READY_KEYS}):
        raise ConfigError(f"{where}: weights: {filled['weights']} trains nothing; remove {', '.join(extra)}.")
    return {**{key: filled[key] for key in READY_KEYS}, **READY, "checkpoints": list(READY["checkpoints"])}


def cropped(size: Sequence[int] | None, protocol: Mapping[str, Any], where: str) -> tuple[int, ...] | None:
    """Height and width that a network sees of images of ``size``, as far as known (else None).

    Raises
    ------
    ConfigError : the images are too small to crop, or to be padded so much.
    """
    crop, padding = protocol["crop_size"], protocol["augmentation"]["crop_padding"] if trains(protocol) else 0
    does = {f"cuts {crop}x{crop} pixels out of each image": crop or 0, f"pads each image by {padding} pixels": padding}
    for what, pixels in does.items():
        if size is not None and pixels > min(size):
            raise ConfigError(
                f"{where}: the protocol {what}, and these have {size[0]}x{size[1]}; use larger images or another "
                "protocol."
            )
    return (crop, crop) if crop else size and tuple(size)


def check_batches(protocol: Mapping[str, Any], samples: int, where: str) -> None:
    """Raise ConfigError where an epoch over ``samples`` images has no batch, or ends with a step on a single image."""
    size = protocol["batch_size"]
    try:
        _, last = epoch_batches(samples, protocol)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if last == 1 < size:
        raise ConfigError(
            f"{where}: {samples} training images in batches of {size} end each epoch with a step on a single image; "
            "set drop_last: true in the protocol, or another batch_size."
        )


def _check_constants(names: Mapping[str, str], where: str) -> None:
    known = [id for id, spec in registry.specs("dataset").items() if spec.info.get("mean")]
    for name in (*names, *names.values()):
        if name not in known:
            raise unknown_id("data set", name, known, where)


def _check(protocol: Mapping[str, Any], where: str) -> None:
    if protocol["optimizer"]["nesterov"] and not protocol["optimizer"]["momentum"]:
        raise ConfigError(f"{where}: optimizer.nesterov needs a momentum above 0.")
    milestones, warmup = protocol["schedule"]["milestones"], protocol["schedule"]["warmup_epochs"]
    if any(second <= first for first, second in itertools.pairwise(milestones)):
        raise ConfigError(f"{where}: schedule.milestones must ascend, got {milestones}.")
    if warmup >= protocol["epochs"]:
        raise ConfigError(
            f"{where}: schedule.warmup_epochs must be fewer than the {protocol['epochs']} epochs, got {warmup}."
        )
    late = [m for m in milestones if m >= protocol["epochs"]]
    if late:
        raise ConfigError(
            f"{where}: milestone {late[0]} is not before the last of {protocol['epochs']} epochs; "
            "remove it or train longer."
        )
