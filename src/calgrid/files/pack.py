"""Pack a study into an archive: logits, metrics and provenance of its runs.

::

    bank.json                schema version, version of calgrid, day of the last run, licence, creators, DOI
    study.yaml               configuration of the study
    metrics.parquet          all metrics, for information; a merge computes them again
    runs.parquet             per run: key, fingerprint, specification, versions, commit, device, seconds, origin
    splits.parquet           per data set and split or shift family: number and SHA-256 of the rows
    runs/<path of a run>/    records, history and logits as in the results, without the network; origin.json
    ro-crate-metadata.json   metadata as a Process Run Crate (RO-Crate 1.1, workflow run profile 0.5)
    SHA256SUMS
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc
import yaml

from calgrid import __version__
from calgrid.errors import ConfigError, StateError
from calgrid.specs import ManifestRun
from calgrid.storage.archive import (
    ABOUT,
    RUNS,
    SCHEMA,
    SPLITS,
    STUDY,
    SUMS,
    logits_names,
    rows_of,
    write_archive,
)
from calgrid.storage.atomic import read_json, require_writable, write_json, write_text
from calgrid.storage.layout import EXTERNAL, Layout, RunKey
from calgrid.storage.provenance import DIRTY
from calgrid.storage.records import (
    AGGREGATE,
    CALIBRATE,
    MODEL,
    ORIGIN,
    PREDICT,
    TRAIN,
    Record,
    read_record,
    sha256_of,
)
from calgrid.storage.schema import METRICS
from calgrid.storage.tables import read_result, write_frame, writing

#: keys of a configuration about the machine, or about runs that are not packed
LEFT_OUT = ("results", "data_root", "external")
METADATA = "ro-crate-metadata.json"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
ENCODINGS = {
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".yaml": "application/yaml",
    ".safetensors": "application/octet-stream",
}
Entity = dict[str, Any]


@dataclass(frozen=True)
class Packed:
    """Records of a run by name, and its files except the network by path below its folder."""

    records: Mapping[str, Record]
    files: Mapping[str, Path]

    def named(self, key: RunKey) -> dict[str, Path]:
        """Return the files by path in the archive."""
        return {f"runs/{key.path}/{name}": path for name, path in self.files.items()}


def pack(study: Path, out: Path, *, creators: Sequence[str], licence: str, cite: str = "") -> int:
    """Write the archive of a finished study, without external runs; return the number of its runs.

    The same results give the same bytes. Raises ConfigError: there is nothing to pack, or the
    configuration has an absolute path. DataError: a file is missing. StateError: the study is not
    finished, or one of its files was changed.

    Parameters
    ----------
    study : folder of the study in the results.
    creators : persons or groups. licence : SPDX identifier. cite : DOI or URL.
    """
    require_writable(out)
    manifest = read_record(study / "manifest.json", "manifest")
    totals = Record.read(study, AGGREGATE)
    if totals.content.get("fingerprint") != manifest["fingerprint"]:
        raise StateError(
            f"The study in {study} is not finished; call snakemake with its configuration first."
        )
    configuration = {
        name: value for name, value in manifest["configuration"].items() if name not in LEFT_OUT
    }
    _refuse_paths(configuration)
    origin = {"creators": list(creators), "licence": licence, "cite": cite}
    with tempfile.TemporaryDirectory() as hidden:
        made = Path(hidden)
        write_json(made / ORIGIN, origin)
        runs = _runs(
            Layout(str(study.resolve().parent), study.resolve().name),
            manifest["runs"],
            made / ORIGIN,
        )
        if not runs:
            raise ConfigError(
                f"The study in {study} has no trained or merged runs; nothing can be packed."
            )
        about = {**origin, "schema": SCHEMA, "calgrid": __version__, "created": _last_day(runs)}
        about |= {"runs": len(runs), "sums": SUMS}
        write_json(made / ABOUT, about)
        write_text(made / STUDY, yaml.safe_dump(configuration, sort_keys=True, allow_unicode=True))
        write_frame(made / RUNS, pd.DataFrame([_row(key, run) for key, run in runs.items()]))
        write_frame(made / SPLITS, pd.DataFrame(_splits(runs)))
        metrics = read_result(totals.verified(METRICS, "metrics file"))
        with writing(made / METRICS) as writer:
            writer.add(
                metrics.filter(pc.not_equal(pc.cast(metrics["protocol"], "string"), EXTERNAL))
            )
        files = {name: made / name for name in (ABOUT, STUDY, RUNS, SPLITS, METRICS)}
        for key, run in runs.items():
            files |= run.named(key)
        digests = {name: sha256_of(path) for name, path in files.items()}
        actions = [_action(key, run) for key, run in runs.items()]
        write_json(made / METADATA, _crate(about, actions, files, digests))
        write_archive(
            out,
            {**files, METADATA: made / METADATA},
            {**digests, METADATA: sha256_of(made / METADATA)},
        )
    return len(runs)


def _refuse_paths(value: Any) -> None:
    """Raise ConfigError for an absolute path in a configuration, which would reveal names of this
    machine.
    """
    if isinstance(value, str) and (value.startswith("~") or Path(value).is_absolute()):
        raise ConfigError(
            f"The configuration contains the absolute path {value}; make it relative and run again."
        )
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for each in value:
            _refuse_paths(each)


def _runs(layout: Layout, runs: Sequence[ManifestRun], origin: Path) -> dict[RunKey, Packed]:
    """Runs of a study, including first stages without predictions."""
    found: dict[RunKey, Packed] = {}
    for run in (run for run in runs if not run["external"]):
        key = RunKey(**run["key"])
        spec = Record.read(Path(layout.part(key)), CALIBRATE).content["spec"]
        wanted = {TRAIN: spec["run_fingerprint"], PREDICT: spec["logits_fingerprint"]}
        found[key] = _packed(layout, key, wanted, origin)
        if run["first_stage"] is not None:
            first = key._replace(method=run["first_stage"]["method"])
            wanted = {
                TRAIN: found[key].records[TRAIN].content["spec"]["first_stage"]["fingerprint"]
            }
            if first not in found:
                found[first] = _packed(layout, first, wanted, origin)
    return dict(sorted(found.items()))


def _packed(layout: Layout, key: RunKey, wanted: Mapping[str, str], origin: Path) -> Packed:
    """Verify the files of a run; a merged run keeps its origin."""
    root = Path(layout.run(key))
    records = {name: Record.read(root, name) for name in wanted}
    files = {ORIGIN: root / ORIGIN if (root / ORIGIN).exists() else origin}
    for name, record in records.items():
        if record.content["fingerprint"] != wanted[name]:
            raise StateError(
                f"The run {key.path} has changed since the study was finished; call snakemake with "
                f"its configuration "
                "first."
            )
        files |= {
            name: root / name,
            **{each: record.verified(each) for each in record.files if each != MODEL},
        }
    return Packed(records, files)


def _last_day(runs: Mapping[RunKey, Packed]) -> str:
    """Day (UTC) on which the last run finished; unlike today, it is the same in every call."""
    finished = [
        record.content["finished"] for run in runs.values() for record in run.records.values()
    ]
    return max(datetime.fromisoformat(each).astimezone(UTC) for each in finished).date().isoformat()


def _row(key: RunKey, run: Packed) -> dict[str, Any]:
    record, origin = run.records[TRAIN].content, read_json(run.files[ORIGIN])
    environment = record["environment"]
    return {
        **key._asdict(),
        **{
            name: environment.get(name, "")
            for name in ("calgrid", "python", "torch", "device", "device_name")
        },
        "fingerprint": record["fingerprint"],
        "spec": json.dumps(record["spec"], sort_keys=True),
        "commit": environment["commit"].removesuffix(DIRTY),
        "dirty": environment["commit"].endswith(DIRTY),
        "seconds": record["seconds"],
        "origin": origin["cite"] or ", ".join(origin["creators"]),
    }


def _splits(runs: Mapping[RunKey, Packed]) -> list[dict[str, Any]]:
    """Number and digest of the rows of each split, which must be the same for all runs of a data
    set.
    """
    found: dict[tuple[str, str], tuple[int, str]] = {}
    for key, run in runs.items():
        for split, name in logits_names(run.files):
            rows = rows_of(run.files[name])
            if found.setdefault((key.dataset, split), rows) != rows:
                raise StateError(
                    f"The logits of {key.path} have other rows of '{split}' than other runs; "
                    f"predict all on the same "
                    f"{key.dataset}."
                )
    return [
        {"dataset": d, "split": s, "n": n, "sha256": sha}
        for (d, s), (n, sha) in sorted(found.items())
    ]


def _crate(
    about: Mapping[str, Any],
    actions: Sequence[Entity],
    files: Mapping[str, Path],
    sha256: Mapping[str, str],
) -> Entity:
    """Metadata of an archive: creators, licence, files, and an action per run (w3id.org/ro/wfrun)."""
    creators = [
        {"@id": f"#creator-{number}", "@type": "Organization", "name": name}
        for number, name in enumerate(about["creators"], 1)
    ]
    spdx = f"https://spdx.org/licenses/{about['licence']}"
    licence = {"@id": spdx, "@type": "CreativeWork", "name": about["licence"]}
    descriptor = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }
    parts = [
        {
            "@id": name,
            "@type": "File",
            "name": name,
            "contentSize": str(files[name].stat().st_size),
            "encodingFormat": ENCODINGS[files[name].suffix],
            "sha256": sha256[name],
        }
        for name in sorted(files)
    ]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": "Results of calgrid",
        "description": f"Logits, metrics and provenance of {about['runs']} image classifiers, for 'calgrid merge'.",
        "datePublished": about["created"],
        "license": _to(licence),
        "author": list(map(_to, creators)),
        "conformsTo": {"@id": PROFILE},
        "hasPart": list(map(_to, parts)),
        "mentions": list(map(_to, actions)),
        **({"identifier": about["cite"]} if about["cite"] else {}),
    }
    profile = {
        "@id": PROFILE,
        "@type": "CreativeWork",
        "name": "Process Run Crate",
        "version": "0.5",
    }
    instruments = [
        {
            "@id": tool,
            "@type": "SoftwareApplication",
            "name": "calgrid",
            "softwareVersion": tool.partition("-")[2],
        }
        for tool in sorted({each["instrument"]["@id"] for each in actions})
    ]
    graph = [descriptor, root, profile, licence, *creators, *instruments, *actions, *parts]
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}


def _to(entity: Entity) -> Entity:
    return {"@id": entity["@id"]}


def _action(key: RunKey, run: Packed) -> Entity:
    """Entity for training and prediction of a run."""
    found = [record.content for record in run.records.values()]
    environment = found[0]["environment"]
    commit = f"@{environment['commit']}" if environment["commit"] else ""
    return {
        "@id": f"#{key.path}",
        "@type": "CreateAction",
        "name": f"{' and '.join(name.removesuffix('.json') for name in run.records)} {key.path}",
        "description": "Training of an image classifier, and its logits on the splits and shifts of the study.",
        "instrument": {"@id": f"#calgrid-{environment['calgrid']}{commit}"},
        "object": {"@id": "study.yaml"},
        "result": [{"@id": name} for name in sorted(run.named(key))],
        "endTime": max(datetime.fromisoformat(each["finished"]) for each in found).isoformat(),
        "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
    }
