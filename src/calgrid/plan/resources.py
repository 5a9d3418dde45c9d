"""Memory, time limits, threads and GPUs of the jobs: constants by kind of job and size of the data.

The n-th attempt at a job gets n times the memory and time, so that the second corrects a constant
too low by a factor of two; a training gets no more time, because it continues from its resume
state. ``set-resources`` in a Snakemake profile overrides the constants.
"""

import functools
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from calgrid.plan.kinds import DAY, KINDS, Need
from calgrid.storage.records import STUDY_STAGES, run_key
from calgrid.study.study import Study
from calgrid.training.protocol import TrainingProtocol

#: data sets with images of more pixels on a side, or of unknown size, or with so many classes, are
#: large
LARGE_SIDE, LARGE_CLASSES = 64, 1000
#: external logits with more bytes of files are large
LARGE_FILES = 10**8
#: added to the memory of a job on a GPU, for the libraries of CUDA (not measured)
CUDA_MB = 4000
#: of published weights, in place of a training
WEIGHTS = Need(4000, 60)
#: device files of the GPU drivers; importing torch would take seconds
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
#: runs of a large aggregation
MANY_RUNS = 500
#: memory of each process of an aggregation for each run of its largest setting (protocol, data
#: set, backbone), added to the above; twice what benchmarks/scale.md measured
RUN_MB = 4


def gpu_here() -> bool:
    """Whether this machine has a GPU."""
    return any(map(os.path.exists, GPU_DEVICES))


class Resources:
    """Resources of the jobs of a study, as functions of the arguments that Snakemake passes."""

    def __init__(self, study: Study, gpus: int) -> None:
        self._study = study
        self._gpus = gpus

    def memory(self, job: str) -> Callable[[Any, int], int]:
        """Memory of a job in MB, all its processes together."""
        return lambda wildcards, attempt: attempt * self._need(job, wildcards).memory

    def minutes(self, job: str) -> Callable[[Any, int], int]:
        """Time limit of a job."""
        repeats = job != "train"
        return lambda wildcards, attempt: min(
            DAY, (attempt if repeats else 1) * self._need(job, wildcards).minutes
        )

    def threads(self, job: str) -> Callable[[Any], int]:
        """Threads or processes of a job."""
        return lambda wildcards: self._need(job, wildcards).threads

    def gpus(self, job: str) -> Callable[[Any], int]:
        """GPUs of a job."""
        return lambda wildcards: self._need(job, wildcards).gpus

    def _need(self, job: str, wildcards: Any) -> Need:
        """Need of all processes of a job; each process of a training needs as much as one alone."""
        need = self._of_process(job, wildcards)
        count = self._study.trained[run_key(wildcards)].gpus if job == "train" else 1
        gpus = need.gpus * self._gpus
        memory = count * (need.memory + CUDA_MB * gpus)
        return Need(memory, need.minutes, count * need.threads, count * gpus)

    def _of_process(self, job: str, wildcards: Any) -> Need:
        if job == "aggregate":
            runs, kind = self._study.evaluations, KINDS[job]
            need = kind.large if len(runs) >= MANY_RUNS else kind.need
            settings = Counter((key.protocol, key.dataset, key.backbone) for key in runs)
            largest = max(settings.values(), default=0)
            return replace(need, memory=need.memory + need.threads * RUN_MB * largest)
        if job in STUDY_STAGES:
            return KINDS[job].need
        if job == "data":
            return self._of_data(job, wildcards.image_set)
        key = run_key(wildcards)
        if key in self._study.ensembles:  # its members have as many rows and classes
            key = self._study.ensembles[key].members[0]
        if key in self._study.external:
            size = sum(path.stat().st_size for path in self._study.external_files(key))
            return KINDS[job].large if size > LARGE_FILES else KINDS[job].need
        if job == "train" and not isinstance(self._study.trained[key].protocol, TrainingProtocol):
            return WEIGHTS
        return self._of_data(job, key.dataset)

    @functools.cache  # noqa: B019  (resources live as long as their process)
    def _of_data(self, job: str, dataset: str) -> Need:
        """Need of a job that reads a data set or shift."""
        info = self._study.datasets.describe(dataset).info
        shape, classes = info.get("image_shape"), info.get("n_classes") or 0
        many_pixels = shape is None or max(shape[1:]) > LARGE_SIDE
        return KINDS[job].large if many_pixels or classes >= LARGE_CLASSES else KINDS[job].need
