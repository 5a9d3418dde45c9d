"""Job specifications: the JSON input of a job.

:class:`calgrid.plan.plan.Plan` creates them; a ``fingerprint`` covers all that determines
the stage's result.
"""

from typing import Literal, NotRequired, TypedDict, TypeVar

from calgrid.components.options import Options

#: views of an image over which predictions are averaged
Views = Literal["one", "mirror", "mirror_translate"]
#: what an ensemble averages over its members
Pool = Literal["probability", "logit", "calibrated"]


class Key(TypedDict):
    """Key of a run; see :class:`calgrid.storage.records.RunKey`."""

    protocol: str
    dataset: str
    backbone: str
    method: str
    seed: int


class Component(TypedDict):
    """A registered component with all its hyper-parameters."""

    id: str
    options: Options


class NamedComponent(Component):
    """A component with its name in the configuration."""

    name: str


class Calibrator(NamedComponent):
    """A calibrator; ``needs`` lists its inputs: ``logits``, ``features``, ``head``."""

    stochastic: bool
    needs: list[str]


class FirstStage(TypedDict):
    """Training and checkpoint from which a second stage starts."""

    fingerprint: str
    checkpoint: str


class CheckpointFile(TypedDict):
    """A file of weights: its name and its folder below ``data_root``; of a published one the
    address, of the user's own the SHA-256.
    """

    name: str
    folder: str
    url: NotRequired[str]
    source: NotRequired[str]


class Normalisation(TypedDict):
    """Mean and standard deviation of each channel, for pixels in [0, 1]; lists in JSON."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class ConfiguredData(TypedDict):
    """A data set of the user's own files, or a variant of a registered one.

    ``kind`` is the registered class, ``sources`` the SHA-256 of each file, ``info`` the known
    facts.
    """

    image_set: str
    kind: str
    options: Options
    sources: dict[str, str]
    info: Options
    fingerprint: str


class JobSpec(TypedDict):
    """Common keys of all specifications."""

    fingerprint: str


Spec = TypeVar("Spec", bound=JobSpec)


class DataSpec(JobSpec):
    """A data set or shift family to prepare; ``base``: folder of the data set to corrupt;
    ``val_seed``: seed of the draw of validation images, if not the data set's.
    """

    image_set: str
    base: str | None
    val_seed: NotRequired[int]
    configured: ConfiguredData | None


class TrainSpec(JobSpec):
    """One training run. ``protocol`` has the keys of
    :class:`calgrid.training.protocol.Protocol`, ``data`` is the fingerprint of the data
    set; published weights have no ``loss``.
    """

    key: Key
    protocol: Options
    procedure: Component
    data: str
    first_stage: FirstStage | None
    loss: NotRequired[Component]
    checkpoint: NotRequired[CheckpointFile]


class TestSpec(JobSpec):
    """Common keys of tests of a trained network."""

    key: Key
    checkpoints: list[str]
    run_fingerprint: str
    #: data set -> constants of its test images
    test_normalisation: dict[str, Normalisation]


class PredictSpec(TestSpec):
    """Logits of a run. ``shifts`` are the shift families with the fingerprints of their images,
    ``files`` the fingerprints of the logits of each split and shift family.
    """

    export_features: bool | Literal["all", "train"]
    test_views: Views
    shifts: dict[str, str]
    files: dict[str, str]


class ProbeSpec(TestSpec):
    """One measurement of a trained network."""

    probe: NamedComponent


#: files of an entry of ``external``, in the order of the job's arguments
EXTERNAL_FILES = ("val", "val_labels", "test", "test_labels", "head")
#: keys of an entry of ``external`` about the content of its files
EXTERNAL_READING = ("values_key", "label_key", "classes", "binary")


class ExternalSpec(JobSpec):
    """An import of external logits.

    ``external`` has the name of its entry, the names of the run, and the keys about its files, as
    declared in ``calgrid.study.model``; ``test`` is the file of every form, and the files
    of a run of another study are below the folder of results. ``val_rows`` and ``val_seed`` are
    those of the run. ``group`` is a group of a file of CalArena, and ``bank`` a run of a bank: its
    folder, and the SHA-256 of its files of logits.
    """

    key: Key
    external: Options
    sources: list[str]


class Member(TypedDict):
    """A member of an ensemble: the fingerprint of each of its files of logits."""

    seed: int
    logits: dict[str, str]


class EnsembleSpec(JobSpec):
    """An ensemble of runs; ``pool`` is the averaged quantity, after ``calibrator``."""

    key: Key
    members: list[Member]
    checkpoints: list[str]
    families: list[str]
    pool: Pool
    calibrator: "FittedCalibrator | None"
    disjoint_validation: bool


class FittedCalibrator(Calibrator):
    """A calibrator with the seeds of its fits, and the fingerprint of its code and options."""

    seeds: list[int]
    fingerprint: str


class LabelCounts(TypedDict):
    """File with counts of human labels for each test image."""

    file: str
    sha256: str


class CalibrateSpec(JobSpec):
    """Calibration and scoring of a run.

    ``families`` are the scored shift families, ``some_classes`` the families scored only on the
    logits of their own classes, ``ood_groups`` the ``near`` and ``far`` families; ``fit_on`` lists
    the data of fits (``val``, ``same_shift``, ``redrawn``), ``draws`` the seeds of the rows of the
    latter two; ``statistics`` has the keys of ``calgrid.study.model.Statistics`` that affect
    scores.
    """

    key: Key
    checkpoints: list[str]
    families: list[str]
    some_classes: list[str]
    ood_groups: dict[str, list[str]]
    fit_on: list[str]
    draws: list[int]
    calibrators: list[FittedCalibrator]
    statistics: Options
    run_fingerprint: str
    logits: dict[str, str]
    label_counts: LabelCounts | None
    disjoint_validation: bool
