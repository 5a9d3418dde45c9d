"""What a job needs: memory and time for a scheduler, from the data set, the backbone and the protocol of its run.

These are estimates on the safe side. Memory doubles, triples, ... with each attempt at the same job; time does not,
because a run that reached its limit goes on from its resume state. A site that wants other numbers says so in its
profile (``set-resources``).
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from calgrid.backbones._catalogue import measured
from calgrid.configuration.protocols import trains
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError
from calgrid.storage.layout import RunKey, backbone_of, family_unit, run_key

#: Python with its libraries and a CUDA context, in MB
BASE_MB = 4000
MB = 2**20
#: copies of the images in memory while they are loaded and put on the device
IMAGE_COPIES = 3
#: copies of the weights: network, gradients, momentum, best checkpoint, and resume state while it is written
WEIGHT_COPIES = 8
#: copies of logits, as float32, while a calibrator is fitted and scored
LOGITS_COPIES = 6
#: memory of tables, figures and report for each run: 3,000 numbers of 1.2 kB
REPORT_MB_A_RUN = 4
#: processes that aggregate studies of many runs; few runs are read before a process has started
AGGREGATE_THREADS, MANY_RUNS = 4, 500
#: stand for a data set of unknown size, and for a backbone of unknown size: as large as the largest registered ones
UNKNOWN_IMAGES = 100_000
UNKNOWN_SHAPE = (3, 64, 64)
UNKNOWN_CLASSES = 200
UNKNOWN_BACKBONE = MappingProxyType(
    {
        "parameters": {1000: 90_000_000},
        "num_features": 2048,
        "image_size": 224,
        "macs": 20 * 10**9,
        "activations": 60 * 10**6,
    }
)
#: seconds of a GPU for one forward and backward pass over an image: the least, at 32x32 pixels, and those of each
#: multiply-add of the forward pass (the papers' training times on an A40 give 3e-13 to 7e-13)
PASS_SECONDS, PASS_SECONDS_A_MULTIPLY_ADD = 2e-5, 7e-13
#: images, and their pixels, in one batch of a prediction; this share of the activations is in memory at a time
SCORED_AT_ONCE, SCORED_PIXELS, SCORED_SHARE = 1024, 1024 * 64**2, 1 / 8
#: images of which a probe takes gradients at once
PROBED_AT_ONCE = 256
#: seconds of a core to decode, scale, hash and write a pixel of a prepared image
PREPARE_SECONDS_A_PIXEL = 5e-8
PREPARE_THREADS = 8
#: a processor core is so many times slower than a GPU
CORE_SLOWER = 50
SAFETY = 3
MIN_MINUTES, MAX_MINUTES = 60, 24 * 60


class Resources:
    """Resource functions of the rules, with the arguments that Snakemake gives them."""

    def __init__(self, study: Study, gpus: int) -> None:
        self._study = study
        self._gpus = gpus
        self._slower = 1 if gpus else CORE_SLOWER
        self._minutes: dict[RunKey, int] = {}
        self._memory: dict[tuple[Any, ...], int] = {}

    def prepare_minutes(self, wildcards: Any) -> int:
        """Time limit of the preparation of a data set or shift family; downloads go on where they were stopped."""
        return min(MIN_MINUTES + math.ceil(SAFETY * self._prepare_seconds(wildcards.unit) / 60), MAX_MINUTES)

    def prepare_threads(self, wildcards: Any) -> int:
        """Threads that decode pictures, where that takes a core more than a minute."""
        return PREPARE_THREADS if self._prepare_seconds(wildcards.unit) > 60 else 1

    def _prepare_seconds(self, unit: str) -> float:
        base = self.info(unit).get("base")
        images = self.images(base)["test"] * self.settings(unit) if base else sum(self.images(unit).values())
        return images * math.prod(self.shape(unit)[1:]) * PREPARE_SECONDS_A_PIXEL

    def aggregate_threads(self, wildcards: Any) -> int:
        """Processes that read and summarise the runs of the study."""
        return AGGREGATE_THREADS if len(self._study.evaluations) >= MANY_RUNS else 1

    def train_gpus(self, wildcards: Any) -> int:
        """GPUs of a training: none where weights are taken as they are."""
        return self._gpus if trains(self._study.trained[run_key(wildcards)].protocol) else 0

    def train_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of a training in MB."""
        key = run_key(wildcards)
        protocol = self._study.trained[key].protocol
        if not trains(protocol):
            return attempt * (
                BASE_MB + WEIGHT_COPIES * 4 * max(backbone_facts(key.backbone)["parameters"].values()) // MB
            )
        batch = protocol["batch_size"]
        return attempt * self._network_memory(key.dataset, key.backbone, batch)

    def train_minutes(self, wildcards: Any) -> int:
        """Time limit of a training: three times its estimate, between an hour and a day."""
        key = run_key(wildcards)
        where = key._replace(seed=0)
        if where not in self._minutes:
            images = self._study.trained[key].protocol["epochs"] * self.images(key.dataset)["train"]
            seconds = images * self._slower * self.pass_seconds(key)
            self._minutes[where] = min(MIN_MINUTES + math.ceil(SAFETY * seconds / 60), MAX_MINUTES)
        return self._minutes[where]

    def predict_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of a prediction of a data set's splits and families in MB."""
        return attempt * self._network_memory(wildcards.dataset, backbone_of(wildcards.backbone))

    def probe_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of a probe in MB: gradients of a batch of images, or features of the test split."""
        return attempt * self._network_memory(wildcards.dataset, backbone_of(wildcards.backbone), PROBED_AT_ONCE)

    def calibrate_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of the calibration of a run in MB, with the logits of all its shift families."""
        dataset = wildcards.dataset
        where = (dataset,)
        if where not in self._memory:
            settings = 1 + sum(map(self.settings, self.info(dataset).get("families", ())))
            images = self.images(dataset)
            rows = images["val"] + images["test"] * settings
            classes = self.info(dataset).get("n_classes") or UNKNOWN_CLASSES
            self._memory[where] = BASE_MB + LOGITS_COPIES * 4 * rows * classes // MB
        return attempt * self._memory[where]

    def report_memory(self) -> int:
        """Memory of tables, figures and report, which hold the numbers of all runs at once, in MB."""
        return BASE_MB + REPORT_MB_A_RUN * len(self._study.evaluations)

    def _network_memory(self, dataset: str, backbone: str, batch: int = 0) -> int:
        """Memory for a network and a data set; activations lie in it too where there is no GPU for them."""
        where = (dataset, backbone, batch)
        if where not in self._memory:
            images = sum(self.images(dataset).values()) * math.prod(self.shape(dataset))
            facts = backbone_facts(backbone)
            need = IMAGE_COPIES * images + WEIGHT_COPIES * 4 * max(facts["parameters"].values())
            if not self._gpus:
                scored = min(SCORED_AT_ONCE, SCORED_PIXELS / math.prod(self.shape(dataset)[1:]))
                at_once = max(batch, scored * SCORED_SHARE)
                need += int(4 * at_once * facts["activations"] * self._relative_size(dataset, facts))
            self._memory[where] = BASE_MB + need // MB
        return self._memory[where]

    def info(self, dataset: str) -> Mapping[str, Any]:
        """What is known of a data set or family before it is prepared; nothing of logits made elsewhere."""
        try:
            return self._study.datasets.spec(family_unit(dataset)).info
        except ConfigError:
            return {}

    def images(self, dataset: str) -> dict[str, int]:
        """Images of the splits of a data set."""
        unknown = {"train": UNKNOWN_IMAGES, "test": UNKNOWN_IMAGES}
        return {"train": 0, "val": 0, "test": 0, **(self.info(dataset).get("sizes") or unknown)}

    def shape(self, dataset: str) -> tuple[int, ...]:
        """Channels, height and width of prepared images."""
        return tuple(self.info(dataset).get("image_shape") or UNKNOWN_SHAPE)

    def settings(self, family: str) -> int:
        """Corruptions times severities of a shift family; 1 for a data set."""
        info = self.info(family)
        return len(info.get("shifts", ("",))) * len(info.get("severities", (0,)))

    def pass_seconds(self, key: RunKey) -> float:
        """Seconds of a GPU for one forward and backward pass over an image, as the network of a run sees it."""
        crop = self._study.trained[key].protocol["crop_size"]
        _, height, width = self.shape(key.dataset) if crop is None else (None, crop, crop)
        least = PASS_SECONDS * max(height * width / 32**2, 0.25)
        facts = backbone_facts(key.backbone)
        pixels = height * width / facts["image_size"] ** 2
        return max(least, PASS_SECONDS_A_MULTIPLY_ADD * facts["macs"] * pixels)

    def _relative_size(self, dataset: str, facts: Mapping[str, Any]) -> float:
        """Pixels of a data set's images over those that a backbone's facts are about."""
        _, height, width = self.shape(dataset)
        return height * width / facts["image_size"] ** 2


def backbone_facts(backbone: str) -> Mapping[str, Any]:
    """What is registered of a backbone; of a library's member, that of a large one."""
    info = measured(backbone).info
    return UNKNOWN_BACKBONE if info.get("library", False) else {**UNKNOWN_BACKBONE, **info}
