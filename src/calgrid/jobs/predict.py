"""Job ``predict``: logits of all splits and shift families of a run, in float32.

Memory holds a few blocks of images and the logits of one row group. Blocks that took more than a
second are stored in the working folder, so that a killed job continues with identical results.
"""

import functools
import itertools
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calgrid.backbones.base import Network
from calgrid.datasets import SHIFT_SPLIT, Prepared, open_prepared
from calgrid.datasets.prepared import Condition
from calgrid.errors import DataError, StateError
from calgrid.jobs.network import with_test_constants
from calgrid.parallel import ahead
from calgrid.procedures.network import tested_networks
from calgrid.progress import Progress
from calgrid.storage.arrays import read_arrays, write_arrays, write_head
from calgrid.storage.atomic import link_or_copy
from calgrid.storage.checkpoint import load_checkpoint
from calgrid.storage.logits import NO_LABEL, Logits, write_logits
from calgrid.storage.publish import KEPT_SECONDS, Call, make_result
from calgrid.storage.records import (
    FILES,
    INPUTS,
    OOD_PREFIX,
    PREDICT,
    SPLITS,
    TRAIN_SPLIT,
    Facts,
    Record,
    Results,
    digest_of,
    head_file,
    image_set_of,
    listed,
    logits_file,
    logits_files,
    write_record,
)
from calgrid.storage.specs import PredictSpec
from calgrid.training import environment
from calgrid.training.data import (
    EVALUATION_BATCH,
    DeviceImages,
    HostRows,
    check_finite,
    views,
)
from calgrid.training.procedure import Procedure
from calgrid.training.protocol import MOST_TRAIN_ROWS, Protocol, read_protocol

Arrays = dict[str, np.ndarray]
#: maximum rows of a row group of the logits of a shift family, unless one condition has more
GROUP_ROWS = 2**16
#: maximum images and bytes of a block, which is on the device at once
BLOCK, BLOCK_BYTES = 16 * EVALUATION_BATCH, 2**28
#: seed of the draw of training images, the same for all runs
TRAIN_SEED = 0
#: blocks that are read ahead while one is scored
BLOCKS_AHEAD = 2


def run(call: Call) -> bool:
    """Export the logits of a trained run; return False if the result already exists.

    The job reads ``model.safetensors`` of the run, whose fingerprint its specification has, and the
    manifests of its data and of the images of its shift families.
    """
    spec: PredictSpec = call.spec
    model, data, *images = call.reads
    shifts = dict(zip(spec["shifts"], [path.parent for path in images], strict=True))
    where = environment.choose_device(call.device)
    results = call.digests()
    states, description = load_checkpoint(model, spec["run_fingerprint"])
    trained = description["spec"]
    protocol = read_protocol(trained["protocol"])
    environment.prepare(where, call.threads, protocol.deterministic)
    prepared = open_prepared(data.parent, fingerprint=trained.get("data"), threads=call.threads)
    shifted = {name: open_prepared(folder, threads=call.threads) for name, folder in shifts.items()}
    read = {}
    for name, path in zip(("model", "data", *shifts), call.reads, strict=True):
        read[name] = results[path.parent][path.name]
    checkpoints = spec["checkpoints"]
    clock = environment.clock(where)

    def produce(folder: Path) -> Facts:
        begin = clock()
        for images in (prepared, *shifted.values()):
            images.verify()
        taken = _take_files(call, folder, results, shifts)
        networks = tested_networks(states, trained, checkpoints, prepared.n_classes, where)
        total = len(logits_files(checkpoints, _beside_splits(spec, shifts)))
        with Progress("predict", total, "file") as progress:
            for checkpoint, network, procedure in networks:
                call.check()  # imported code, before blocks are stored
                exporter = _Exporter(spec, prepared, network, procedure, where, protocol)
                for _ in exporter.write(folder, checkpoint, shifted, read, taken):
                    progress.advance()
        return environment.run_record(spec, clock() - begin, where)

    return make_result(
        call,
        PREDICT,
        logits_files(checkpoints, _beside_splits(spec, shifts)),
        produce,
        results,
        [head_file(checkpoint) for checkpoint in checkpoints],
    )


def _beside_splits(spec: PredictSpec, shifts: Iterable[str]) -> list[str]:
    """Names of exports beyond the scored splits: training images, shift families."""
    trained = [TRAIN_SPLIT] if spec["export_features"] == TRAIN_SPLIT else []
    return [*trained, *shifts]


def _take_files(call: Call, folder: Path, results: Results, shifts: Mapping[str, Path]) -> set[str]:
    """Link files with the same fingerprints and inputs from predictions of the run with other shift
    families.

    So one more shift family costs only itself. Returns the paths of these files below ``folder``.
    """
    taken, spec, out = set(), call.spec, call.out
    ours = call.inputs(out, results)["results"]
    images = {name: os.path.relpath(place, out) for name, place in shifts.items()}
    for other in sorted(out.parent.glob("predict-*/")):
        try:
            record = Record.read(other, PREDICT)
        except DataError:
            continue
        made = record.content["spec"].get("files", {})  # an import of another study has none
        theirs = record.content[INPUTS].get("results", {})
        same = []
        for name, value in spec["files"].items():
            others = {*images.values()} - {images.get(name)}
            read = {place: files for place, files in ours.items() if place not in others}
            if made.get(name) == value and read.items() <= theirs.items():
                same.append(name)
        for checkpoint, name in itertools.product(spec["checkpoints"], same):
            path = logits_file(checkpoint, name)
            if path not in taken:
                try:
                    link_or_copy(record.verified(path), folder / path)
                    taken.add(path)
                except (DataError, StateError):  # damaged: computed again
                    continue
    return taken


class KeptFile:
    """A file that is computed in blocks: the blocks are stored until the file is complete.

    Blocks and files are recomputed if damaged or made from other ``inputs`` (all inputs of the
    file, JSON-like). ``name`` is the path of the file in the working folder of the job.
    """

    def __init__(self, folder: Path, name: str, inputs: Mapping[str, object]) -> None:
        self._folder, self._name, self._inputs = folder, name, digest_of([name, inputs])
        self._blocks: list[Path] = []
        self._record = f"kept-{name.replace('/', '-')}.json"

    def is_complete(self) -> bool:
        """Whether an earlier attempt completed the file."""
        try:
            record = Record.read(self._folder, self._record)
            record.verified(self._name)
        except (DataError, StateError):
            return False
        return record.content.get("inputs") == self._inputs

    def block(self, number: int, compute: Callable[[], Arrays]) -> Arrays:
        """Return the stored arrays of a block, or compute and store them."""
        self._blocks.append(self._path(number))
        if (found := self.kept(number)) is not None:
            return found
        begin = time.monotonic()
        arrays = compute()
        if time.monotonic() - begin > KEPT_SECONDS:
            write_arrays(self._path(number), arrays, {"inputs": self._inputs, "block": number})
        return arrays

    def _path(self, number: int) -> Path:
        return self._folder / f"kept-{self._name.replace('/', '-')}-{number}.safetensors"

    def kept(self, number: int) -> Arrays | None:
        """Return the stored arrays of a block, or None."""
        if not self._path(number).is_file():
            return None
        try:
            arrays, facts = read_arrays(self._path(number), "kept block")
        except StateError:
            return None
        return arrays if facts == {"inputs": self._inputs, "block": number} else None

    @contextmanager
    def completing(self) -> Iterator[Path]:
        """Yield the path of the file to write; its blocks are deleted afterwards."""
        path = self._folder / self._name
        begin = time.monotonic()
        yield path
        if time.monotonic() - begin > KEPT_SECONDS:
            files = listed(self._folder, [self._name])
            write_record(self._folder / self._record, {FILES: files, "inputs": self._inputs})
        for block in self._blocks:
            block.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Exporter:
    """Writes the logits files of a network."""

    spec: PredictSpec
    prepared: Prepared
    network: Network
    procedure: Procedure[Any]
    device: torch.device
    protocol: Protocol

    def tested(self, dataset: str) -> Prepared:
        """Data set of the run with the normalisation of the test images of ``dataset``."""
        return with_test_constants(self.prepared, self.spec, dataset)

    def write(
        self,
        folder: Path,
        checkpoint: str,
        shifted: Mapping[str, Prepared],
        inputs: Mapping[str, str],
        taken: Collection[str],
    ) -> Iterator[str]:
        """Write all files of a checkpoint but those ``taken``, and yield the name of each."""
        self.head(folder / head_file(checkpoint))
        for name in (*SPLITS, *_beside_splits(self.spec, shifted)):
            read = [inputs["model"], inputs["data"], inputs.get(name)]
            about = {
                "fingerprint": self.spec["files"][name],
                "device": self.device.type,
                "inputs": read,
            }
            file = KeptFile(folder, logits_file(checkpoint, name), about)
            if logits_file(checkpoint, name) not in taken and not file.is_complete():
                facts = {
                    "split": name,
                    "checkpoint": checkpoint,
                    "n_classes": self.prepared.n_classes,
                }
                if "classes" in self.prepared.manifest:
                    facts["classes"] = self.prepared.manifest["classes"]
                metadata = {**self.spec["key"], **facts, "fingerprint": about["fingerprint"]}
                with file.completing() as path:
                    if name in shifted:
                        write_logits(path, self.family(file, name, shifted[name], metadata))
                    else:
                        write_logits(path, self.split(file, name, metadata))
            yield name

    def head(self, path: Path) -> None:
        """Write the last layer, if features are exported and it is linear."""
        layer = getattr(self.network, "head", None)
        if (
            self.spec["export_features"] is not False
            and self.procedure.linear_head
            and type(layer) is torch.nn.Linear
        ):
            weight, bias = layer.weight.detach().cpu().numpy(), layer.bias.detach().cpu().numpy()
            write_head(path, weight, bias, self.spec["run_fingerprint"])

    def split(self, file: KeptFile, name: str, metadata: Facts) -> Logits:
        split = self.prepared.splits[name]
        rows = np.arange(len(split), dtype=np.int32)
        if name == TRAIN_SPLIT and len(rows) > MOST_TRAIN_ROWS:
            generator = np.random.default_rng(TRAIN_SEED)
            rows = np.sort(generator.choice(rows, MOST_TRAIN_ROWS, replace=False))
        constants = self.tested(self.spec["key"]["dataset"]) if name == "test" else self.prepared
        logits, features = self._run(
            file, split.images, rows, constants, self.spec["export_features"] is not False
        )
        distribution = None if split.distribution is None else split.distribution[rows]
        return Logits(
            rows,
            split.labels[rows],
            logits,
            features=features,
            distribution=distribution,
            metadata=metadata,
        )

    def family(
        self, file: KeptFile, family: str, images: Prepared, metadata: Facts
    ) -> Iterator[Logits]:
        """Row groups of a shift family, or the test split of an OOD set (labels -1, severity 0)."""
        everywhere = self.spec["export_features"] in ("all", TRAIN_SPLIT)
        ours, theirs = (facts.manifest["image_shape"] for facts in (self.prepared, images))
        if ours != theirs:
            raise DataError(
                f"Images of '{family}' have shape {theirs}, but those of '{self.prepared.id}' have "
                f"{ours}; remove it."
            )
        ood = family.startswith(OOD_PREFIX)
        constants = self.tested(image_set_of(family) if ood else self.spec["key"]["dataset"])
        split = images.splits["test" if ood else SHIFT_SPLIT]
        labels = np.full(len(split), NO_LABEL, dtype=np.int32) if ood else split.labels
        for conditions in grouped(
            [Condition(family, 0, 0, len(split))] if ood else images.conditions
        ):
            part = slice(conditions[0].start, conditions[-1].stop)
            rows = np.arange(part.start, part.stop)
            logits, features = self._run(file, split.images, rows, constants, everywhere)
            indices, shifts, severities = [], [], []
            for condition in conditions:
                size = condition.stop - condition.start
                indices.append(np.arange(size, dtype=np.int32))
                shifts += [condition.shift] * size
                severities += [condition.severity] * size
            yield Logits(
                np.concatenate(indices),
                labels[part],
                logits,
                shift=np.array(shifts),
                severity=np.array(severities, dtype=np.int8),
                features=features,
                metadata=metadata,
            )

    def _run(
        self,
        file: KeptFile,
        images: np.ndarray,
        rows: np.ndarray,
        constants: Prepared,
        keep_features: bool,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Logits and features of some rows of images, ascending."""
        result: Arrays = {}
        size = min(BLOCK, max(1, BLOCK_BYTES // math.prod(images.shape[1:])))
        parts = {int(part[0]): part for part in np.split(rows, range(size, len(rows), size))}
        missing = [part for begin, part in parts.items() if file.kept(begin) is None]
        blocks = ahead(lambda part: np.ascontiguousarray(images[part]), missing, BLOCKS_AHEAD)
        end = 0
        for begin, part in parts.items():
            compute = functools.partial(self._block, blocks, part, constants, keep_features)
            start, end = end, end + len(part)
            for name, values in file.block(begin, compute).items():
                if name not in result:
                    result[name] = np.empty((len(rows), values.shape[1]), np.float32)
                result[name][start:end] = values
        return result["logits"], result.get("features")

    @torch.no_grad()
    def _block(
        self,
        blocks: Iterator[np.ndarray],
        rows: np.ndarray,
        constants: Prepared,
        keep_features: bool,
    ) -> Arrays:
        """Logits and features of the next block of images, at these rows."""
        self.network.eval()
        block = next(blocks)
        places = torch.as_tensor(rows, dtype=torch.int64, device=self.device)
        layout = self.protocol.channels_last, self.protocol.crop_size
        split = DeviceImages(
            block, np.zeros(len(block)), *constants.normalisation, self.device, *layout
        )
        found = HostRows(len(block), self.device)
        for batch in split.batches(EVALUATION_BATCH, filled=True):
            logits, features = [], []
            index = places[batch.index]
            for weight, images in views(batch.images, self.spec["test_views"]):
                viewed = replace(batch, images=images, index=index)
                z, h = self.procedure.predict(self.network, viewed)
                logits.append(weight * z)
                features.append(weight * h)
            found.add("logits", torch.stack(logits).sum(0))
            if keep_features:
                found.add("features", torch.stack(features).sum(0))
        result = found.arrays()
        check_finite(result["logits"], "/".join(map(str, self.spec["key"].values())))
        return result


def grouped(conditions: Sequence[Condition]) -> Iterator[list[Condition]]:
    """Group consecutive conditions, with at most ``GROUP_ROWS`` rows or a single condition in each
    group.
    """
    group: list[Condition] = []
    for condition in conditions:
        if group and condition.stop - group[0].start > GROUP_ROWS:
            yield group
            group = []
        group.append(condition)
    yield group
