"""``calgrid pack``: results as a zip of their folders.

The archive is a folder of results with one study: its runs, its tables and its report. Beside them
are the configuration, the sources of its plugins, and ``bank.json``: creators, licence, citation,
the runs (:mod:`calgrid.logits.bank`), and the SHA-256 of all files outside of ``runs``, which
have records of their own.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from calgrid import __version__
from calgrid.cli.maintenance import damage, with_bar
from calgrid.cli.study_of import STUDY_FILE, finished_study
from calgrid.cli.terminal import Arguments, write
from calgrid.components import copies, plugins
from calgrid.errors import ConfigError, StateError
from calgrid.storage.atomic import replacing, require_writable
from calgrid.storage.manifest import Manifest, below_results, of_any_place
from calgrid.storage.records import (
    BANK,
    CALIBRATE,
    CHECKSUM,
    FILES,
    INPUTS,
    MANIFEST,
    MODEL,
    PLUGINS,
    STUDY_STAGES,
    Facts,
    FileFacts,
    Record,
    digest_of,
    read_record,
    record_of,
    summary_record,
)
from calgrid.study.home import home

#: folder of the sources of plugins
SOURCES = "plugins"


def pack(options: Arguments) -> None:
    """Write the results of a finished study into an archive, without prepared data.

    The same results give the same bytes.

    Raises
    ------
    StateError : the study is not finished, or a file was changed.
    ConfigError : its configuration has an absolute path.
    """
    require_writable(options.archive)
    study = finished_study(options.study)
    manifest: Manifest = read_record(study / MANIFEST, "manifest")
    plugins.use(manifest["configuration"].get("plugins", ()), f"The study {study}: plugins")
    folders = []
    for folder in manifest["folders"]:
        below = below_results(manifest, folder)
        if below.parts[0] == "runs":
            folders.append(study.parent / below)
    entries: dict[str, Path | str] = {**_sources(study), **_summaries(study, manifest)}
    entries[STUDY_FILE] = _configuration(manifest["given"], entries, options.models)
    bank = {
        "schema": 1,
        "calgrid": __version__,
        "origin": {
            "creators": options.creator,
            "licence": options.licence,
            "cite": options.cite,
        },
        "runs": _runs(study, manifest),
        FILES: {name: _facts(content) for name, content in entries.items()},
    }
    entries[BANK] = _record(bank)
    for folder in with_bar(folders, "verify"):
        for file in _verified_files(folder, study, options.models):
            entries[file.relative_to(study.parent).as_posix()] = file
    with replacing(options.archive) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name in with_bar(sorted(entries), "pack"):
            # a fixed date: the same bytes each time
            archive.writestr(zipfile.ZipInfo(name), _bytes(entries[name]), zipfile.ZIP_DEFLATED)
    size = options.archive.stat().st_size
    write(f"{options.archive}: {len(folders)} results, {size / 1e6:,.1f} MB\n")


def _bytes(content: Path | str) -> bytes:
    return content.encode() if isinstance(content, str) else content.read_bytes()


def _facts(content: Path | str) -> FileFacts:
    data = _bytes(content)
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _record(content: Facts) -> str:
    """Text of a record."""
    return json.dumps({**content, CHECKSUM: digest_of(content)}, indent=2, sort_keys=True) + "\n"


def _runs(study: Path, manifest: Manifest) -> list[Facts]:
    """Entries of the runs in ``bank.json``."""
    runs: list[Facts] = []
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
    return runs


def _sources(study: Path) -> dict[str, Path]:
    """Sources and data files of the plugins behind results, as they ran."""
    report = summary_record(study, "report")
    name = "" if report is None else report.content[INPUTS].get("plugins", "")
    if not name:
        return {}
    copy = study.parent / PLUGINS / name
    if not copies.is_intact(copy):
        raise StateError(f"The copy of plugins {copy} is missing or was changed; run again.")
    places = {*copies.files_of(copy)} - {plugins.PACKAGES}
    return {f"{SOURCES}/{place}": copy / place for place in places}


def _configuration(given: Facts, entries: Iterable[str], models: bool) -> str:
    """Configuration of an archive with these entries; without networks, a missing network is
    trained only if a job reads it.
    """
    configuration = dict(of_any_place(given))
    _refuse_absolute_paths(configuration)
    if given.get("data_root", "") is None:  # the working directory, here as there
        configuration["data_root"] = None
    folders = []
    for plugin in plugins.in_use():
        folder = f"{SOURCES}/{plugin.package}"
        if not plugin.installed and any(name.startswith(f"{folder}/") for name in entries):
            folders.append(folder)
    if folders:
        configuration["plugins"] = folders
    if not models:
        configuration["keep_models"] = False
    return yaml.safe_dump(configuration, allow_unicode=True)


def _summaries(study: Path, manifest: Manifest) -> dict[str, Path | str]:
    """Files and records of a study, without names of folders of this machine in manifest and
    records; each record lists the other files as packed.
    """
    name, entries = manifest["configuration"]["study"], dict[str, Path | str]()
    portable = _record(_portable(manifest))
    facts = _facts(portable)
    packed = {MANIFEST: facts["sha256"]}
    for record in filter(None, (summary_record(study, stage) for stage in STUDY_STAGES)):
        for file in record.files:
            entries[f"{name}/{file}"] = record.verified(file)
        files = {**record.files, **({MANIFEST: facts} if MANIFEST in record.files else {})}
        results = dict(record.content[INPUTS]["results"])
        if os.curdir in results:  # files of the study itself
            read = results[os.curdir]
            results[os.curdir] = {file: packed.get(file, read[file]) for file in read}
        inputs = {**record.content[INPUTS], FILES: {}, "results": results}
        content = {**record.content, FILES: files, INPUTS: inputs}
        entries[f"{name}/{record.name}"] = _record(content)
        packed[record.name] = digest_of(content)
    entries[f"{name}/{MANIFEST}"] = portable
    return entries


def _portable(manifest: Manifest) -> Any:
    """The manifest of a study without folders of this machine."""
    configuration = manifest["configuration"]
    content = {key: value for key, value in manifest.items() if key != "published_sha256"}
    content["given"] = of_any_place(manifest["given"])
    content["configuration"] = {**of_any_place(configuration), "results": configuration["results"]}
    if Path(configuration["results"]).is_absolute():
        content = _moved(content, configuration["results"], "results")
    content = _moved(content, str(home()), "")
    _refuse_absolute_paths(content)
    return content


def _moved(value: Any, here: str, there: str) -> Any:
    """A value with paths in the folder ``here`` moved to the folder ``there``."""
    if isinstance(value, str) and (value == here or value.startswith(f"{here}/")):
        return str(PurePosixPath(there, PurePosixPath(value).relative_to(here)))
    if isinstance(value, dict):
        return {key: _moved(each, here, there) for key, each in value.items()}
    return [_moved(each, here, there) for each in value] if isinstance(value, list) else value


def _verified_files(folder: Path, study: Path, models: bool) -> Iterator[Path]:
    reason, _ = damage(folder)
    if reason:
        raise StateError(
            f"{folder}: {reason}; 'calgrid verify {study} --delete' removes it, then run again."
        )
    name = record_of(folder)
    yield folder / name
    for file in Record.read(folder, name).files:
        if file != MODEL or models:
            yield folder / file


def _refuse_absolute_paths(value: Any) -> None:
    """Raise ConfigError for an absolute path: it would reveal names of this machine."""
    if isinstance(value, str) and (value.startswith("~") or Path(value).is_absolute()):
        raise ConfigError(
            f"The configuration contains the absolute path {value}; make it relative and run again."
        )
    values = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for inner in values:
            _refuse_absolute_paths(inner)
