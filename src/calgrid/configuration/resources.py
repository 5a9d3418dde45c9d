"""Memory, time limits, threads and GPUs of the jobs: constants by kind of job and size of the data.

The n-th attempt at a job gets n times the memory and time, so that the second corrects a constant
that was too low by a factor of two; a training gets no more time, because it continues from its
resume state. ``set-resources`` in a Snakemake profile overrides the constants.
"""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from calgrid.configuration.study import Study
from calgrid.storage.layout import run_key
from calgrid.training.protocol import TrainingProtocol

#: data sets with images of more pixels on a side, or of unknown size, or with so many classes, are
#: large
LARGE_SIDE, LARGE_CLASSES = 64, 1000
#: external logits with more bytes of files are large
LARGE_FILES = 10**8
#: added to the memory of a job on a GPU, for the libraries of CUDA (not measured)
CUDA_MB = 4000
#: the longest time limit, which most clusters allow
DAY = 24 * 60
#: threads that decode images
DECODE_THREADS = 8


@dataclass(frozen=True)
class Need:
    """What the first attempt at a job asks for: memory in MB, time in minutes, threads, and whether
    it uses a GPU.
    """

    memory: int
    minutes: int
    threads: int = 1
    gpu: bool = False


# Memory is at least twice the largest peak of the kind of job in benchmarks/full_size.md, which
# includes 200 MB for Snakemake on the node. Peaks of large trainings, predictions and probes were
# not measured: they are the sizes of weights, images and activations.
NEEDS: Mapping[str, Need] = {
    "prepare": Need(1500, 120),
    "weights": Need(4000, 60),
    "train": Need(4000, DAY // 2, gpu=True),
    "predict": Need(3000, 240, gpu=True),
    "probe": Need(3000, 120, gpu=True),
    "import": Need(2100, 30),
    "ensemble": Need(2100, 30),
    "calibrate": Need(2000, 120),
    "aggregate": Need(1000, 60),
    "tables": Need(1200, 30),
    "figures": Need(1200, 30),
    "report": Need(1200, 30),
}
LARGE_NEEDS: Mapping[str, Need] = {
    **NEEDS,
    "prepare": Need(4000, 480, DECODE_THREADS),
    "train": Need(16_000, DAY, DECODE_THREADS, gpu=True),
    "predict": Need(10_000, 480, DECODE_THREADS, gpu=True),
    "probe": Need(10_000, 240, DECODE_THREADS, gpu=True),
    "import": Need(8000, 30),
    "ensemble": Need(13_000, 60),
    "calibrate": Need(13_000, DAY // 2, 2),
}
#: an aggregation of at least ``MANY_RUNS`` runs
LARGE_AGGREGATION = Need(4000, 60, 4)
MANY_RUNS = 500
#: memory of each process of an aggregation for each run of its largest setting (protocol, data
#: set, backbone), added to the above; twice what benchmarks/scale.md measured
RUN_MB = 4


class Resources:
    """Resources of the jobs of a study, as functions of the arguments that Snakemake passes."""

    def __init__(self, study: Study, gpus: int) -> None:
        self._study = study
        self._gpus = gpus

    def memory(self, job: str) -> Callable[[Any, int], int]:
        """Memory of a job in MB, all its processes together."""

        def of_attempt(wildcards: Any, attempt: int) -> int:
            need = self._need(job, wildcards)
            each = need.memory + CUDA_MB * need.gpu * self._gpus
            return attempt * self._processes(job, wildcards) * each

        return of_attempt

    def minutes(self, job: str) -> Callable[[Any, int], int]:
        """Time limit of a job."""

        def of_attempt(wildcards: Any, attempt: int) -> int:
            need = self._need(job, wildcards)
            return need.minutes if job == "train" else min(DAY, attempt * need.minutes)

        return of_attempt

    def threads(self, job: str) -> Callable[[Any], int]:
        """Threads or processes of a job."""
        return lambda wildcards: (
            self._processes(job, wildcards) * self._need(job, wildcards).threads
        )

    def gpus(self, job: str) -> Callable[[Any], int]:
        """GPUs of a job."""

        def of_job(wildcards: Any) -> int:
            if not self._need(job, wildcards).gpu:
                return 0
            return self._processes(job, wildcards) * self._gpus

        return of_job

    def _processes(self, job: str, wildcards: Any) -> int:
        """Processes of a training, each of which needs what that of one does; 1 of other jobs."""
        if job != "train":
            return 1
        return self._study.trained[run_key(wildcards)].gpus

    def _need(self, job: str, wildcards: Any) -> Need:
        if job == "aggregate":
            return self._aggregation()
        if job in ("tables", "figures", "report"):
            return NEEDS[job]
        if job == "prepare":
            return self._of_data(wildcards.image_set)[job]
        key = run_key(wildcards)
        if key in self._study.external:
            size = sum(path.stat().st_size for path in self._study.external_files(key))
            return (LARGE_NEEDS if size > LARGE_FILES else NEEDS)[job]
        if job == "train" and not isinstance(self._study.trained[key].protocol, TrainingProtocol):
            return NEEDS["weights"]
        return self._of_data(key.dataset)[job]

    def _aggregation(self) -> Need:
        runs = self._study.evaluations
        need = LARGE_AGGREGATION if len(runs) >= MANY_RUNS else NEEDS["aggregate"]
        settings = Counter((key.protocol, key.dataset, key.backbone) for key in runs)
        largest = max(settings.values(), default=0)
        return replace(need, memory=need.memory + need.threads * RUN_MB * largest)

    @functools.cache  # noqa: B019  (resources live as long as their process)
    def _of_data(self, dataset: str) -> Mapping[str, Need]:
        """Needs of jobs that read a data set or shift."""
        info = self._study.datasets.describe(dataset).info
        shape, classes = info.get("image_shape"), info.get("n_classes") or 0
        many_pixels = shape is None or max(shape[1:]) > LARGE_SIDE
        return LARGE_NEEDS if many_pixels or classes >= LARGE_CLASSES else NEEDS
