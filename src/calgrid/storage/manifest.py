"""The manifest of a study: runs, questions and papers, the source of tables, figures and report.
:meth:`calgrid.plan.plan.Plan.manifest` creates it.
"""

from pathlib import Path, PurePosixPath
from typing import NotRequired, TypedDict

from calgrid.storage.records import HIDDEN, Facts
from calgrid.storage.specs import JobSpec, Key, NamedComponent

#: machine-specific keys of a configuration
OF_THE_PLACE = ("results", "data_root", "device", "plugins")


class FirstStageRun(TypedDict):
    """Method and training folder of the run from which a second stage starts."""

    method: str
    train: str


class MeasuredProbe(NamedComponent):
    """A probe with fingerprint and folder of its table."""

    fingerprint: str
    folder: str


class ManifestRun(TypedDict):
    """A run of a study with the folders of its results and the ``fingerprint`` of its calibration.

    External runs and ensembles have no ``train``; ``members`` are the folders of the trainings of
    an ensemble, with first stages. An ensemble with an external member counts as ``external``.
    ``bank``: whether an external run is of a bank. ``class_groups``: number of classes of each
    group of its data set, the first classes first. ``further``: folders of its results beside
    predictions and scores, those of ``probes`` among them.
    """

    key: Key
    train: str | None
    predict: str
    calibrate: str
    first_stage: FirstStageRun | None
    fingerprint: str
    external: bool
    families: list[str]
    ood_groups: dict[str, list[str]]
    sees_validation: bool
    draws_validation: bool
    warning: str
    class_groups: NotRequired[dict[str, int]]
    bank: NotRequired[bool]
    further: NotRequired[list[str]]
    probes: NotRequired[list[MeasuredProbe]]
    members: NotRequired[list[str]]


class ManifestPaper(TypedDict):
    """A paper; ``published`` is the path of the file with its numbers, absolute or below
    :func:`calgrid.study.home.home`. ``own_protocols``: see
    :func:`calgrid.study.papers.own_protocols`.
    """

    name: str
    published: str
    own_protocols: list[str]


class Manifest(TypedDict):
    """Inputs of aggregation and report.

    ``configuration`` has the keys of :mod:`calgrid.study.model` with a value, ``given`` the keys
    named in the configuration of the study, after validation. ``published`` lists files of numbers,
    ``published_sha256`` their content. ``protocols`` maps protocols to descriptions (see
    :func:`calgrid.study.protocols.described`), ``lines`` to their shared tables.
    """

    published: list[str]
    published_sha256: NotRequired[dict[str, str]]
    papers: NotRequired[list[ManifestPaper]]
    protocols: NotRequired[dict[str, str]]
    lines: NotRequired[dict[str, str]]
    runs: list[ManifestRun]
    folders: list[str]
    configuration: Facts
    given: Facts
    fingerprint: str


class PlannedInputs(TypedDict):
    """Module of a job, and whether its threads are processes; upstream files it ``reads``, digest
    of its code, the user's ``files``, recorded relative to ``root``, and the copy of its plugins.
    """

    module: str
    in_processes: bool
    reads: list[str]
    code: str
    files: dict[str, str]
    root: str
    plugins: str


class PlanFile(TypedDict):
    """The file of a plan: specifications by the folders of jobs, ``inputs`` by folder or stage,
    modules and their digests by digest of ``code``, and ``sources``, digests of the bytes of code.

    ``rows`` has the identities of val and test of runs of banks, and of test of other
    external logits, by the folders of the trainings whose networks are compared with them.
    """

    manifest: Manifest
    jobs: dict[str, JobSpec]
    inputs: dict[str, PlannedInputs]
    code: dict[str, dict[str, str]]
    sources: dict[str, str]
    rows: dict[str, dict[str, str]]


def below_results(manifest: Facts, folder: str) -> PurePosixPath:
    """Path of a folder of a manifest below the folder of all results."""
    return PurePosixPath(folder).relative_to(manifest["configuration"]["results"])


def of_any_place(configuration: Facts) -> Facts:
    """The keys of a configuration that mean the same on every machine."""
    return {name: value for name, value in configuration.items() if name not in OF_THE_PLACE}


def plans(study: Path) -> list[Path]:
    """Plans of a study, each with its manifest; the newest is the last."""
    return sorted(study.glob(f"{HIDDEN}/plan-*.json"), key=lambda path: path.stat().st_mtime)
