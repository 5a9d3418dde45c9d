"""Results on disk: the folders and files of data, runs and studies, and records of jobs.

``results/data/{dataset}-{id}``,
``results/runs/{protocol}/{dataset}/{backbone}/{method}/seed{seed}/{job}-{id}``,
``results/{study}``.

A record is a JSON file with inputs and results of a job, and the SHA-256 of its files. It contains
its own checksum. Readers verify a listed file with :meth:`Record.verified`. A record also lists the
content of upstream results: planning compares it with the current records
(:mod:`calgrid.plan.pending`).
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypedDict

from calgrid.errors import CalgridError, DataError, StateError
from calgrid.storage.atomic import parse_json, read_json, write_json

#: content of a record, or of the footer of a file: key -> JSON-like value
Facts = Mapping[str, Any]
#: folder with the records of a study, in its folder
HIDDEN = ".calgrid"
#: file names of the records of jobs
TRAIN, PREDICT, CALIBRATE, PROBE = "train.json", "predict.json", "calibrate.json", "probe.json"
#: list of the runs of a packed study
BANK = "bank.json"
#: record of a prepared data set, beside its manifest
PREPARE = "prepare.json"
#: file of a trained network
MODEL = "model.safetensors"
HISTORY = "history.parquet"
#: record key of the checksum of all other keys
CHECKSUM = "checksum"
#: record key of size and SHA-256 of each file, by its path below the root
FILES = "files"
#: record key of the SHA-256 of each input of the job
INPUTS = "inputs"
#: file of a result -> SHA-256, by the folder of the result
Results = Mapping[Path, Mapping[str, str]]
#: keys of records that planning compares
COMPARED = (CHECKSUM, "fingerprint", FILES, INPUTS)
#: end of every message about a damaged result
MEND = "remove it with 'calgrid verify STUDY --delete' and run again"
#: protocol and checkpoint of external logits
EXTERNAL = "external"
EXTERNAL_CHECKPOINT = "last"
#: path of a run below the folder of runs, with Snakemake's wildcards
RUN_PATH = "{protocol}/{dataset}/{backbone}/{method}/seed{seed}"
#: ``ood/svhn`` is the test split of the data set ``svhn``, used as an out-of-distribution set
OOD_PREFIX = "ood/"
#: groups of out-of-distribution sets, declared by data sets; also the ``shift`` of their means
OOD_GROUPS = ("near", "far")
#: stage of a study -> upstream stages; the first one reads results of runs
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
#: folder of copies of plugins below the folder of results; jobs of all studies import from it
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
    """Key of the runs that must share the rows of a split to be compared image by image: validation
    rows may depend on the seed.
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
    """Name of the record in a folder of results; of a run, the record of the job."""
    job = folder.name.partition("-")[0].partition("_")[0]  # without the name of a probe
    return PREPARE if folder.parent.name == "data" else f"{job}.json"


class FileFacts(TypedDict):
    """Size and SHA-256 of a file in a record."""

    bytes: int
    sha256: str


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(content: Any) -> str:
    """SHA-256 of a JSON-like value, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_record(path: Path, content: Facts, indent: int | None = 2) -> None:
    """Write a JSON file with a checksum of its content; ``indent`` as in ``write_json``."""
    plain = json.loads(json.dumps(dict(content)))  # as read later: no tuples, keys are strings
    write_json(path, {**plain, CHECKSUM: digest_of(plain)}, indent)


def read_record(path: Path, what: str = "record") -> Any:
    """Read a file of :func:`write_record`, a JSON object, without the checksum.

    Raises
    ------
    DataError : the file is missing or damaged, or lists a file outside of its folder; the message
        has its name ``what``.
    """
    content = read_json(path, what, MEND)
    found = content.pop(CHECKSUM, None) if isinstance(content, dict) else None
    if found is None or found != digest_of(content):
        raise DataError(f"The {what} {path} has been changed since it was written; {MEND}.")
    if outer := outside(content):
        raise DataError(f"The {what} {path} lists {outer!r}, outside of its folder; {MEND}.")
    return content


def outside(content: Facts) -> str | None:
    """First listed file of a record that is not below its folder, or not on every system."""
    for name in content.get(FILES, {}):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name:
            return name
    return None


def check_fingerprint(facts: Facts, expected: str | None, what: str, mend: str = MEND) -> None:
    """Raise StateError unless ``facts`` have the expected fingerprint; None accepts any.

    The message has the name ``what`` of the file, its path, and the fix ``mend``.
    """
    found = facts.get("fingerprint")
    if expected is not None and found != expected:
        raise StateError(
            f"The {what} belongs to another configuration or code version (fingerprint {found}, "
            f"expected {expected}); {mend}."
        )


def listed(folder: Path, names: Iterable[str]) -> dict[str, FileFacts]:
    """Return size and SHA-256 of files below a folder, for a record."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)}
        for name in names
    }


@dataclass(frozen=True)
class Record:
    """A record and its listed files.

    Attributes
    ----------
    root : folder of the record and the files.
    name : path of the record below ``root``, ``train.json``.
    content : its content.
    """

    root: Path
    name: str
    content: Facts

    @classmethod
    def read(cls, root: Path, name: str) -> "Record":
        """Read a record; raise DataError if it is missing or damaged."""
        return cls(Path(root), name, read_record(Path(root, name), f"{Path(name).stem} record"))

    def verify(self) -> None:
        """Raise DataError or StateError unless all listed files are intact."""
        for name in self.files:
            self.verified(name)

    @property
    def files(self) -> Mapping[str, FileFacts]:
        """Size and SHA-256 of each file."""
        return self.content.get(FILES, {})

    def sha256(self, name: str) -> str:
        """Return the listed SHA-256 of a file; raise StateError if the record does not list it."""
        if name not in self.files:
            raise StateError(f"The record {self.root / self.name} does not list {name}; {MEND}.")
        return self.files[name]["sha256"]

    def verified(self, name: str, what: str = "file") -> Path:
        """Verify the content of a listed file and return its path.

        Raises
        ------
        DataError : it is missing.
        StateError : it is not listed, or its content is another one.
        """
        path, expected = self.root / name, self.sha256(name)
        if not path.is_file():
            raise DataError(f"The {what} {path} does not exist; {MEND}.")
        if path.stat().st_size != self.files[name]["bytes"] or sha256_of(path) != expected:
            raise StateError(
                f"The {what} {path} is damaged (its SHA-256 differs from the record): {MEND}."
            )
        return path

    def damaged(self) -> list[str]:
        """Return the names of listed files that are missing or changed; all files are read."""
        names = list(self.files)
        for name in self.files:
            with contextlib.suppress(CalgridError, OSError):
                self.verified(name)
                names.remove(name)
        return names


def summary_record(study: Path, name: str) -> Record | None:
    """Record of files of a study (``aggregate``, ``tables``, ``figures``, ``report``).

    None if there is none, as in a copy of the files alone.
    """
    paths = sorted(Path(study, HIDDEN).glob(f"{name}-*.json"))
    return Record.read(Path(study), f"{HIDDEN}/{paths[-1].name}") if paths else None


def verified(root: Path | str, record: str, name: str, what: str = "file") -> Path:
    """Verify a file listed in a record and return its path: see :meth:`Record.verified`.

    A file that was copied without its record is not verified.
    """
    if not Path(root, record).exists():
        return Path(root, name)
    return Record.read(Path(root), record).verified(name, what)


def record_content(path: Path) -> Facts:
    """Values of :data:`COMPARED` in a record, without a check of its checksum; empty if it is
    missing or damaged.
    """
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {key: content[key] for key in COMPARED if key in content}


def listing(
    folder: Path,
    parts: Iterable[str] = STUDY_STAGES,
    read: Callable[[Path], Facts] = record_content,
) -> dict[str, str]:
    """Current SHA-256 of the files of a result, or of some parts of a study, from their records; of
    a record itself, the checksum of its content. Empty without a record.
    """
    found: dict[str, str] = {}
    hidden = folder / HIDDEN
    records = [folder / record_of(folder)]
    if hidden.is_dir():
        records = [path for part in parts for path in hidden.glob(f"{part}-*.json")]
    for path in records:
        content = read(path)
        for name, facts in content.get(FILES, {}).items():
            found[name] = facts["sha256"]
        if CHECKSUM in content:
            found[str(path.relative_to(folder))] = content[CHECKSUM]
    return found


def why_not_current(study: Path) -> str:
    """Reason why metrics, tables, figures or report of a study are missing, damaged or stale; empty
    if all are current.

    Upstream results of runs are not read.
    """
    for stage, above in MADE_FROM.items():
        records = list(Path(study, HIDDEN).glob(f"{stage}-*.json"))
        if not records:
            is_copy = not (study / HIDDEN).is_dir()
            records_of = f"their records are missing (folder {HIDDEN}; copy it, too)"
            return records_of if is_copy else f"the stage '{stage}' is missing"
        if len(records) > 1:
            return f"the stage '{stage}' has records of several versions"
        try:
            record = Record.read(study, f"{HIDDEN}/{records[0].name}")
        except (CalgridError, OSError) as error:
            return str(error)
        if damaged := record.damaged():
            return f"damaged or missing: {', '.join(damaged)}"
        made_from = record.content.get(INPUTS, {}).get("results", {}).get(os.curdir, {})
        if above and made_from != listing(study, above):
            return f"the stage '{stage}' was made from other files of the study than are there now"
    return ""
