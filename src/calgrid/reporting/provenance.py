"""Where the numbers come from: configuration, versions, devices, fingerprints and sources."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import yaml
from markupsafe import Markup

from calgrid.components import registry
from calgrid.configuration.manifest import ManifestRun
from calgrid.errors import ConfigError
from calgrid.reporting.study import StudyData
from calgrid.reporting.table import SHOWN_ROWS
from calgrid.storage.layout import RunKey
from calgrid.storage.schema import METRICS, RUN_KEY

#: key of the environment in a record -> heading
ENVIRONMENT = {
    "calgrid": "calgrid",
    "python": "Python",
    "torch": "torch",
    "device": "Device",
    "device_name": "Name",
    "threads": "Threads",
}
CODE = Markup("<code>{}</code>")


def provenance(data: StudyData) -> dict[str, Any]:
    """Content of the last section of the report."""
    fingerprints = data.distinct(METRICS, [*RUN_KEY, "fingerprint"]).groupby(list(RUN_KEY))[
        "fingerprint"
    ]
    fingerprints = fingerprints.agg(lambda values: ", ".join(sorted(values)))
    runs = data.manifest["runs"]
    found = Counter(
        tuple(str(environment.get(name, "")) for name in ENVIRONMENT)
        for run in runs
        if (environment := data.facts(run).get("environment"))
    )
    return {
        "fingerprint": data.manifest["fingerprint"],
        "configuration": yaml.safe_dump(
            data.manifest["configuration"], sort_keys=True, allow_unicode=True
        ),
        "environment_names": (*ENVIRONMENT.values(), "Runs"),
        "environments": [(*environment, count) for environment, count in sorted(found.items())],
        "n_runs": len(runs),
        "run_header": (
            "Run",
            "Origin",
            "Run fingerprint",
            "Calibration fingerprint",
            "Interruptions",
        ),
        "runs": [_run(run, data.facts(run), fingerprints) for run in runs]
        if len(runs) <= SHOWN_ROWS
        else [],
        "sources": _sources(data),
    }


def _run(run: ManifestRun, record: Mapping[str, Any], fingerprints: pd.Series) -> list[str]:
    key = RunKey(**run["key"])
    return [
        "/".join(map(str, key)),
        _origin(record) if "origin" in record or not run["external"] else "external logits",
        CODE.format(fingerprints.get(key, "")),
        CODE.format(run["fingerprint"]),
        record.get("interruptions", ""),
    ]


def _origin(record: Mapping[str, Any]) -> str:
    """Origin of a run: trained here, from downloaded weights, or of a bank."""
    if origin := record.get("origin"):
        authors = ", ".join([*origin["creators"], origin["cite"]]).rstrip(", ")
        return f"of a bank by {authors} ({origin['licence']})"
    weights = record.get("weights")
    if weights is None:
        return "trained"
    if "url" not in weights:
        return f"your own weights, {weights['path']}"
    return f"{weights['source']} weights, {weights['path']} of {weights['url']}"


def _sources(data: StudyData) -> list[tuple[str, str, str]]:
    """Name, kind and source of all registered data sets, backbones, methods and calibrators of the
    study.
    """
    keys = [run["key"] for run in data.manifest["runs"]]
    configuration = data.manifest["configuration"]
    probes = {each["name"] for run in data.manifest["runs"] for each in run.get("probes", ())}
    methods = {part for key in keys for part in key["method"].split("+")}
    return [
        *_look_up(
            "data set",
            {key["dataset"] for key in keys},
            ("dataset",),
            configuration.get("datasets", {}),
        ),
        *_look_up("backbone", {key["backbone"] for key in keys}, ("backbone",), {}),
        *_look_up("method", methods, ("loss", "procedure"), configuration.get("methods", {})),
        *_look_up(
            "calibrator",
            set(data.calibrators),
            ("calibrator",),
            configuration.get("calibrators", {}),
        ),
        *_look_up("probe", probes, ("probe",), configuration.get("probes", {})),
    ]


def _look_up(
    label: str, names: Iterable[str], kinds: Iterable[str], variants: dict[str, Any]
) -> list[tuple[str, str, str]]:
    rows = []
    for name in sorted(names):
        base = variants.get(name, {}).get("base", name)
        for kind in kinds:
            with contextlib.suppress(ConfigError):  # a name that the registry does not know
                rows.append((name, label, registry.spec(kind, base).source))
                break
    return rows
