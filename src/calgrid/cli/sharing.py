"""``calgrid pack``, ``publish`` and ``merge``: results as a zip of their folders.

The archive has the folders of a study below ``results`` with the same paths, its configuration, its
metrics for readers, ``bank.json`` (:mod:`calgrid.files.bank`), and ``ro-crate-metadata.json``
(RO-Crate 1.1). Names of folders identify their
content, so a merge only adds folders.
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, cast

import yaml

from calgrid import __version__
from calgrid.cli.maintenance import damage, result_folders, with_bar
from calgrid.configuration.manifest import Manifest, below_results
from calgrid.errors import ConfigError, DataError, StateError
from calgrid.files.bank import check_unpacked
from calgrid.storage.atomic import replacing, require_writable
from calgrid.storage.layout import MANIFEST, record_of
from calgrid.storage.records import (
    BANK,
    CALIBRATE,
    CHECKSUM,
    MODEL,
    Record,
    digest_of,
    read_record,
    summary_record,
)
from calgrid.storage.schema import METRICS

STUDY = "study.yaml"
CRATE = "ro-crate-metadata.json"
#: keys of a configuration that are of the machine on which it ran
LEFT_OUT = ("results", "data_root", "device", "plugins")
#: results of runs in an archive: five levels, then the folder of a job and its files
RESULT = re.compile(r"runs/([^/]+/){5}(train|predict|calibrate|probe_[a-z0-9_]+)-[0-9a-f]+/.+")


def pack(options: argparse.Namespace) -> None:
    """Write the results of a finished study into an archive, without prepared data.

    The same results give the same bytes.

    Raises
    ------
    StateError : the study is not finished, or a file was changed.
    ConfigError : its configuration has an absolute path.
    """
    require_writable(options.archive)
    study: Path = options.study
    _write(options.archive, study, read_record(study / MANIFEST, "manifest"), options)


def publish(options: argparse.Namespace) -> None:
    """Write the archive of a finished study and a page with its rankings into a new folder.

    Raises
    ------
    StateError : the folder is not empty, or as in :func:`pack`.
    ConfigError : as in :func:`pack`.
    """
    from calgrid.reporting.bank import write_page

    folder: Path = options.folder
    study: Path = options.study
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StateError(f"{folder} exists already; give the name of a new folder.")
    manifest = read_record(study / MANIFEST, "manifest")
    archive = folder / f"{study.resolve().name}.zip"
    require_writable(archive)
    _write(archive, study, manifest, options)
    page = write_page(study, cast(Manifest, manifest), _origin(options), archive)
    sys.stdout.write(f"{page}: rankings, licence and citation\n")


def _origin(options: argparse.Namespace) -> dict[str, Any]:
    return {"creators": options.creator, "licence": options.licence, "cite": options.cite}


def _write(path: Path, study: Path, manifest: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the archive of a study."""
    configuration = dict(manifest["configuration"])
    for name in LEFT_OUT:
        configuration.pop(name, None)
    _refuse_absolute_paths(configuration)
    folders = []
    for folder in manifest["folders"]:
        below = below_results(manifest, folder)
        if below.parts[0] == "runs":
            folders.append(study.parent / below)
    runs = []
    for run in manifest["runs"]:
        calibrated = study.parent / below_results(manifest, run["calibrate"])
        spec = Record.read(calibrated, CALIBRATE).content["spec"]
        runs.append(
            {
                "key": run["key"],
                "predict": str(below_results(manifest, run["predict"])),
                "disjoint_validation": spec["disjoint_validation"],
                "sees_validation": run["sees_validation"],
                "draws_validation": run["draws_validation"],
            }
        )
    bank = {"schema": 1, "calgrid": __version__, "origin": _origin(options), "runs": runs}
    totals = summary_record(study, "aggregate")
    if totals is None:
        raise StateError(f"The study in {study} is not finished; call snakemake first.")
    entries: dict[str, Path | str] = {
        STUDY: yaml.safe_dump(configuration, allow_unicode=True),
        METRICS: totals.verified(METRICS, "metrics file"),
        CRATE: json.dumps(_crate(options, study.name, folders), indent=2) + "\n",
        BANK: json.dumps({**bank, CHECKSUM: digest_of(bank)}, indent=2) + "\n",
    }
    for folder in with_bar(folders, "verify"):
        for file in _verified_files(folder, options.models):
            entries[file.relative_to(study.parent).as_posix()] = file
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name in with_bar(sorted(entries), "pack"):
            content = entries[name]
            data = content.encode() if isinstance(content, str) else content.read_bytes()
            archive.writestr(zipfile.ZipInfo(name), data)  # a fixed date: the same bytes each time
    size = path.stat().st_size
    sys.stdout.write(f"{path}: {len(folders)} results, {size / 1e6:,.1f} MB\n")


def _verified_files(folder: Path, models: bool) -> Iterator[Path]:
    reason, _ = damage(folder)
    if reason:
        raise StateError(
            f"{folder}: {reason}; 'calgrid verify --delete' removes it, then run again."
        )
    name = record_of(folder)
    yield folder / name
    for file in Record.read(folder, name).files:
        if file != MODEL or models:
            yield folder / file


def _refuse_absolute_paths(value: Any) -> None:
    """Raise ConfigError for an absolute path, which would reveal names of this machine."""
    if isinstance(value, str) and (value.startswith("~") or Path(value).is_absolute()):
        raise ConfigError(
            f"The configuration contains the absolute path {value}; make it relative and run again."
        )
    values = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for inner in values:
            _refuse_absolute_paths(inner)


def _crate(options: argparse.Namespace, name: str, folders: list[Path]) -> dict[str, Any]:
    """Description of the archive as an RO-Crate."""
    creators, references = [], []
    for creator in options.creator:
        references.append({"@id": f"#{creator}"})
        creators.append({"@id": f"#{creator}", "@type": "Person", "name": creator})
    finished = [Record.read(folder, record_of(folder)).content["finished"] for folder in folders]
    dataset = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"calgrid results of the study {name}",
        "description": f"Records, histories, logits and metrics; written by calgrid {__version__}.",
        "datePublished": max(finished)[:10],
        "license": {"@id": f"https://spdx.org/licenses/{options.licence}"},
        "creator": references,
        "hasPart": [{"@id": STUDY}],
    }
    if options.cite:
        dataset["citation"] = options.cite
    descriptor = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }
    study = {"@id": STUDY, "@type": "File", "name": "configuration of the study"}
    context = "https://w3id.org/ro/crate/1.1/context"
    return {"@context": context, "@graph": [descriptor, dataset, study, *creators]}


# merge ----------------------------------------------------------------------------------------


def merge(options: argparse.Namespace) -> None:
    """Add the results in an archive to those here; results that are here already stay.

    Raises
    ------
    DataError : the archive is damaged, or holds other files than results.
    """
    results: Path = options.results
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=results, prefix=".merge-") as hidden:
        unpacked = Path(hidden)
        try:
            with zipfile.ZipFile(options.archive) as archive:
                _check_names(archive, options.archive)
                for member in with_bar(archive.infolist(), "unpack"):
                    target = unpacked / member.filename
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(member) as source, target.open("xb") as copy:
                        shutil.copyfileobj(source, copy)
        except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError) as error:
            raise DataError(f"{options.archive} is not a readable archive ({error}).") from error
        folders = list(result_folders(unpacked))
        for folder in with_bar(folders, "verify"):
            reason, _ = damage(folder)
            if reason:
                name = folder.relative_to(unpacked)
                raise DataError(f"{options.archive}: {name} is damaged: {reason.rstrip('.')}.")
        added = 0
        for folder in folders:
            target = results / folder.relative_to(unpacked)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                folder.rename(target)
                added += 1
    have = len(folders) - added
    sys.stdout.write(f"{added} results merged into {results}, {have} were there already\n")


def _check_names(archive: zipfile.ZipFile, path: Path) -> None:
    """Raise DataError unless the archive holds results of a sane size, and nothing else."""
    for name in archive.namelist():
        parts = PurePosixPath(name).parts
        if name not in (STUDY, CRATE, BANK, METRICS) and (
            not RESULT.fullmatch(name) or ".." in parts
        ):
            raise DataError(f"{path} is no archive of 'calgrid pack': it holds {name!r}.")
    check_unpacked(archive, path)
