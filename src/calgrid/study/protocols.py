"""Protocols (``config/protocols``), and their variants in a configuration.

A protocol describes the training of networks, or the source of trained weights.
"""

import functools
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from calgrid.components import registry
from calgrid.components.options import Options
from calgrid.components.validation import validated
from calgrid.errors import ConfigError, check_ids, refuse, unknown_id
from calgrid.study.yaml_files import read_mapping
from calgrid.training.protocol import AVERAGES, READY_KEYS, Protocol, TrainingProtocol
from calgrid.training.schedule import epoch_batches

#: keys of a protocol that do not affect training
WITHOUT_EFFECT = {"description", "export_features", "test_normalisation", "test_views"}
FOCAL_CALIBRATION = "focal_calibration"
OWN_FILE = "file"
#: parts of a run that the name of a file of weights can contain
RUN_PARTS = ("dataset", "backbone", "method", "seed")
#: sources of weights that are not trained here
SOURCES = ("published", FOCAL_CALIBRATION, OWN_FILE)
#: keys of training, which a protocol with one of these sources cannot set
OF_TRAINING = set(TrainingProtocol.model_fields) - set(READY_KEYS)


class ProtocolCatalog:
    """Protocols, the files ``config/protocols/<id>.yaml`` in ``home``, and their variants.

    ``variants`` maps names to {"base": id, key: value, ...}; see :func:`merge`.
    """

    def __init__(self, home: Path, variants: Mapping[str, Options]) -> None:
        self.variants = variants
        paths = sorted((home / "config" / "protocols").glob("*.yaml"))
        self.files = {path.stem: path for path in paths}
        for name in variants:
            if name in self.files:
                raise ConfigError(
                    f"protocols.{name}: a protocol file has this name; choose another one."
                )
            self.get(name, f"protocols.{name}")

    @functools.cache  # noqa: B019  (a catalog lives as long as its process)
    def get(self, name: str, where: str) -> Protocol:
        """Return a protocol with all defaults.

        Raises
        ------
        ConfigError : the name is unknown, or the protocol is invalid.
        """
        if name in self.variants:
            change = dict(self.variants[name])
            of = change.pop("base")
            base = self._read(of, f"{where}.base", self.files)
            try:
                return _resolved(merge(base, change), f"protocol '{name}'")
            except ConfigError as error:
                words = {*re.findall(r"\w+", str(error))} - {*re.findall(r"\w+", str(change))}
                lines = list(_inherited(words, base))
                if not lines:
                    raise
                raise ConfigError(
                    f"{str(error).removesuffix('.')}; it inherits {' and '.join(lines)} from "
                    f"'{of}': write such a line with a value of its own under protocols.{name}."
                ) from None
        options = self._read(name, where, [*self.files, *self.variants])
        return _resolved(options, f"protocol '{name}'")

    def _read(self, name: str, where: str, known: Iterable[str]) -> Options:
        if name not in self.files:
            raise unknown_id("protocol", name, known, where)
        return read_mapping(self.files[name], f"The protocol file {self.files[name]}")


def described(protocol: Protocol) -> str:
    """Return the parts of a protocol, in words, in which studies of papers differ."""
    parts = [f"no training (weights: {protocol.weights})"]
    if isinstance(protocol, TrainingProtocol):
        draw = "the same validation images for all seeds"
        if protocol.val_draw == "seed":
            draw = "validation images drawn for each seed"
        parts = [
            f"{protocol.epochs} epochs in batches of {protocol.batch_size}",
            f"the {protocol.reduction} of the loss over a batch",
            f"in second stages the {second_stage_of(protocol).reduction}",
            draw,
        ]
    for name, of in protocol.test_normalisation.items():
        parts.append(f"{name} tested with the constants of {of}")
    if not protocol.test_normalisation:
        parts.append("test images normalised as in training")
    return ", ".join(parts)


def merge(base: Options, change: Options) -> Options:
    """Return ``base`` updated with ``change``; nested mappings are merged.

    A schedule with a name replaces that of ``base``: milestones and warm-up of another schedule do
    not apply to it.
    """
    result = dict(base)
    for key, value in change.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            replaces = key == "schedule" and "name" in value
            result[key] = dict(value) if replaces else merge(result[key], value)
        else:
            result[key] = value
    return result


def _inherited(words: Collection[str], options: Options) -> Iterator[str]:
    """Lines of a file for the options whose names are among some words."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from (f"'{name}: {{{line[1:-1]}}}'" for line in _inherited(words, value))
        elif name in words:
            yield f"'{name}: {value}'"


def _resolved(options: Options, where: str) -> Protocol:
    """Check the options of a protocol, and fill in the defaults."""
    protocol: Protocol
    if options.get("weights") in SOURCES:
        if of_training := sorted(OF_TRAINING.intersection(options)):
            raise ConfigError(
                f"{where}: with weights: {options['weights']} nothing is trained; remove "
                f"{', '.join(of_training)}."
            )
        protocol = validated(Protocol, options, where)
    else:
        protocol = validated(TrainingProtocol, options, where)
        _check_training(protocol, where)
    _check_weights_file(protocol, where)
    datasets = registry.descriptions("dataset")
    known = [id for id, component in datasets.items() if component.info.get("mean")]
    named = itertools.chain(*protocol.test_normalisation.items())
    check_ids("data set", named, known, f"{where}: test_normalisation")
    return protocol


def _check_training(protocol: TrainingProtocol, where: str) -> None:
    """Check keys of a training that exclude each other, and the schedules of both stages."""
    augmentation = protocol.augmentation
    refuse(
        (
            augmentation.resized_crop and (augmentation.crop_padding or protocol.crop_size),
            f"{where}: augmentation.resized_crop gives images their final size; remove "
            "crop_padding and crop_size.",
        ),
        (
            augmentation.randaugment is not None and augmentation.augmix is not None,
            f"{where}: augmentation has randaugment and augmix; leave one of them out.",
        ),
    )
    _check_schedule(protocol, where)
    if protocol.second_stage is not None:
        _check_schedule(second_stage_of(protocol), f"{where}: second_stage")


def _check_weights_file(protocol: Protocol, where: str) -> None:
    """Check that ``weights_file`` is given exactly if needed, and can be filled in."""
    pattern = protocol.weights_file
    known = ", ".join(f"{{{part}}}" for part in RUN_PARTS)
    refuse(
        (
            (pattern is not None) != (protocol.weights == OWN_FILE),
            f"{where}: give weights: {OWN_FILE} and weights_file together, or neither of them.",
        ),
        (
            protocol.weights_key is not None and pattern is None,
            f"{where}: weights_key has no effect without weights_file; remove it.",
        ),
        (
            not parts_of(pattern or "") <= set(RUN_PARTS),
            f"{where}: weights_file '{pattern}' has other braces than {known}.",
        ),
    )


def parts_of(pattern: str) -> set[str]:
    """Names in braces in the name of a file of weights."""
    return set(re.findall(r"\{(.*?)\}", pattern))


def training_options(protocol: Protocol) -> Options:
    """Return the options that affect training; unused optional keys are left out, so that they
    change no fingerprint.
    """
    unset = {"weights_key"} if protocol.weights_key is None else set[str]()
    if not isinstance(protocol, TrainingProtocol):
        return protocol.model_dump(exclude=WITHOUT_EFFECT | unset)
    unused = AVERAGES.keys() - set(protocol.checkpoints) | unset
    options = protocol.model_dump(exclude=WITHOUT_EFFECT | unused)
    return {**options, "augmentation": protocol.augmentation.model_dump(exclude_none=True)}


def for_stage(protocol: Protocol, second: bool) -> Protocol:
    """Return the protocol of the first or of the second stage."""
    if not isinstance(protocol, TrainingProtocol):
        return protocol
    return (
        second_stage_of(protocol) if second else protocol.model_copy(update={"second_stage": None})
    )


def second_stage_of(protocol: TrainingProtocol) -> TrainingProtocol:
    """Return the protocol of the second stage, which trains only a head, on one GPU.

    It has no lookahead: means of the weights of different epochs, and of their masks, are no
    weights of a masked head.
    """
    first_alone = {"second_stage": None, "gpus": 1, "compile": False, "lookahead": None}
    options: Options = {**protocol.model_dump(), **first_alone}
    if protocol.second_stage is not None:
        options = merge(options, protocol.second_stage.model_dump(exclude_none=True))
    return TrainingProtocol.model_validate(options)


def cropped(size: Sequence[int] | None, protocol: Protocol, where: str) -> tuple[int, int] | None:
    """Height and width of network inputs for images of ``size`` (height, width), or None if
    unknown.

    Images that are smaller than the crop or the padding raise ConfigError.
    """
    crop, padding, reflected = protocol.crop_size, 0, ""
    if isinstance(protocol, TrainingProtocol):
        padding = protocol.augmentation.crop_padding
        if protocol.augmentation.padding_mode == "reflect":
            reflected = "reflected "
    does = {
        f"crops images to {crop}x{crop} pixels": crop or 0,
        # a reflection does not repeat the border
        f"pads images by {padding} {reflected}pixels": padding + 1 if reflected else padding,
    }
    for what, pixels in does.items():
        if size is not None and pixels > min(size):
            raise ConfigError(
                f"{where}: the protocol {what}, but these have {size[0]}x{size[1]}; use larger "
                "images or another protocol."
            )
    if crop:
        return crop, crop
    return None if size is None else (size[0], size[1])


def check_batches(protocol: TrainingProtocol, samples: int, where: str) -> None:
    """Raise ConfigError if an epoch over ``samples`` images has no batch or a last batch of one
    image.
    """
    size = protocol.batch_size
    try:
        _, last = epoch_batches(samples, protocol)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if last == 1 < size:
        raise ConfigError(
            f"{where}: {samples} training images in batches of {size} leave a last batch of one "
            "image; set drop_last: true or another batch_size in the protocol."
        )


def _check_schedule(protocol: TrainingProtocol, where: str) -> None:
    epochs, milestones = protocol.epochs, protocol.schedule.milestones
    late = next((each for each in milestones if each >= epochs), None)
    refuse(
        (
            protocol.optimizer.nesterov and not protocol.optimizer.momentum,
            f"{where}: optimizer.nesterov needs a momentum above 0; set one.",
        ),
        (
            milestones != sorted(set(milestones)),
            f"{where}: schedule.milestones must ascend, got {milestones}.",
        ),
        (
            protocol.schedule.warmup_epochs >= epochs,
            f"{where}: schedule.warmup_epochs must be fewer than the {epochs} epochs, got "
            f"{protocol.schedule.warmup_epochs}.",
        ),
        (
            late is not None,
            f"{where}: schedule.milestones has {late}, which is not before the last of {epochs} "
            "epochs; remove it or train longer.",
        ),
    )
