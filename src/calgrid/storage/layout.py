"""Paths of data, runs and studies, for rules and jobs.

``results/data/{dataset}-{id}``,
``results/runs/{protocol}/{dataset}/{backbone}/{method}/seed{seed}/{job}-{id}``,
``results/{study}``.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from calgrid.storage.records import PREPARE

#: protocol and checkpoint of external logits
EXTERNAL = "external"
EXTERNAL_CHECKPOINT = "last"
#: path of a run below the folder of runs, with Snakemake's wildcards
RUN_PATH = "{protocol}/{dataset}/{backbone}/{method}/seed{seed}"
#: ``ood/svhn`` is the test split of the data set ``svhn``, used as an out-of-distribution set
OOD_PREFIX = "ood/"
#: groups of out-of-distribution sets, declared by data sets; also the ``shift`` of their means
OOD_GROUPS = ("near", "far")
#: stage of a study -> stages whose files it reads; the first one reads results of runs
MADE_FROM: Mapping[str, tuple[str, ...]] = {
    "aggregate": (),
    "tables": ("aggregate",),
    "figures": ("aggregate",),
    "report": ("aggregate", "tables", "figures"),
}
#: stages of a study, in their order
STUDY_STAGES = tuple(MADE_FROM)
#: digits of a fingerprint in the name of a folder
ID_LENGTH = 10
#: folder of copies of plugins, from which jobs of all studies import them, below that of results
PLUGINS = ".plugins"
#: facts of a prepared data set in its folder
MANIFEST = "manifest.json"
#: table of a probe in its folder
PROBE_TABLE = "table.parquet"
#: splits of a data set on which every run is scored
SPLITS = ("val", "test")
#: split whose features are exported on request
TRAIN_SPLIT = "train"


class RunKey(NamedTuple):
    """Key of a run in paths, tables and messages."""

    protocol: str
    dataset: str
    backbone: str
    method: str
    seed: int

    @property
    def wildcards(self) -> dict[str, Any]:
        """Wildcards of the rules, with ``timm+resnet50`` for ``timm/resnet50``.

        Identifiers of backbones never contain a plus, so :func:`run_key` inverts this.
        """
        return {**self._asdict(), "backbone": self.backbone.replace("/", "+")}

    @property
    def path(self) -> str:
        """Path of the run below the folder of runs, always five levels."""
        return RUN_PATH.format_map(self.wildcards)


def sharing_rows(key: RunKey, split: str) -> tuple[object, ...]:
    """What runs have in common that must have the same rows of a split, to be compared image by
    image: the validation rows may be drawn by the seed.
    """
    return (split, *key[:3], key.seed if split == "val" else None)


def run_key(wildcards: Any) -> RunKey:
    """Key of the run of a job, from its wildcards."""
    protocol, dataset, backbone, method, seed = (
        getattr(wildcards, name) for name in RunKey._fields
    )
    return RunKey(protocol, dataset, backbone.replace("+", "/"), method, int(seed))


def image_set_of(family: str) -> str:
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


def record_of(folder: Path) -> str:
    """Name of the record in a folder of results: of a run, that of the job."""
    job = folder.name.partition("-")[0].partition("_")[0]  # without the name of a probe
    return PREPARE if folder.parent.name == "data" else f"{job}.json"
