"""Metadata of an archive as a Process Run Crate (RO-Crate 1.1, workflow run profile 0.5, w3id.org/ro/wfrun)."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from calgrid.storage.layout import RunKey
from calgrid.storage.records import Record

METADATA = "ro-crate-metadata.json"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
ENCODINGS = {
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".yaml": "application/yaml",
    ".safetensors": "application/octet-stream",
}
Entity = dict[str, Any]


def crate(
    about: Mapping[str, Any], actions: Iterable[Entity], files: Mapping[str, Path], sha256: Mapping[str, str]
) -> Entity:
    """Return the metadata of an archive: creators, licence, files, and an action per run (:func:`action`)."""
    actions = list(actions)
    tools = sorted({each["instrument"]["@id"] for each in actions})
    creators = [
        {"@id": f"#creator-{number}", "@type": "Organization", "name": name}
        for number, name in enumerate(about["creators"], 1)
    ]
    licence = {
        "@id": f"https://spdx.org/licenses/{about['licence']}",
        "@type": "CreativeWork",
        "name": about["licence"],
    }
    descriptor = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": "Results of calgrid",
        "description": f"Logits, metrics and provenance of {about['runs']} image classifiers, for 'calgrid merge'.",
        "datePublished": about["created"],
        "license": _to(licence),
        "author": [_to(each) for each in creators],
        "conformsTo": {"@id": PROFILE},
        "hasPart": [{"@id": name} for name in sorted(files)],
        "mentions": [_to(each) for each in actions],
        **({"identifier": about["cite"]} if about["cite"] else {}),
    }
    profile = {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    instruments = [
        {"@id": tool, "@type": "SoftwareApplication", "name": "calgrid", "softwareVersion": tool.partition("-")[2]}
        for tool in tools
    ]
    parts = [_file(name, files[name], sha256[name]) for name in sorted(files)]
    graph = [descriptor, root, profile, licence, *creators, *instruments, *actions, *parts]
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}


def _to(entity: Entity) -> Entity:
    return {"@id": entity["@id"]}


def action(key: RunKey, records: Mapping[str, Record], files: Iterable[str]) -> Entity:
    """Return the entity for training and prediction of a run."""
    found = [record.content for record in records.values()]
    environment = found[0]["environment"]
    commit = f"@{environment['commit']}" if environment["commit"] else ""
    return {
        "@id": f"#{key.path}",
        "@type": "CreateAction",
        "name": f"{' and '.join(name.removesuffix('.json') for name in records)} {key.path}",
        "description": "Training of an image classifier, and its logits on the splits and shifts of the study.",
        "instrument": {"@id": f"#calgrid-{environment['calgrid']}{commit}"},
        "object": {"@id": "study.yaml"},
        "result": [{"@id": name} for name in sorted(files)],
        "endTime": max(datetime.fromisoformat(each["finished"]) for each in found).isoformat(),
        "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
    }


def _file(name: str, path: Path, sha256: str) -> Entity:
    return {
        "@id": name,
        "@type": "File",
        "name": name,
        "contentSize": str(path.stat().st_size),
        "encodingFormat": ENCODINGS[path.suffix],
        "sha256": sha256,
    }
