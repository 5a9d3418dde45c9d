"""Where the numbers come from: configuration, versions, devices, fingerprints and sources."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import yaml

from calgrid import registry
from calgrid.errors import ConfigError
from calgrid.reporting.study import StudyData
from calgrid.reporting.table import SHOWN_ROWS
from calgrid.storage.schema import METRICS, RUN_KEY

ENVIRONMENT = ("calgrid", "python", "torch", "device", "device_name", "threads")


def provenance(data: StudyData) -> dict[str, Any]:
    """Content of the last section of the report."""
    fingerprints = data.distinct(METRICS, [*RUN_KEY, "fingerprint"]).groupby(list(RUN_KEY))["fingerprint"]
    fingerprints = fingerprints.agg(lambda values: ", ".join(sorted(values)))
    records = [_record(run, data.facts(run), fingerprints) for run in data.manifest["runs"]]
    found = Counter(record["environment"] for record in records if any(record["environment"]))
    return {
        "fingerprint": data.manifest["fingerprint"],
        "configuration": yaml.safe_dump(data.manifest["configuration"], sort_keys=True, allow_unicode=True),
        "environment_names": ("calgrid", "Python", "torch", "Device", "Name", "Threads"),
        "environments": [(*environment, count) for environment, count in sorted(found.items())],
        "n_runs": len(records),
        "runs": records if len(records) <= SHOWN_ROWS else [],
        "sources": _sources(data),
    }


def _record(run: Mapping[str, Any], record: Mapping[str, Any], fingerprints: pd.Series) -> dict[str, Any]:
    key = tuple(run["key"][name] for name in RUN_KEY)
    environment = record.get("environment", {})
    return {
        "path": "/".join(map(str, key)),
        "origin": "external logits" if run["external"] else _origin(record),
        "fingerprint": fingerprints.get(key, ""),
        "part": run["fingerprint"],
        "environment": tuple(str(environment.get(name, "")) for name in ENVIRONMENT),
        "interruptions": record.get("interruptions", ""),
    }


def _origin(record: Mapping[str, Any]) -> str:
    """Origin of a run: trained here, from downloaded weights, or merged."""
    if origin := record.get("origin"):
        return f"merged, of {', '.join([*origin['creators'], origin['cite']]).rstrip(', ')} ({origin['licence']})"
    weights = record.get("weights")
    return "trained" if weights is None else f"{weights['source']} weights, {weights['path']} of {weights['url']}"


def _sources(data: StudyData) -> list[tuple[str, str, str]]:
    """Kind, name and source of all registered data sets, backbones, methods and calibrators of the study."""
    keys = [run["key"] for run in data.manifest["runs"]]
    configuration = data.manifest["configuration"]
    probes = {each["name"] for run in data.manifest["runs"] for each in run.get("probes", ())}
    methods = {part for key in keys for part in key["method"].split("+")}
    return [
        *_look_up("data set", {key["dataset"] for key in keys}, ("dataset",), configuration.get("datasets", {})),
        *_look_up("backbone", {key["backbone"] for key in keys}, ("backbone",), {}),
        *_look_up("method", methods, ("loss", "procedure"), configuration.get("methods", {})),
        *_look_up("calibrator", set(data.calibrators), ("calibrator",), configuration.get("calibrators", {})),
        *_look_up("probe", probes, ("probe",), configuration.get("probes", {})),
    ]


def _look_up(
    label: str, names: Iterable[str], kinds: Iterable[str], variants: dict[str, Any]
) -> list[tuple[str, str, str]]:
    rows = []
    for name in sorted(names):
        base = variants.get(name, {}).get("base", name)
        specs = [spec for kind in kinds for spec in _registered(kind, base)]
        rows += [(label, name, specs[0].source)] if specs else []
    return rows


def _registered(kind: str, name: str) -> list[registry.ComponentSpec]:
    """Specification of a component in a list, which is empty if the registry does not know the name."""
    try:
        return [registry.spec(kind, name)]
    except ConfigError:
        return []
