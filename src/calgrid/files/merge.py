"""Merge an archive: its runs become runs in a folder of results, or external logits for a
configuration.

The workflow computes the metrics again from the logits. All checks come first, and then each run is
added by a rename: an interrupted merge leaves complete runs, and continues in the next call.
"""

import itertools
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from calgrid.components import registry
from calgrid.datasets import open_prepared
from calgrid.errors import DataError, StateError
from calgrid.storage.archive import (
    ABOUT,
    SCHEMA,
    SPLITS,
    STUDY,
    digest_of_rows,
    logits_names,
    rows_of,
    unpack_archive,
)
from calgrid.storage.atomic import read_json
from calgrid.storage.layout import EXTERNAL, Layout, RunKey, head_file, logits_file
from calgrid.storage.layout import SPLITS as CLEAN
from calgrid.storage.locks import OwnerLock
from calgrid.storage.records import HIDDEN, MODEL, ORIGIN, PREDICT, TRAIN, Record
from calgrid.storage.tables import read_frame

ENTRIES = "external.yaml"


@dataclass(frozen=True)
class Archive:
    """An unpacked archive."""

    folder: Path
    #: content of ``bank.json``
    about: Mapping[str, Any]
    configuration: Mapping[str, Any]
    #: run -> folder
    runs: Mapping[RunKey, Path]
    #: (data set, split) -> number and digest of its rows
    splits: Mapping[tuple[str, str], tuple[int, str]]


def merge(path: Path, results: Path) -> tuple[Mapping[str, Any], int, int]:
    """Add the runs of an archive to a folder of results; after an error nothing is merged.

    Returns the content of ``bank.json``, the number of added runs, and that of runs that the
    results already have. Raises DataError: the file is damaged or not an archive. StateError: the
    results have a different version of a run, or data with other rows.
    """
    with _opened(path, results / HIDDEN) as archive:
        if other := sorted({dataset for dataset, _ in _other_rows(archive, results)}):
            raise StateError(
                f"The logits of {', '.join(other)} in {path} have other rows than those in "
                f"{results}; merge them as "
                "external logits in separate tables (--as NAME)."
            )
        layout = Layout(str(results), "")
        new = {
            key: folder
            for key, folder in archive.runs.items()
            if not _is_here(Path(layout.run(key)), folder, key)
        }
        now = (
            time.time()
        )  # the same for all, so that no first stage looks newer than its second stage
        for key, folder in new.items():
            for file in folder.rglob("*"):
                os.utime(file, (now, now))
            target = Path(layout.run(key))
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(target)
        return archive.about, len(new), len(archive.runs) - len(new)


def merge_as(
    path: Path, label: str, data_root: Path, results: Path
) -> tuple[Mapping[str, Any], Path, int]:
    """Unpack an archive below ``data_root``, with an entry of ``external`` for each checkpoint of
    its runs.

    The names of methods consist of method, protocol (if there are several), checkpoint and label:
    ``ce.last.lab_a``. The name of a data set whose rows differ from those in ``results`` also ends
    with the label.

    Returns the content of ``bank.json``, the file with the entries, and their number. Raises
    DataError: the file is damaged or not an archive. StateError: the folder ``data_root/label``
    exists.
    """
    target = data_root / label
    if target.exists():
        raise StateError(f"{target} exists already; give another name, or move it away.")
    with _opened(path, data_root) as archive:
        other, calibrators = (
            {dataset for dataset, _ in _other_rows(archive, results)},
            _calibrators(archive),
        )
        several = len({key.protocol for key in archive.runs}) > 1
        entries: dict[str, Any] = {}
        for key, checkpoint in _tested(archive):
            run = archive.runs[key]
            files = {name: logits_file(checkpoint, name) for name in CLEAN} | {
                "head": head_file(checkpoint)
            }
            there = {
                name: f"{label}/runs/{key.path}/{file}"
                for name, file in files.items()
                if (run / file).exists()
            }
            entries[f"{label}_{len(entries) + 1}"] = {
                **there,
                "kind": "logits",
                "dataset": f"{key.dataset}.{label}" if key.dataset in other else key.dataset,
                "backbone": key.backbone,
                "method": ".".join([key.method, *[key.protocol] * several, checkpoint, label]),
                "seed": key.seed,
                "calibrators": calibrators,
            }
        (archive.folder / ENTRIES).write_text(
            yaml.safe_dump({"external": entries}, sort_keys=False), encoding="utf-8"
        )
        archive.folder.rename(target)
        return archive.about, target / ENTRIES, len(entries)


def _tested(archive: Archive) -> Iterator[tuple[RunKey, str]]:
    """Runs with logits, and their checkpoints."""
    for key, folder in archive.runs.items():
        if (folder / PREDICT).exists():
            for checkpoint in Record.read(folder, PREDICT).content["spec"]["checkpoints"]:
                yield key, checkpoint


@contextmanager
def _opened(path: Path, beside: Path) -> Iterator[Archive]:
    """Unpack an archive into a temporary folder and check it; one merge at a time, locked."""
    hidden = beside / ".merge"
    with OwnerLock(beside / ".merge.lock", f"folder {hidden}"):
        shutil.rmtree(hidden, ignore_errors=True)
        try:
            sums = unpack_archive(path, hidden)
            try:
                archive = _read(hidden, sums)
            except (KeyError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
                reason = " ".join(str(error).split())
                raise DataError(
                    f"{path} is not an archive of calgrid ({reason}); give the output of 'calgrid "
                    f"pack'."
                ) from None
            yield archive
        finally:
            shutil.rmtree(hidden, ignore_errors=True)


def _read(folder: Path, sums: Mapping[str, str]) -> Archive:
    """Read and check an unpacked archive; an invalid one raises many types of errors."""
    if absent := {ABOUT, STUDY, SPLITS} - set(sums):
        raise ValueError(f"{min(absent)} is missing")
    about = read_json(folder / ABOUT)
    if about["schema"] != SCHEMA:
        raise DataError(
            f"The archive has schema {about['schema']}, but this calgrid reads schema {SCHEMA}; "
            f"update calgrid."
        )
    configuration = yaml.safe_load((folder / STUDY).read_text(encoding="utf-8"))
    rows = read_frame(folder / SPLITS).itertuples(index=False)
    splits = {(row.dataset, row.split): (row.n, row.sha256) for row in rows}
    runs = dict(_checked_run(found.parent, folder, sums) for found in sorted(folder.rglob(TRAIN)))
    unseen = set(splits)
    for key, run in runs.items():
        for split, name in logits_names(
            str(file.relative_to(run)) for file in run.rglob("*.parquet")
        ):
            if rows_of(run / name) != splits[key.dataset, split]:
                raise ValueError(f"the rows of {key.path}/{name} differ from {SPLITS}")
            unseen.discard((key.dataset, split))
    origins = [about, *(read_json(run / ORIGIN) for run in runs.values())]
    told = [text for each in origins for text in (each["licence"], each["cite"], *each["creators"])]
    if unseen or not all(isinstance(text, str) for text in told):
        raise ValueError(f"{SPLITS}, {ABOUT} or {ORIGIN} is invalid")
    return Archive(folder, about, configuration, runs, splits)


def _checked_run(run: Path, folder: Path, sums: Mapping[str, str]) -> tuple[RunKey, Path]:
    """Key and folder of a run; ValueError if its files differ from its records."""
    name = str(run.relative_to(folder))
    records = [Record.read(run, each) for each in (TRAIN, PREDICT) if (run / each).exists()]
    key = RunKey(**records[0].content["spec"]["key"])
    trained = records[0].content["fingerprint"]
    specs = [record.content["spec"] for record in records]
    alike = all(
        spec["key"] == key._asdict() and spec.get("run_fingerprint", trained) == trained
        for spec in specs
    )
    if name != f"runs/{key.path}" or not alike:
        raise ValueError(f"the records of {name} belong to other runs")
    free = {f"{name}/{each}" for each in (ORIGIN, *(record.name for record in records))}
    listed = {
        f"{name}/{file}": each.sha256(file)
        for each in records
        for file in each.files
        if file != MODEL
    }
    found = {file: digest for file, digest in sums.items() if file.startswith(f"{name}/")}
    if found.keys() != listed.keys() | free or any(
        found[file] != digest for file, digest in listed.items()
    ):
        raise ValueError(f"the files of {name} differ from its records")
    return key, run


def _is_here(here: Path, folder: Path, key: RunKey) -> bool:
    """Whether the results already have a run; StateError if they have a different version of it."""
    if not here.exists():
        return False
    fix = "merge the archive as external logits (--as NAME), or move that folder away."
    for name in (TRAIN, PREDICT):
        if (folder / name).exists():
            if not (here / name).exists():
                raise StateError(
                    f"The run {key.path} in {here} is not finished; wait for it, or {fix}"
                )
            ours, theirs = (Record.read(place, name).content for place in (here, folder))
            if ours != theirs:
                same = ours["fingerprint"] == theirs["fingerprint"]
                what = (
                    "the same fingerprint, but other records"
                    if same
                    else f"another fingerprint in {name}"
                )
                raise StateError(f"The run {key.path} in {here} has {what}; {fix}")
    return True


def _other_rows(archive: Archive, results: Path) -> Iterator[tuple[str, str]]:
    """Data sets and splits of which the results have other rows, in prepared data or logits."""
    for (dataset, split), theirs in archive.splits.items():
        data = results / "data" / dataset
        ours = []
        if split in CLEAN and (data / "manifest.json").exists():
            labels = open_prepared(data).splits[split].labels
            ours.append((len(labels), digest_of_rows(np.arange(len(labels)), np.asarray(labels))))
        logits = results.glob(f"runs/*/{dataset}/*/*/seed*/logits/*/{split}.parquet")
        named = (path for path in sorted(logits) if path.relative_to(results).parts[1] != EXTERNAL)
        ours += [rows_of(path) for path in itertools.islice(named, 1)]
        if any(rows != theirs for rows in ours):
            yield dataset, split


def _calibrators(archive: Archive) -> list[str]:
    """Calibrators of the study in the archive that calgrid has and that need no last layer."""
    named = dict.fromkeys(
        name for grid in archive.configuration["grids"] for name in grid["calibrators"]
    )
    known = registry.specs("calibrator")
    return [name for name in named if name in known and "head" not in known[name].info["needs"]]
