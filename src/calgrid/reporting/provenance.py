"""Where the numbers come from: configuration, versions, devices, fingerprints and sources."""

import contextlib
from collections import Counter
from collections.abc import Mapping
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
#: what is looked up in the registry, and under which kinds of components
KINDS = {
    "dataset": ("dataset",),
    "backbone": ("backbone",),
    "method": ("loss", "procedure"),
    "calibrator": ("calibrator",),
    "probe": ("probe",),
}
RUN_HEADER = ("Run", "Origin", "Run fingerprint", "Calibration fingerprint", "Interruptions")
CODE = Markup("<code>{}</code>")


def provenance(data: StudyData) -> dict[str, Any]:
    """Content of the last section of the report."""
    of_runs = data.distinct(METRICS, [*RUN_KEY, "fingerprint"]).groupby(list(RUN_KEY))
    fingerprints = of_runs["fingerprint"].agg(lambda values: ", ".join(sorted(values)))
    runs = data.manifest["runs"]
    environments: Counter[tuple[str, ...]] = Counter()
    for run in runs:
        if environment := data.facts(run).get("environment"):
            environments[tuple(str(environment.get(name, "")) for name in ENVIRONMENT)] += 1
    shown = runs if len(runs) <= SHOWN_ROWS else []
    rows = [_run(data, run, fingerprints) for run in shown]
    configuration = data.manifest["configuration"]
    return {
        "fingerprint": data.manifest["fingerprint"],
        "configuration": yaml.safe_dump(configuration, sort_keys=True, allow_unicode=True),
        "environment_names": (*ENVIRONMENT.values(), "Runs"),
        "environments": [(*values, count) for values, count in sorted(environments.items())],
        "n_runs": len(runs),
        "run_header": RUN_HEADER,
        "runs": rows,
        "sources": _sources(data),
    }


def _run(data: StudyData, run: ManifestRun, fingerprints: pd.Series) -> list[str]:
    key, record = RunKey(**run["key"]), data.facts(run)
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
    names = {
        "dataset": set(data.keys["dataset"]),
        "backbone": set(data.keys["backbone"]),
        "method": set("+".join(data.methods).split("+")),
        "calibrator": set(data.calibrators),
        "probe": set(),
    }
    for run in data.manifest["runs"]:
        names["probe"].update(probe["name"] for probe in run.get("probes", ()))
    rows = []
    for label, kinds in KINDS.items():
        variants = data.manifest["configuration"].get(f"{label}s", {})
        for name in sorted(names[label]):
            base = variants.get(name, {}).get("base", name)
            for kind in kinds:
                with contextlib.suppress(ConfigError):  # a name that the registry does not know
                    source = registry.describe(kind, base).source
                    rows.append((name, label.replace("dataset", "data set"), source))
                    break
    return rows
