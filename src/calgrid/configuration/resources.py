"""Memory, time limits, threads and GPUs of the jobs, from data set, backbone, protocol,
calibrators, shifts and device.

The estimates are upper bounds. The n-th attempt at a job gets n times the memory and time; a
training gets no more time, because it continues from its resume state. ``set-resources`` in a
Snakemake profile overrides the estimates.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from calgrid.backbones.catalogue import measured
from calgrid.configuration.calibration_costs import Calibration, Family, Fitted, Rows
from calgrid.configuration.protocols import trains
from calgrid.configuration.study import Evaluation, Study
from calgrid.conventions import ENCODED_ABOVE, HELD_BYTES, OOD_PREFIX, SAME_SHIFT, TENSOR_FILES
from calgrid.errors import ConfigError
from calgrid.storage.layout import RunKey, family_unit, run_key

#: the Snakemake process of a job on a node of a cluster takes about 200 MB
SNAKEMAKE_MB = 250
#: memory of a job before it loads anything: without torch, with torch, with a CUDA context
LIGHT_MB, TORCH_MB, CUDA_MB = 300 + SNAKEMAKE_MB, 800 + SNAKEMAKE_MB, 4000 + SNAKEMAKE_MB
MB = 2**20
#: copies of images that are held in memory, and batches of streamed images in memory
IMAGE_COPIES, STREAMED_BATCHES = 3, 8
#: copies of the weights in training (network, gradients, momentum, best checkpoint, resume state),
#: and otherwise
WEIGHT_COPIES, READY_COPIES = 8, 3
#: copies of the logits and features of a part of a family in a prediction
PREDICTED_COPIES = 4
#: images that a prediction reads at once, their maximum bytes, and their copies
CHUNK, CHUNK_BYTES, CHUNK_COPIES = 16 * 1024, 2**28, 3
#: memory of figures, of tables and report, and of both per run (``benchmarks/full_size.md``)
FIGURES_MB, REPORT_MB, REPORT_MB_A_RUN = 550 + SNAKEMAKE_MB, 400 + SNAKEMAKE_MB, 0.03
#: processes of the aggregation from so many runs on, and memory of the rows in one process
AGGREGATE_THREADS, MANY_RUNS, AGGREGATE_MB = 4, 500, 100
#: processes of a calibration that would take longer than so many seconds in one
CALIBRATE_THREADS, LONG_SECONDS = 2, 1800
#: copies of imported files in memory
IMPORT_COPIES = 5
#: copies of images in a preparation, and their maximum MB (large data sets are written in parts)
PREPARE_COPIES, PREPARE_MB = 3, 2000
#: assumptions about data sets and backbones of unknown size: those of the largest registered ones
UNKNOWN_IMAGES = 100_000
#: val rows of unknown number, as a share of the test rows
UNKNOWN_VAL = 1 / 4
UNKNOWN_SHAPE = (3, 64, 64)
UNKNOWN_CLASSES = 200
UNKNOWN_BACKBONE: Mapping[str, Any] = {
    "parameters": {1000: 90_000_000},
    "num_features": 2048,
    "image_size": 224,
    "macs": 20 * 10**9,
    "activations": 60 * 10**6,
}
#: GPU seconds of one forward and backward pass per image: minimum at 32x32 pixels, and per
#: multiply-add of the forward pass (training times in the papers on an A40 give 3e-13 to 7e-13)
PASS_SECONDS, PASS_SECONDS_A_MULTIPLY_ADD = 2e-5, 7e-13
#: images and pixels in one batch of a prediction, and the share of the activations in memory at a
#: time
SCORED_AT_ONCE, SCORED_PIXELS, SCORED_SHARE = 1024, 1024 * 64**2, 1 / 8
#: images in one gradient computation of a probe, and MB of its libraries beside torch
PROBED_AT_ONCE, PROBE_MB = 256, 200
#: core seconds to decode, resize, hash and write a pixel of a prepared image; passes over images
#: that stay encoded
PREPARE_SECONDS_A_PIXEL, ENCODED_PASSES = 5e-8, 2
#: threads that decode images
DECODE_THREADS = 8
#: bytes per second of reading and verifying prepared images, and of compressing logits
READ_BYTES, WRITTEN_BYTES = 1e8, 5e7
#: cost of a forward pass as a share of a forward and backward pass
FORWARD_SHARE = 1 / 3
#: seconds of a processor core per second of a GPU
CORE_SLOWER = 50
#: time limits are this multiple of the estimate
SAFETY = 3
MIN_MINUTES, MAX_MINUTES = 60, 24 * 60


class Resources:
    """Resource functions of the rules, with the arguments that Snakemake passes; memory in MB, time
    in minutes.
    """

    def __init__(self, study: Study, gpus: int) -> None:
        self._study = study
        self._gpus = gpus
        self._slower = 1 if gpus else CORE_SLOWER
        self._calibrations: dict[tuple[Any, ...], Calibration] = {}
        self._torch_mb = CUDA_MB if gpus else TORCH_MB

    def prepare_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of the preparation of a data set or shift family."""
        images = self._prepared_images(wildcards.unit) * math.prod(self.shape(wildcards.unit))
        return attempt * (LIGHT_MB + min(PREPARE_COPIES * images // MB, PREPARE_MB))

    def prepare_minutes(self, wildcards: Any) -> int:
        """Time limit of the preparation of a data set or shift family; later attempts resume
        downloads.
        """
        return limit(self.prepare_seconds(wildcards.unit), attempt=1)

    def prepare_threads(self, wildcards: Any) -> int:
        """Threads that decode images, if one core would take more than a minute."""
        return DECODE_THREADS if self.prepare_seconds(wildcards.unit) > 60 else 1

    def prepare_seconds(self, unit: str) -> float:
        """Core seconds of the preparation of a data set or shift family."""
        passes = ENCODED_PASSES if self.is_encoded(unit) else 1
        return (
            passes
            * self._prepared_images(unit)
            * math.prod(self.shape(unit)[1:])
            * PREPARE_SECONDS_A_PIXEL
        )

    def is_encoded(self, unit: str) -> bool:
        """Whether the prepared images of a data set or shift family stay encoded."""
        info = self.info(unit)
        largest = (
            self._prepared_images(unit) if info.get("base") else max(self.images(unit).values())
        )
        return (
            bool(info.get("encoded", False))
            and largest * math.prod(self.shape(unit)) > ENCODED_ABOVE
        )

    def _decode_threads(self, units: Iterable[str]) -> int:
        """Threads of a job that reads data sets and shift families: several if it decodes images."""
        return DECODE_THREADS if any(map(self.is_encoded, units)) else 1

    def _read_seconds(self, unit: str, images: float) -> float:
        """Seconds to read images of a data set or shift family once."""
        _, height, width = self.shape(unit)
        if self.is_encoded(unit):
            return images * height * width * PREPARE_SECONDS_A_PIXEL / DECODE_THREADS
        return images * math.prod(self.shape(unit)) / READ_BYTES

    def _prepared_images(self, unit: str) -> int:
        """Images of all splits of a data set, or of all settings of a shift family."""
        base = self.info(unit).get("base")
        return (
            self.images(base)["test"] * self.settings(unit)
            if base
            else sum(self.images(unit).values())
        )

    def aggregate_threads(self, wildcards: Any) -> int:
        """Processes of the aggregation."""
        return AGGREGATE_THREADS if len(self._study.evaluations) >= MANY_RUNS else 1

    def aggregate_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of the aggregation."""
        threads = self.aggregate_threads(wildcards)
        process = LIGHT_MB - SNAKEMAKE_MB + AGGREGATE_MB
        return attempt * (LIGHT_MB + (AGGREGATE_MB if threads == 1 else threads * process))

    def train_gpus(self, wildcards: Any) -> int:
        """GPUs of a training: none if weights are downloaded."""
        return self._gpus if trains(self._study.trained[run_key(wildcards)].protocol) else 0

    def train_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of a training."""
        key = run_key(wildcards)
        protocol = self._study.trained[key].protocol
        if not trains(protocol):
            parameters = max(backbone_facts(key.backbone)["parameters"].values())
            return attempt * (TORCH_MB + WEIGHT_COPIES * 4 * parameters // MB)
        batch = protocol["batch_size"]
        images = self._training_bytes(key.dataset)
        streamed = (
            STREAMED_BATCHES * max(batch, SCORED_AT_ONCE) * math.prod(self.shape(key.dataset))
        )
        network = self._network_memory(key.dataset, key.backbone, batch, WEIGHT_COPIES)
        return attempt * (
            network + (IMAGE_COPIES * images if images <= HELD_BYTES else streamed) // MB
        )

    def train_threads(self, wildcards: Any) -> int:
        """Threads of a training."""
        key = run_key(wildcards)
        return self._decode_threads(
            [key.dataset] if trains(self._study.trained[key].protocol) else []
        )

    def _training_bytes(self, dataset: str) -> int:
        """Bytes of the images of a data set; a training holds up to ``HELD_BYTES`` in memory."""
        return sum(self.images(dataset).values()) * math.prod(self.shape(dataset))

    def train_minutes(self, wildcards: Any) -> int:
        """Time limit of a training, between an hour and a day."""
        key = run_key(wildcards)
        epochs, images = self._study.trained[key].protocol["epochs"], self.images(key.dataset)
        seconds = epochs * images["train"] * self._slower * self.pass_seconds(key)
        read = self._read_seconds(key.dataset, images["train"] + images["val"])
        seconds += read * (
            epochs if self._training_bytes(key.dataset) > HELD_BYTES else min(epochs, 1)
        )
        return limit(seconds, attempt=1)

    def predict_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of a prediction: the network, some images, and the logits of one part of a family."""
        key = run_key(wildcards)
        logits = self._calibration(key)
        largest = max(
            logits.val.stored, logits.test.stored, *(f.group.stored for f in logits.families)
        )
        chunk = min(CHUNK_BYTES, CHUNK * math.prod(self.shape(key.dataset)))
        held = (PREDICTED_COPIES * largest + CHUNK_COPIES * chunk) // MB
        return attempt * (held + self._network_memory(key.dataset, key.backbone))

    def predict_minutes(self, wildcards: Any, attempt: int) -> int:
        """Time limit of a prediction: reading images, a forward pass, and writing logits."""
        key = run_key(wildcards)
        logits, families = self._calibration(key), self._study.families(key)
        parts = [
            (logits.val, 1),
            (logits.test, 1),
            *((each.rows, each.settings) for each in logits.families),
        ]
        rows = sum(part.number * times for part, times in parts)
        written = sum(part.stored * times for part, times in parts)
        passes = rows * self.pass_seconds(key) * FORWARD_SHARE * self._slower
        own = self._read_seconds(key.dataset, logits.val.number + logits.test.number)
        read = own + sum(
            self._read_seconds(unit, self.scored(unit)) for unit in map(family_unit, families)
        )
        return limit(self._checkpoints(key) * (passes + written / WRITTEN_BYTES + read), attempt)

    def predict_threads(self, wildcards: Any) -> int:
        """Threads of a prediction."""
        key = run_key(wildcards)
        return self._decode_threads([key.dataset, *map(family_unit, self._study.families(key))])

    def probe_threads(self, wildcards: Any) -> int:
        """Threads of a probe."""
        return self._decode_threads([run_key(wildcards).dataset])

    def scored(self, unit: str) -> int:
        """Images of a shift family, or of the test split of an out-of-distribution set."""
        return self.images(self.info(unit).get("base") or unit)["test"] * self.settings(unit)

    def probe_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of a probe: gradients of a batch of images, or features of the test split."""
        key = run_key(wildcards)
        test = self._calibration(key).test._replace(
            features=backbone_facts(key.backbone)["num_features"]
        )
        held = (
            CHUNK_COPIES * min(CHUNK, test.number) * math.prod(self.shape(key.dataset))
            + 2 * test.stored
        )
        network = self._network_memory(key.dataset, key.backbone, PROBED_AT_ONCE)
        return attempt * (PROBE_MB + network + held // MB)

    def probe_minutes(self, wildcards: Any, attempt: int) -> int:
        """Time limit of a probe in minutes: a forward and backward pass over the test images."""
        key = run_key(wildcards)
        seconds = self.images(key.dataset)["test"] * self.pass_seconds(key) * self._slower
        return limit(self._checkpoints(key) * seconds, attempt)

    def import_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of the import of an external run; reading tensors needs torch."""
        paths = self._study.external_files(run_key(wildcards))
        read = sum(
            file.stat().st_size
            for path in paths
            for file in (path, *path.rglob("*"))
            if file.is_file()
        )
        tensors = any(path.suffix.lower() in TENSOR_FILES for path in paths)
        return attempt * ((TORCH_MB if tensors else LIGHT_MB) + IMPORT_COPIES * read // MB)

    def calibrate_threads(self, wildcards: Any) -> int:
        """Processes of the calibration of a run."""
        return CALIBRATE_THREADS if self.calibrate_seconds(run_key(wildcards)) > LONG_SECONDS else 1

    def calibrate_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of the calibration of a run: one part of its rows in each process."""
        key, threads = run_key(wildcards), self.calibrate_threads(wildcards)
        single = LIGHT_MB + self._calibration(key).part_bytes // MB
        return attempt * (single if threads == 1 else LIGHT_MB + threads * (single - SNAKEMAKE_MB))

    def calibrate_minutes(self, wildcards: Any, attempt: int) -> int:
        """Time limit of the calibration of a run."""
        seconds = self.calibrate_seconds(run_key(wildcards))
        return limit(seconds / self.calibrate_threads(wildcards), attempt)

    def calibrate_seconds(self, key: RunKey) -> float:
        """Core seconds of the calibration of a run."""
        return self._checkpoints(key) * self._calibration(key).seconds

    def _calibration(self, key: RunKey) -> Calibration:
        """The calibration of a run, shared by runs that differ in method and seed; first stages
        have no calibrators.
        """
        wanted = self._study.evaluations.get(key, Evaluation())
        asked = (*wanted.calibrators, *wanted.calibrator_seeds, *wanted.families, *wanted.fit_on)
        where = (key.protocol, key.dataset, key.backbone, *asked)
        if where not in self._calibrations:
            self._calibrations[where] = self._estimated(key, wanted)
        return self._calibrations[where]

    def _estimated(self, key: RunKey, wanted: Evaluation) -> Calibration:
        exported: Any = "all"
        width: int = UNKNOWN_BACKBONE["num_features"]
        if key in self._study.trained:
            exported = self._study.trained[key].protocol["export_features"]
            width = backbone_facts(key.backbone)["num_features"]
        images = self.images(key.dataset)
        own = Rows(images["test"], self.classes(key.dataset), width if exported else 0)
        shifted = own if exported == "all" else own._replace(features=0)
        statistics = self._study.config["statistics"]
        seeds = len(wanted.calibrator_seeds)
        return Calibration(
            [
                Fitted(each["id"], "features" in each["needs"], seeds if each["stochastic"] else 1)
                for each in wanted.calibrators.values()
            ],
            own.of(images["val"] or UNKNOWN_VAL * images["test"]),
            own,
            [self._family(name, shifted) for name in wanted.families],
            statistics["bootstrap"] + statistics.get("paired_resamples", 0),
            "val" in wanted.fit_on,
            seeds if SAME_SHIFT in wanted.fit_on else 0,
        )

    def _family(self, name: str, rows: Rows) -> Family:
        unit = family_unit(name)
        count = self.images(self.info(unit).get("base") or unit)["test"]
        return Family(rows.of(count), self.settings(unit), name.startswith(OOD_PREFIX))

    def _checkpoints(self, key: RunKey) -> int:
        return len(self._study.runs[key].checkpoints) if key in self._study.runs else 1

    def report_memory(self, rule: str) -> int:
        """Memory of ``tables``, ``figures`` or ``report``."""
        return round(
            (FIGURES_MB if rule == "figures" else REPORT_MB)
            + REPORT_MB_A_RUN * len(self._study.evaluations)
        )

    def _network_memory(
        self, dataset: str, backbone: str, batch: int = 0, copies: int = READY_COPIES
    ) -> int:
        """Memory of a network and, without a GPU, of the activations of a batch."""
        facts = backbone_facts(backbone)
        need = copies * 4 * max(facts["parameters"].values())
        if not self._gpus:
            _, height, width = self.shape(dataset)
            at_once = max(
                batch, SCORED_SHARE * min(SCORED_AT_ONCE, SCORED_PIXELS / (height * width))
            )
            need += int(
                4 * at_once * facts["activations"] * height * width / facts["image_size"] ** 2
            )
        return self._torch_mb + need // MB

    def info(self, dataset: str) -> Mapping[str, Any]:
        """Facts of a data set or shift family before its preparation; empty for external logits."""
        try:
            return self._study.datasets.spec(family_unit(dataset)).info
        except ConfigError:
            return {}

    def images(self, dataset: str) -> dict[str, int]:
        """Images of each split of a data set."""
        unknown = {"train": UNKNOWN_IMAGES, "test": UNKNOWN_IMAGES}
        return {"train": 0, "val": 0, "test": 0, **(self._sizes(dataset) or unknown)}

    def is_counted(self, dataset: str) -> bool:
        """Whether the number of images is known."""
        return bool(self._sizes(dataset))

    def _sizes(self, dataset: str) -> Mapping[str, int]:
        try:
            return (
                self.info(dataset).get("sizes")
                or self._study.datasets.sizes(family_unit(dataset))
                or {}
            )
        except ConfigError:  # Study.check_labels reports wrong labels
            return {}

    def classes(self, dataset: str) -> int:
        """Classes of a data set."""
        return self.info(dataset).get("n_classes") or UNKNOWN_CLASSES

    def shape(self, dataset: str) -> tuple[int, ...]:
        """Channels, height and width of prepared images."""
        return tuple(self.info(dataset).get("image_shape") or UNKNOWN_SHAPE)

    def settings(self, family: str) -> int:
        """Corruptions times severities of a shift family, 1 for a data set."""
        info = self.info(family)
        return len(info.get("shifts", ("",))) * len(info.get("severities", (0,)))

    def pass_seconds(self, key: RunKey) -> float:
        """GPU seconds of one forward and backward pass per image, at the input size of the network."""
        crop = self._study.trained[key].protocol["crop_size"]
        _, height, width = self.shape(key.dataset) if crop is None else (None, crop, crop)
        least = PASS_SECONDS * max(height * width / 32**2, 0.25)
        facts = backbone_facts(key.backbone)
        pixels = height * width / facts["image_size"] ** 2
        return max(least, PASS_SECONDS_A_MULTIPLY_ADD * facts["macs"] * pixels)


def backbone_facts(backbone: str) -> Mapping[str, Any]:
    """Registered facts of a backbone; for backbones of a library, those of a large one."""
    info = measured(backbone).info
    return UNKNOWN_BACKBONE if info["library"] else {**UNKNOWN_BACKBONE, **info}


def limit(seconds: float, attempt: int) -> int:
    """Time limit in minutes: an hour and three times the estimate for each attempt, at most a day."""
    return min(attempt * (MIN_MINUTES + math.ceil(SAFETY * seconds / 60)), MAX_MINUTES)
