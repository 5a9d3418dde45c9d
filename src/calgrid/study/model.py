"""The configuration of a study: every key with its type, default and meaning.

Invalid values raise ConfigError, with one sentence; see :mod:`calgrid.components.validation`.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, WrapValidator, model_validator, with_config
from typing_extensions import TypedDict

from calgrid.components.validation import Distinct, InvalidOptionError, Model, Names, OneOrMore
from calgrid.training.protocol import Fraction

#: folders of the results that no study may be called after
RESERVED = ("runs", "data", "logs", "benchmarks")


def _not_reserved(name: str) -> str:
    if name in RESERVED:
        raise InvalidOptionError(f": the name '{name}' is reserved; choose another one")
    return name


StudyName = Annotated[
    str,
    Field(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100),
    AfterValidator(_not_reserved),
]
#: name of an entry of the configuration
Name = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$", max_length=60)]
Text = Annotated[str, Field(min_length=1)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
Seeds = Annotated[list[Seed], Field(min_length=1), Distinct]
#: name of an external run in a column of the results
Column = Annotated[str, Field(pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]
Method = Annotated[str, Field(pattern="^[A-Za-z0-9_][A-Za-z0-9_.+-]*$", max_length=100)]


@with_config(ConfigDict(extra="allow", strict=True))
class Variant(TypedDict):
    """A registered component and the options that differ; the component checks its options."""

    base: Annotated[str, Field(description="Registered id that this is a variant of.")]


@with_config(ConfigDict(extra="allow", strict=True))
class ConfiguredDataset(Variant, total=False):
    """A kind of data set and its options (calgrid list datasets), which its class explains."""

    like: Annotated[
        str,
        Field(
            description="Registered data set from which number of classes, normalisation, image "
            "size, split of val, default hyper-parameters and shift families are taken; options "
            "given here override them."
        ),
    ]
    families: Annotated[
        Names,
        Field(
            description="Further shift families and out-of-distribution sets (ood/NAME, also of "
            "another entry here)."
        ),
    ]


class Grid(Model):
    """All combinations of the lists are run."""

    protocol: str = Field(
        description="How to train - an id in config/protocols/ or a variant from `protocols`."
    )
    datasets: Names = Field(description="Data sets to train on.")
    backbones: Names = Field(
        description="Networks, or the path of a text file with one name a line, relative to the "
        "working directory or of calgrid.",
        json_schema_extra={"type": ["array", "string"]},
    )
    methods: Names = Field(
        description="Training-time methods; a procedure with a loss is written mixup+ls, a second "
        "stage over another method maccal+mbls, an ensemble of three seeds ens3(ce)."
    )
    seeds: Seeds = Field(description="Seeds of the runs.")
    calibrators: Names = Field(
        ["none"], description="Post-hoc calibrators; none is the uncalibrated network."
    )
    calibrator_seeds: Seeds = Field(
        [0],
        description="Seeds of calibrators that start from random numbers; the others are fitted "
        "once.",
    )
    fit_on: Annotated[list[Literal["val", "same_shift", "redrawn"]], Distinct] = Field(
        ["val"],
        min_length=1,
        description="Data that the calibrators are fitted on: val, and for shift families also "
        "same_shift, a random 20 % of each corruption and severity, with scores on the other 80 "
        "%; redrawn, in addition to val, a random 20 % of val and test together, with scores on "
        "the other 80 %, for data sets without training images. calibrator_seeds seed both draws.",
    )
    probes: Names = Field(
        [], description="Measurements of the trained networks (calgrid list probes)."
    )
    shifts: Annotated[list[str], Distinct] = Field(
        [],
        description="Shift families (digits_c) and out-of-distribution sets (ood/photos) to score "
        "on.",
    )


class Match(Model):
    """Runs that an override changes: all keys given must match, each one of the listed values."""

    method: OneOrMore = Field([], description="Method ids or names of variants.")
    dataset: OneOrMore = Field([], description="Data set ids.")
    backbone: OneOrMore = Field([], description="Backbone ids.")
    protocol: OneOrMore = Field([], description="Protocol ids or names of variants.")

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.model_fields_set:
            raise InvalidOptionError(" must not be empty")
        return self


class Override(Model):
    """Hyper-parameters for some methods, data sets, backbones or protocols."""

    match: Match = Field(
        description="All keys given must match; a key matches if it names the value or lists it."
    )
    set: dict[str, Any] = Field(min_length=1, description="Hyper-parameter names and values.")


class Evaluated(Model):
    """Calibrators of predictions made elsewhere."""

    calibrators: Names = Field(["none"], description="Post-hoc calibrators.")
    calibrator_seeds: Seeds = Field([0], description="Seeds of random calibrators.")


class Shown(Evaluated):
    """Predictions made elsewhere that are named here."""

    method: Method = Field("ce", description="Method shown in the tables.")
    seed: Seed = Field(0, description="Seed shown in the tables.")


class CalArena(Shown):
    """Predictions of CalArena, calibrated and compared like those of a trained run."""

    base: Literal["calarena"] = Field(
        description="Form of the file - with calarena, an HDF5 file of that benchmark."
    )
    file: str = Field(description="HDF5 file (.h5) below data_root.")
    group: OneOrMore = Field(
        description="Groups dataset/model of the file, each a run with its data set and backbone; "
        "their probas_cal fit the calibrators, and their probas_test score them."
    )


class Bank(Evaluated):
    """Runs of a packed study, which keep their protocol, data set, backbone, method and seed.

    Runs of a bank are compared with the runs of this study of the same protocol, data set and
    backbone, and must have the same validation and test images. By default all runs of the bank are
    used; the keys ``methods``, ``datasets``, ``backbones`` and ``seeds`` select a subset.
    """

    base: Literal["bank"] = Field(
        description="Form of the file - with bank, an archive of calgrid pack or publish."
    )
    file: str = Field(description="The archive, or the folder it was unpacked to, below data_root.")
    url: Annotated[str, Field(pattern="^https://")] | None = Field(
        None, description="Address from which the archive is downloaded if the file does not exist."
    )
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, description="Checksum of the archive, required with url."
    )
    methods: Names | None = Field(None, description="Methods to take.")
    datasets: Names | None = Field(None, description="Data sets to take.")
    backbones: Names | None = Field(None, description="Networks to take.")
    seeds: Seeds | None = Field(None, description="Seeds to take.")

    @model_validator(mode="after")
    def _known_download(self) -> Self:
        if self.url is not None and self.sha256 is None:
            raise InvalidOptionError(": 'url' needs 'sha256', the checksum of the archive")
        return self


class Ensembles(Evaluated):
    """Ensembles of external runs that differ only in their seed, also together with trained seeds
    of a grid. Ensembles of trained runs alone are methods of grids.
    """

    methods: Names = Field(
        description="Names such as ens3(ce), of probabilities; ens3(ce,logit), of logits; "
        "ens3(ce,ts), of probabilities that a calibrator gives for each member."
    )


class Sampled(Evaluated):
    """Logits made elsewhere, also with subsets of their validation rows."""

    val_rows: Annotated[list[Annotated[int, Field(ge=1, le=10**9)]], Distinct] | None = Field(
        None,
        min_length=1,
        description="Sizes of the set that the calibrators are fitted on: each is a separate run, "
        "data set NAME_nROWS, with the first rows of a random order of the val rows, so that "
        "smaller sets are subsets of larger ones.",
    )
    val_seeds: Seeds = Field(
        [1], description="Seeds of these random orders, one run each; they replace seed."
    )
    protocol: Column = Field(
        "external",
        description="Protocol shown in the tables; runs of one protocol, data set and backbone are "
        "compared, also with those of a bank.",
    )
    dataset: Column | None = Field(
        None, description="Data set shown in the tables; default that of 'run', or else the name."
    )

    @model_validator(mode="after")
    def _orders_of_subsets(self) -> Self:
        if "val_seeds" in self.model_fields_set and self.val_rows is None:
            raise InvalidOptionError(
                ".val_seeds has no effect without 'val_rows'; give both or remove it"
            )
        return self


class NamedRun(Model):
    """A run of another study; besides ``study``, only keys that distinguish it there are needed."""

    study: StudyName = Field(description="Study in the same folder of results.")
    protocol: str | None = Field(None, description="Protocol of the run.")
    dataset: str | None = Field(None, description="Data set of the run.")
    backbone: str | None = Field(None, description="Backbone of the run.")
    method: str | None = Field(None, description="Method of the run.")
    seed: Seed | None = Field(None, description="Seed of the run.")
    checkpoint: str | None = Field(
        None, description="Tested checkpoint of the run, for example best."
    )


class OfStudy(Sampled):
    """A run made by another study; keeps its data set, backbone, method and seed."""

    run: NamedRun = Field(description="The study, and what tells the run from others there.")
    method: Method | None = Field(
        None, description="Method shown in the tables; default that of the run."
    )


class External(Sampled, Shown):
    """Logits made elsewhere, calibrated and compared like those of a trained run."""

    test: str = Field(
        description="File with the test rows, below data_root - logits and label as .npz, .pt, "
        ".parquet or .csv."
    )
    val: str | None = Field(
        None,
        description="File below data_root with the rows for fitting calibrators; without it the "
        "test rows are split by split_seed.",
    )
    test_labels: str | None = Field(
        None, description="File with the labels of the test rows, if separate."
    )
    val_labels: str | None = Field(
        None, description="File with the labels of the val rows, if separate."
    )
    values_key: str | None = Field(
        None,
        description="Name of the array or column of logits or probabilities, or common prefix of "
        "such columns.",
    )
    label_key: str | None = Field(None, description="Name of the array or column of labels.")
    classes: Annotated[list[str], Distinct] | None = Field(
        None,
        min_length=2,
        description="Class names in the order of the columns, if labels or columns have such "
        "names.",
    )
    binary: bool | None = Field(
        None, description="Whether the files have a single column, for class 1 of two."
    )
    split_seed: Seed | None = Field(
        None, description="Seed of the random split of the test rows, without a val file."
    )
    val_fraction: Fraction = Field(
        0.5,
        description="Fraction of the test rows for fitting the calibrators, without a val file.",
    )
    head: str | None = Field(
        None,
        description="File below data_root with weight (K, d) and bias (K,) of the last layer "
        "(.npz, .pt or .safetensors), for fc.",
    )
    kind: Literal["logits", "probabilities"] = Field(
        description="Kind of the values in the files; never guessed."
    )
    backbone: str = Field(
        "unknown",
        max_length=100,
        pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$",
        description="Backbone shown in the tables.",
    )


#: forms of files by the key ``base`` of an entry of ``external``
FORMS: dict[str, type[Bank | CalArena]] = {"bank": Bank, "calarena": CalArena}


def _source_of(value: Any, _: object) -> Bank | CalArena | External | OfStudy:
    """Entry of ``external``: a run of another study, or files whose form the key ``base`` names."""
    if isinstance(value, dict) and "run" in value:
        return OfStudy.model_validate(value)
    if not isinstance(value, dict) or "base" not in value:
        return External.model_validate(value)
    if value["base"] not in list(FORMS):
        raise InvalidOptionError(f".base must be one of {', '.join(FORMS)}, got {value['base']!r}")
    return FORMS[value["base"]].model_validate(value)


class Comparison(Model):
    """One question about two methods or, with calibrator, about two calibrators; it is answered by
    paired tests over seeds and test images.
    """

    question: Text = Field(description="The question in plain words.")
    method: str | None = Field(
        None,
        description="Method of a grid of this study; with calibrator the method whose networks are "
        "calibrated, by default each one.",
    )
    calibrator: str | None = Field(None, description="Calibrator of a grid of this study, or none.")
    against: str = Field(
        description="Method or calibrator of the same grid that it is compared with; differences "
        "are method or calibrator minus against."
    )

    @model_validator(mode="after")
    def _compares(self) -> Self:
        if self.method is None and self.calibrator is None:
            raise InvalidOptionError(": give 'method' or 'calibrator'")
        return self


class Scoring(Model):
    """Options of scores: a change in one scores all runs again."""

    bins: int = Field(15, ge=2, le=10_000, description="Bins of the calibration errors.")
    bootstrap: int = Field(
        1000,
        ge=0,
        le=100_000,
        description="Bootstrap resamples of the test set for each interval; 0 computes none. "
        "Verdicts have 200 resamples of their own.",
    )
    metrics: Names | None = Field(
        None,
        description="Metrics of plugins to compute in addition to those of calgrid, for example "
        "my_metric of my_folder/metrics/my_metric.py (docs/extending.md).",
    )
    conformal: (
        Annotated[list[Literal["thr", "aps", "raps", "saps"]], Field(min_length=1), Distinct] | None
    ) = Field(
        None,
        description="Scores of conformal prediction sets (calgrid list conformal), which follow "
        "every calibrator, at coverages of 90 and 95 %. A random half of the validation rows "
        "fits the calibrator once more, the other half fits the sets.",
    )
    level: Fraction = Field(
        0.95,
        description="Confidence level of all intervals; 1 - level is the family-wise error of the "
        "verdicts.",
    )
    seed: Seed = Field(
        0,
        description="Seed of the bootstrap; all methods use the same resamples, so that "
        "differences are paired.",
    )


class Statistics(Scoring):
    """Options of metrics, intervals and tests."""

    baseline: str = Field("ce", description="Method that all others are compared with.")
    comparisons: Annotated[list[Comparison], Distinct] = Field(
        [], description="Questions about two methods or two calibrators of the study."
    )


class Candidate(Model):
    """A method of a grid; with a protocol if the candidates differ in it (weight decay)."""

    protocol: str = Field(description="Protocol id or name of a variant.")
    method: str = Field(description="Method id or name of a variant.")


#: each may be the name of a method alone
Candidates = Annotated[
    list[Candidate],
    Field(min_length=1, json_schema_extra={"items": {"type": ["string", "object"]}}),
]


class Tuning(Model):
    """Methods tuned with an equal budget of candidates."""

    protocol: str = Field(
        description="Default protocol of the candidates, and protocol name of the tuned methods in "
        "comparisons."
    )
    metric: Literal["nll", "brier", "ece", "ece_debiased", "aece_eq", "accuracy"] = Field(
        "nll",
        description="Metric on the validation rows, without a calibrator, by which each seed "
        "chooses a candidate.",
    )
    methods: dict[Name, Candidates] = Field(
        min_length=1,
        description="Name of the tuned method, and its candidates, the default first; each must "
        "be in a grid.",
    )

    @model_validator(mode="before")
    @classmethod
    def _full_candidates(cls, value: Any) -> Any:
        """Replace candidates that are only a method by method and protocol."""
        if not isinstance(value, dict) or not isinstance(value.get("methods"), dict):
            return value
        protocol = value.get("protocol")
        methods = {}
        for name, listed in value["methods"].items():
            methods[name] = listed
            if isinstance(listed, list):
                methods[name] = [
                    {"protocol": protocol, "method": each} if isinstance(each, str) else each
                    for each in listed
                ]
        return {**value, "methods": methods}


class Config(Model):
    """The configuration of a study."""

    study: StudyName = Field(
        description="Name of the study; its tables, figures and report go to results/{study}/."
    )
    results: Text = Field(
        "results",
        description="Folder for all results, relative to the working directory; runs in it are "
        "shared by all studies.",
    )
    data_root: str | None = Field(
        "data",
        description="Folder with downloaded data sets, your own data and the files of external "
        "logits; null uses the working directory and downloads nothing. The first download "
        "creates it; if nothing is downloaded, it must exist unless it is a plain name.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="Device for training and prediction; auto uses a GPU if there is one. Never "
        "part of a fingerprint.",
    )
    keep_models: bool = Field(
        True,
        description="Whether missing models are trained again, like any other missing result. "
        "With false you can delete model.safetensors of finished runs to save disk space; a "
        "model is trained again only if a job needs it.",
    )
    plugins: Annotated[list[Text], Distinct] = Field(
        [],
        description="Folders with your own methods, relative to the working directory, or else "
        "to the file of the configuration; each mirrors src/calgrid, for example "
        "my_folder/losses/my_loss.py (docs/extending.md). The variable CALGRID_PLUGINS adds "
        "further ones.",
    )
    include: Text | None = Field(
        None,
        description="YAML file with datasets, methods, calibrators, probes and protocols that "
        "several studies share, relative to the working directory or of calgrid; own entries "
        "replace those of the same name.",
    )
    grids: list[Grid] = Field(
        [],
        min_length=1,
        description="Blocks of the grid; the study is their union, and shared runs are made once.",
    )
    datasets: dict[Name, ConfiguredDataset] = Field(
        {},
        description="Your own data sets, from files below data_root, and variants of registered "
        "data sets with options; any grid can use them by name.",
    )
    methods: dict[Name, Variant] = Field(
        {},
        description="Named variants of training-time methods, usable in any grid under their own "
        "name.",
    )
    calibrators: dict[Name, Variant] = Field(
        {}, description="Named variants of calibrators, usable in any grid under their own name."
    )
    probes: dict[Name, Variant] = Field(
        {}, description="Named variants of probes, usable in any grid under their own name."
    )
    protocols: dict[Name, Variant] = Field(
        {},
        description="Named variants of protocols; their keys override those of the base protocol, "
        "level by level, but a schedule with a name replaces that of the base.",
    )
    overrides: list[Override] = Field(
        [],
        description="Hyper-parameters for some methods, data sets, backbones or protocols; later "
        "entries win.",
    )
    external: dict[
        Name, Annotated[Bank | CalArena | External | OfStudy, WrapValidator(_source_of)]
    ] = Field(
        {},
        min_length=1,
        description="Logits made elsewhere, by name; they are calibrated and compared like trained "
        "runs.",
    )
    ensembles: Ensembles | None = Field(
        None, description="Ensembles of the runs of external, and their calibrators."
    )
    label_counts: dict[str, str] = Field(
        {},
        description="Number of people who chose each class for each test image, by data set: a "
        "file below data_root, .npy (N, K) or Parquet with a column counts, in the order of the "
        "test split. Adds soft_kl, soft_tv and soft_ece to its metrics.",
    )
    statistics: Statistics = Field(
        default_factory=Statistics, description="Options of metrics, intervals and tests."
    )
    tuning: Tuning | None = Field(
        None,
        description="Methods tuned with an equal budget - every method has the same number of "
        "candidates, each seed chooses one by its validation rows, and the table of tuned "
        "methods scores the choices on the test split.",
    )
    papers: Annotated[list[str], Distinct] = Field(
        [],
        description="Papers whose tables are written with our numbers next to the published ones - "
        "folders in config/papers. Their numbers are also added to published.",
    )
    names: dict[str, Text] = Field(
        {},
        description="Names of methods and calibrators in tables, figures and the report - "
        "{fedlas_ls: FeDLaS over LS}. Commands and files of numbers keep the identifiers.",
    )
    lines: dict[Name, Names] = Field(
        {},
        description="Protocols that share the tables of a paper, under a new name - those by which "
        "one paper trains on different data sets or networks. By default each protocol has "
        "separate tables.",
    )
    published: list[str] = Field(
        [],
        description="CSV files with published numbers for comparison, relative to the working "
        "directory, or those of calgrid.",
    )

    @model_validator(mode="after")
    def _some_runs(self) -> Self:
        if not self.grids and not self.external:
            raise InvalidOptionError(": give 'grids', 'external' or both")
        return self
