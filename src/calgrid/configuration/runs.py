"""Runs: what is trained or brought along, and where its files lie."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from calgrid.configuration.methods import Method
from calgrid.conventions import OOD_PREFIX

EXTERNAL = "external"


class RunKey(NamedTuple):
    """What a run is keyed by, everywhere: in paths, tables and messages."""

    protocol: str
    dataset: str
    backbone: str
    method: str
    seed: int

    @property
    def path(self) -> str:
        """Path of the run below a folder of runs, always of five levels."""
        return f"{self.protocol}/{self.dataset}/{self.backbone_folder}/{self.method}/seed{self.seed}"

    @property
    def backbone_folder(self) -> str:
        """Name of the backbone in paths and wildcards: ``timm+resnet50`` for ``timm/resnet50``.

        No identifier of a backbone holds a plus, so that :func:`backbone_of` finds the way back.
        """
        return self.backbone.replace("/", "+")


def backbone_of(folder: str) -> str:
    """Backbone whose runs lie in a folder of this name."""
    return folder.replace("+", "/")


@dataclass(frozen=True)
class Run:
    """A run with everything resolved.

    ``protocol`` is the stage's own protocol; ``external`` is the configuration of logits made elsewhere, for which
    ``method`` and ``protocol`` are empty.
    """

    key: RunKey
    protocol: Mapping[str, Any]
    method: Method | None
    first_stage: RunKey | None
    external: Mapping[str, Any] | None = None

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Checkpoints that are tested; external logits count as those of the last epoch."""
        return ("last",) if self.external is not None else tuple(self.protocol["checkpoints"])


@dataclass
class Evaluation:
    """What a study wants to know of one run.

    ``calibrators`` and ``probes`` map names to resolved ones; ``fit_on`` says what fits the calibrators: ``val``,
    ``same_shift``.
    """

    calibrators: dict[str, dict[str, Any]]
    calibrator_seeds: list[int]
    families: list[str]
    fit_on: list[str] = field(default_factory=lambda: ["val"])
    probes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, other: "Evaluation") -> None:
        """Join what another block of the grid wants of the same run."""
        self.calibrators.update(other.calibrators)
        self.probes.update(other.probes)
        self.calibrator_seeds = sorted({*self.calibrator_seeds, *other.calibrator_seeds})
        self.fit_on = [*self.fit_on, *(f for f in other.fit_on if f not in self.fit_on)]
        self.families = [*self.families, *(f for f in other.families if f not in self.families)]


def family_unit(family: str) -> str:
    """Data set or shift whose prepared arrays a family uses: ``ood/svhn`` is the test split of ``svhn``."""
    return family.removeprefix(OOD_PREFIX)


@dataclass(frozen=True)
class Layout:
    """Paths of a study, relative to the working directory (file contract of the project)."""

    results: str
    study: str

    def data(self, unit: str) -> str:
        """Manifest of a prepared data set or shift."""
        return str(PurePosixPath(self.results, "data", unit, "manifest.json"))

    def run(self, key: RunKey) -> str:
        """Folder of a run, shared by all studies."""
        return str(PurePosixPath(self.results, "runs", key.path))

    def logits(self, key: RunKey, checkpoint: str, name: str) -> str:
        """Logits file of a split or family."""
        return f"{self.run(key)}/logits/{checkpoint}/{name}.parquet"

    def record(self, key: RunKey, stage: str) -> str:
        """Record of the stage ``train`` or ``predict`` of a run."""
        return f"{self.run(key)}/{stage}.json"

    def probe(self, key: RunKey, name: str, suffix: str = "parquet") -> str:
        """Table of a probe of a run, or with the suffix ``json`` its record; shared by all studies like the run."""
        return f"{self.run(key)}/probes/{name}.{suffix}"

    def part(self, key: RunKey) -> str:
        """Folder of a run's metrics within the study."""
        return str(PurePosixPath(self.results, self.study, "parts", key.path))

    @property
    def repairs(self) -> str:
        """List of the results to be repaired, written by each call that finds any."""
        return str(PurePosixPath(self.results, ".calgrid", "repairs.txt"))

    def aggregate(self, name: str) -> str:
        """File or folder of the study."""
        return str(PurePosixPath(self.results, self.study, name))
