"""Where the numbers come from: configuration, versions, devices, fingerprints and sources."""

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import yaml
from markupsafe import Markup

from calgrid import __version__
from calgrid.components import registry
from calgrid.errors import ConfigError
from calgrid.report import text
from calgrid.report.study import StudyData
from calgrid.report.table import SHOWN_ROWS
from calgrid.storage.manifest import of_any_place
from calgrid.storage.records import RunKey
from calgrid.storage.schema import METRICS, RUN_KEY

#: stage -> its results; others follow under their names
STAGES = {
    "train": "networks",
    "predict": "logits",
    "probe": "probes",
    "calibrate": "calibrators and metrics",
    "aggregate": "statistics",
}
#: key of a version in a record -> name
VERSIONS = {
    "calgrid": "calgrid",
    "python": "Python",
    "torch": "torch",
    "numpy": "NumPy",
    "scipy": "SciPy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
}
ENVIRONMENT_HEADER = ("What", *VERSIONS.values(), "Device", "Name", "Threads", "Jobs")
#: part of a run, looked up in the registry -> its kinds of components
KINDS = {
    "dataset": ("dataset",),
    "backbone": ("backbone",),
    "method": ("loss", "procedure"),
    "calibrator": ("calibrator",),
    "probe": ("probe",),
}
RUN_HEADER = ("Run", "Origin", "Run fingerprint", "Calibration fingerprint", "Interruptions")
CODE = Markup("<code>{}</code>")
#: number of a paper, of which the first two digits are the year
ARXIV = re.compile(r"arXiv (\d\d)(\d\d\.\d{4,5})")
YEAR = re.compile(r"\b(?:19|20)\d\d\b")
#: stage of a job, its ``VERSIONS``, device, name of the device, and threads
Job: TypeAlias = tuple[str, ...]


def provenance(data: StudyData) -> dict[str, Any]:
    """Content of the last section of the report."""
    of_runs = data.distinct(METRICS, [*RUN_KEY, "fingerprint"]).groupby(list(RUN_KEY))
    fingerprints = of_runs["fingerprint"].agg(lambda values: ", ".join(sorted(values)))
    runs = data.manifest["runs"]
    jobs = Counter(_jobs(data))
    stages = STAGES | {stage: stage for stage, *_ in jobs if stage not in STAGES}
    environments = []
    for stage, made in stages.items():
        of_stage = sorted(job for job in jobs if job[0] == stage)
        environments += [(made, *job[1:], jobs[job]) for job in of_stage]
    shown = runs if len(runs) <= SHOWN_ROWS else []
    rows = []
    for run in shown:
        key, record = RunKey(**run["key"]), data.facts(run)
        of_here = "origin" in record or not run["external"]
        rows.append(
            [
                "/".join(map(str, key)),
                _origin(record) if of_here else "external logits",
                CODE.format(fingerprints.get(key, "")),
                CODE.format(run["fingerprint"]),
                record.get("interruptions", ""),
            ]
        )
    configuration = of_any_place(data.manifest["configuration"])
    return {
        "fingerprint": data.manifest["fingerprint"],
        "configuration": yaml.safe_dump(configuration, sort_keys=True, allow_unicode=True),
        "environment_header": ENVIRONMENT_HEADER,
        "environments": environments,
        "mixed": _mixed(jobs, stages),
        "n_runs": len(runs),
        "run_header": RUN_HEADER,
        "runs": rows,
        "sources": _sources(data),
        "bibtex": bibtex(data),
    }


def _jobs(data: StudyData) -> Iterator[Job]:
    """Stage and environment of each job of the study."""
    known = []
    for run in data.manifest["runs"]:
        facts = data.facts(run)
        if "environment" in facts:
            known.append({**facts["environment"], "stage": "train"})
        known += facts.get("environments", ())
    if data.environment:
        known.append({**data.environment, "stage": "aggregate"})
    for job in known:
        device = job.get("device_name") or job.get("cpu", "")
        said = [job.get(name, "") for name in ("stage", *VERSIONS, "device")]
        yield tuple(map(str, [*said, device, job.get("threads", "")]))


def _mixed(jobs: Iterable[Job], stages: Mapping[str, str]) -> list[str]:
    """Stages whose jobs ran with several versions of a library."""
    mixed = []
    for (stage, made), (place, name) in itertools.product(
        stages.items(), enumerate(VERSIONS.values(), 1)
    ):
        versions = sorted({job[place] for job in jobs if job[0] == stage} - {""})
        if len(versions) > 1:
            mixed.append(f"{made} with {name} {', '.join(versions)}")
    return mixed


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
        "probe": {
            probe["name"] for run in data.manifest["runs"] for probe in run.get("probes", ())
        },
    }
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


def bibtex(data: StudyData) -> str:
    """Entries for calgrid with the fingerprint of the study, and for the papers behind its data
    sets, backbones, methods and calibrators, one for each source.
    """
    study = f"study {data.manifest['configuration']['study']}, {data.manifest['fingerprint']}"
    facts = {"author": "The calgrid authors", "title": "calgrid", "version": __version__}
    entries = [_entry("software", "calgrid", {**facts, "note": study})]
    known: set[str] = set()
    for name, _, source in _sources(data):
        paper = source.partition("; ")[0]
        arxiv, years = ARXIV.search(paper), YEAR.findall(paper)
        if arxiv:
            years.append(f"20{arxiv[1]}")
        if paper not in known and years:
            known.add(paper)
            facts = {"howpublished": paper, "year": years[0]}
            if arxiv:
                facts |= {"eprint": arxiv[1] + arxiv[2], "archiveprefix": "arXiv"}
            entries.append(_entry("misc", name, facts))
    return "\n\n".join(entries)


def _entry(kind: str, key: str, facts: Mapping[str, str]) -> str:
    fields = [f"  {name} = {{{text.latex(value)}}}" for name, value in facts.items()]
    return "@" + kind + "{" + ",\n".join([re.sub(r"[^\w.+-]", "_", key), *fields]) + "\n}"
