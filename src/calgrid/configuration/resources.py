"""Memory, time limits, threads and GPUs of the jobs: constants by kind of job and size of the data.

The n-th attempt at a job gets n times the memory and time, so that the second corrects a constant
that was too low by a factor of two; a training gets no more time, because it continues from its
resume state. ``set-resources`` in a Snakemake profile overrides the constants.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calgrid.configuration.protocols import trains
from calgrid.configuration.study import Study
from calgrid.storage.layout import run_key

#: data sets with images of more pixels on a side, or of unknown size, or with so many classes, are
#: large
LARGE_SIDE, LARGE_CLASSES = 64, 1000
#: external logits with more bytes of files are large
LARGE_FILES = 10**8
#: added to the memory of a job that uses a GPU, for the libraries of CUDA (not measured)
CUDA_MB = 4000
#: the longest time limit, which most clusters allow
DAY = 24 * 60
#: threads that decode images
DECODE_THREADS = 8
#: processes of an aggregation of at least so many runs
AGGREGATE_THREADS, MANY_RUNS = 4, 500


@dataclass(frozen=True)
class Need:
    """What the first attempt at a job asks for: memory in MB, time in minutes, threads."""

    memory: int
    minutes: int
    threads: int = 1


# Memory is at least twice the largest peak of the kind of job in benchmarks/full_size.md, which
# includes 200 MB for Snakemake on the node. Peaks of large trainings, predictions and probes were
# not measured: they are the sizes of weights, images and activations.
NEEDS: Mapping[str, Need] = {
    "prepare": Need(1500, 120),
    "weights": Need(4000, 60),
    "train": Need(4000, DAY // 2),
    "predict": Need(3000, 240),
    "probe": Need(3000, 120),
    "import": Need(2100, 60),
    "calibrate": Need(2000, 120),
    "aggregate": Need(1000, 60),
    "report": Need(1200, 60),
}
LARGE_NEEDS: Mapping[str, Need] = {
    "prepare": Need(4000, 480, DECODE_THREADS),
    "weights": Need(4000, 60),
    "train": Need(16_000, DAY, DECODE_THREADS),
    "predict": Need(10_000, 480, DECODE_THREADS),
    "probe": Need(10_000, 240, DECODE_THREADS),
    "import": Need(8000, 60),
    "calibrate": Need(13_000, DAY // 2, 2),
}


class Resources:
    """Resource functions of the rules, with the arguments that Snakemake passes; memory in MB, time
    in minutes.
    """

    def __init__(self, study: Study, gpus: int) -> None:
        self._study = study
        self._gpus = gpus
        self._large: dict[str, bool] = {}

    def prepare_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of the preparation of a data set or shift."""
        return attempt * self._of_data("prepare", wildcards.unit).memory

    def prepare_minutes(self, wildcards: Any, attempt: int) -> int:
        """Time limit of the preparation of a data set or shift."""
        return min(DAY, attempt * self._of_data("prepare", wildcards.unit).minutes)

    def prepare_threads(self, wildcards: Any) -> int:
        """Threads of the preparation of a data set or shift."""
        return self._of_data("prepare", wildcards.unit).threads

    def train_gpus(self, wildcards: Any) -> int:
        """GPUs of a training: none if weights are downloaded."""
        return self._gpus if self._training(wildcards) == "train" else 0

    def train_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of a training."""
        memory = self._of_run(self._training(wildcards), wildcards).memory
        return attempt * (memory + CUDA_MB * self.train_gpus(wildcards))

    def train_minutes(self, wildcards: Any) -> int:
        """Time limit of each attempt at a training."""
        return self._of_run(self._training(wildcards), wildcards).minutes

    def train_threads(self, wildcards: Any) -> int:
        """Threads of a training."""
        return self._of_run(self._training(wildcards), wildcards).threads

    def predict_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of a prediction."""
        return attempt * (self._of_run("predict", wildcards).memory + CUDA_MB * self._gpus)

    def predict_minutes(self, wildcards: Any, attempt: int) -> int:
        """Time limit of a prediction."""
        return min(DAY, attempt * self._of_run("predict", wildcards).minutes)

    def predict_threads(self, wildcards: Any) -> int:
        """Threads of a prediction."""
        return self._of_run("predict", wildcards).threads

    def probe_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of a probe."""
        return attempt * (self._of_run("probe", wildcards).memory + CUDA_MB * self._gpus)

    def probe_minutes(self, wildcards: Any, attempt: int) -> int:
        """Time limit of a probe."""
        return min(DAY, attempt * self._of_run("probe", wildcards).minutes)

    def probe_threads(self, wildcards: Any) -> int:
        """Threads of a probe."""
        return self._of_run("probe", wildcards).threads

    def import_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of the import of external logits."""
        return attempt * self._of_run("import", wildcards).memory

    def calibrate_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of the calibration of a run, all its processes together."""
        return attempt * self._of_run("calibrate", wildcards).memory

    def calibrate_minutes(self, wildcards: Any, attempt: int) -> int:
        """Time limit of the calibration of a run."""
        return min(DAY, attempt * self._of_run("calibrate", wildcards).minutes)

    def calibrate_threads(self, wildcards: Any) -> int:
        """Processes of the calibration of a run."""
        return self._of_run("calibrate", wildcards).threads

    def aggregate_memory(self, wildcards: Any, attempt: int) -> int:
        """Memory of the aggregation, all its processes together."""
        return attempt * self.aggregate_threads(wildcards) * NEEDS["aggregate"].memory

    def aggregate_threads(self, wildcards: Any) -> int:
        """Processes of the aggregation."""
        return AGGREGATE_THREADS if len(self._study.evaluations) >= MANY_RUNS else 1

    def report_memory(self, rule: str) -> int:
        """Memory of ``tables``, ``figures`` or ``report``."""
        return NEEDS["report"].memory

    def _training(self, wildcards: Any) -> str:
        protocol = self._study.trained[run_key(wildcards)].protocol
        return "train" if trains(protocol) else "weights"

    def _of_run(self, kind: str, wildcards: Any) -> Need:
        key = run_key(wildcards)
        if key in self._study.external:
            size = sum(map(_bytes, self._study.external_files(key)))
            return (LARGE_NEEDS if size > LARGE_FILES else NEEDS)[kind]
        return self._of_data(kind, key.dataset)

    def _of_data(self, kind: str, dataset: str) -> Need:
        if dataset not in self._large:
            info = self._study.datasets.spec(dataset).info
            shape, classes = info.get("image_shape"), info.get("n_classes") or 0
            many_pixels = shape is None or max(shape[1:]) > LARGE_SIDE
            self._large[dataset] = many_pixels or classes >= LARGE_CLASSES
        return (LARGE_NEEDS if self._large[dataset] else NEEDS)[kind]


def _bytes(path: Path) -> int:
    """Size of a file, or of the files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
