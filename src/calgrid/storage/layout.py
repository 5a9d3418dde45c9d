"""Paths of data, runs and studies, for rules and stages.

``results/data/{unit}``, ``results/runs/{protocol}/{dataset}/{backbone}/{method}/seed{seed}``,
``results/{study}``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

#: protocol and checkpoint of external logits
EXTERNAL = "external"
EXTERNAL_CHECKPOINT = "last"
#: path of a run below the folder of runs, with Snakemake's wildcards
RUN_PATH = "{protocol}/{dataset}/{backbone}/{method}/seed{seed}"
#: ``ood/svhn`` is the test split of the data set ``svhn``, used as an out-of-distribution set
OOD_PREFIX = "ood/"
#: splits of a data set on which every run is scored
SPLITS = ("val", "test")


class RunKey(NamedTuple):
    """Key of a run in paths, tables and messages."""

    protocol: str
    dataset: str
    backbone: str
    method: str
    seed: int

    @property
    def path(self) -> str:
        """Path of the run below the folder of runs, always five levels."""
        return RUN_PATH.format_map({**self._asdict(), "backbone": self.backbone_folder})

    @property
    def backbone_folder(self) -> str:
        """Name of the backbone in paths and wildcards: ``timm+resnet50`` for ``timm/resnet50``.

        Identifiers of backbones never contain a plus, so :func:`run_key` inverts this.
        """
        return self.backbone.replace("/", "+")


def run_key(wildcards: Any) -> RunKey:
    """Key of the run of a job, from its wildcards."""
    protocol, dataset, backbone, method, seed = (
        getattr(wildcards, name) for name in RunKey._fields
    )
    return RunKey(protocol, dataset, backbone.replace("+", "/"), method, int(seed))


def family_unit(family: str) -> str:
    """Data set or shift whose prepared arrays a family uses: ``ood/svhn`` is the test split of
    ``svhn``.
    """
    return family.removeprefix(OOD_PREFIX)


def logits_file(checkpoint: str, name: str) -> str:
    """Path of the logits of a split or shift family, below a run's folder."""
    return f"logits/{checkpoint}/{name}.parquet"


def logits_files(checkpoints: Iterable[str], families: Iterable[str] = ()) -> list[str]:
    """Paths of all logits files, below a run's folder."""
    names = (*SPLITS, *families)
    return [logits_file(checkpoint, name) for checkpoint in checkpoints for name in names]


def head_file(checkpoint: str) -> str:
    """Path of the last linear layer of a checkpoint, below a run's folder."""
    return f"logits/{checkpoint}/head.safetensors"


def probe_files(name: str) -> tuple[str, str]:
    """Paths of table and record of a probe, below a run's folder."""
    return f"probes/{name}.parquet", f"probes/{name}.json"


@dataclass(frozen=True)
class Layout:
    """Paths of a study, relative to the working directory; a run is a key or a pattern of its path."""

    results: str
    study: str

    def data(self, unit: str) -> str:
        """Manifest of a prepared data set or shift family."""
        return str(PurePosixPath(self.results, "data", unit, "manifest.json"))

    def run(self, run: RunKey | str) -> str:
        """Folder of a run, shared by all studies."""
        return str(PurePosixPath(self.results, "runs", run if isinstance(run, str) else run.path))

    def record(self, run: RunKey | str, stage: str) -> str:
        """Record of the stage ``train`` or ``predict`` of a run."""
        return f"{self.run(run)}/{stage}.json"

    def part(self, run: RunKey | str) -> str:
        """Folder of a run's metrics within the study."""
        return str(
            PurePosixPath(
                self.results, self.study, "parts", run if isinstance(run, str) else run.path
            )
        )

    def log(self, rule: str, name: str) -> str:
        """Log of a job; ``name`` is a run, a data set or shift, or a run and a probe."""
        own = (self.study,) if rule == "calibrate" else ()
        return str(PurePosixPath(self.results, "logs", *own, rule, f"{name}.log"))

    @property
    def repairs(self) -> str:
        """List of damaged results, written by each call that finds any."""
        return str(PurePosixPath(self.results, ".calgrid", "repairs.txt"))

    def aggregate(self, name: str) -> str:
        """File or folder of the study."""
        return str(PurePosixPath(self.results, self.study, name))
