"""Commands that the rules of the workflow call."""

import argparse
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from calgrid.components import plugins
from calgrid.configuration.manifest import Manifest
from calgrid.errors import StateError
from calgrid.storage import provenance, specs
from calgrid.storage.inputs import Inputs, listing
from calgrid.storage.layout import MADE_FROM, MANIFEST, RunKey
from calgrid.storage.publish import make_result, replace_files
from calgrid.storage.records import FILES, PREPARE, Record, read_record, sha256_of


def _manifest(options: argparse.Namespace, stage: str) -> tuple[Manifest, Inputs]:
    """Manifest of the study, and what a stage reads beside results."""
    plan = read_record(options.plan, "plan")
    where = f"The plan {options.plan}"
    manifest = specs.checked(plan["manifest"], Manifest, where)
    return manifest, _inputs(plan, stage)


def _spec(options: argparse.Namespace, kind: type[specs.Spec]) -> tuple[specs.Spec, Inputs]:
    """Specification of the job that makes the folder ``--out``, and what it reads."""
    plan = read_record(options.plan, "plan")
    folder = str(options.out)
    if folder not in plan["jobs"]:
        raise StateError(
            f"The plan {options.plan} has no job for {folder}: another call has changed the study "
            "since; run the same command again."
        )
    spec = specs.checked(plan["jobs"][folder], kind, f"The specification of {folder}")
    return spec, _inputs(plan, folder)


def _inputs(plan: Mapping[str, Any], name: str) -> Inputs:
    planned = plan["inputs"][name]
    if planned["plugins"]:
        plugins.use_copy(planned["plugins"])
    code, files, root = plan["code"][planned["code"]], planned["files"], planned["root"]
    copy = planned["plugins"]
    return Inputs(files=files, code=code, sources=plan["sources"], root=root, plugins=copy)


def data(options: argparse.Namespace) -> None:
    """Prepare a data set or shift family; machine and duration stand outside the manifest."""
    from calgrid.datasets import prepare

    spec, given = _spec(options, specs.DataSpec)
    base = None if spec["base"] is None else Path(spec["base"])
    results = {} if base is None else {base: {MANIFEST: sha256_of(base / MANIFEST)}}

    def produce(folder: Path) -> dict[str, Any]:
        begin = time.monotonic()
        prepare(
            spec["image_set"],
            folder,
            options.data_root,
            base,
            spec["configured"],
            options.threads,
            spec.get("val_seed"),
        )
        facts = {"spec": spec, FILES: Record.read(folder, MANIFEST).files}
        return provenance.job_record(facts, begin, "numpy", "scikit-learn", "Pillow")

    inputs = given.of(results)
    make_result(options.out, PREPARE, spec["fingerprint"], [MANIFEST], produce, inputs=inputs)


def train(options: argparse.Namespace) -> None:
    """Train one run, or load its published weights.

    Raises
    ------
    StateError : a bank has other rows than its data.
    """
    spec, given = _spec(options, specs.TrainSpec)
    data = options.data.parent
    if rows := read_record(options.plan, "plan")["rows"].get(str(options.out)):
        _check_rows(data, rows, RunKey(**spec["key"]))
    machine = {"device": options.device, "threads": options.threads}
    if spec["protocol"].get("gpus", 1) > 1:
        _train_in_processes(spec, options, {**machine, "given": given})
    elif "loss" in spec:  # published weights have none
        from calgrid.jobs.train import train as run

        further = {"first_stage": options.first_stage, "resume_every": options.resume_every}
        run(spec, data, options.out, given=given, **further, **machine)
    else:
        from calgrid.jobs.published import take_weights

        root, threads = options.data_root, options.threads
        take_weights(spec, data, options.out, given=given, data_root=root, threads=threads)


def _train_in_processes(
    spec: specs.TrainSpec, options: argparse.Namespace, machine: Mapping[str, Any]
) -> None:
    """Start the processes of a training, or train in one of them."""
    from calgrid.cli.ends import OF_TORCHRUN
    from calgrid.jobs import distributed

    data, processes = options.data.parent, spec["protocol"]["gpus"]
    if OF_TORCHRUN in os.environ:
        distributed.train(spec, data, options.out, resume_every=options.resume_every, **machine)
    else:
        from calgrid.cli.torchrun import start

        distributed.check(spec, data, options.device)
        start(processes, max(options.threads // processes, 1))


def _check_rows(data: Path, rows: Mapping[str, str], key: RunKey) -> None:
    """Raise StateError if splits of the prepared data have other rows than the runs of a bank with
    which a run is to be compared; ``rows`` are the identities of theirs.
    """
    import numpy as np

    from calgrid.datasets import open_prepared
    from calgrid.storage.logits import identity_of_rows

    for split, expected in rows.items():
        labels = open_prepared(data).splits[split].labels
        if identity_of_rows(np.arange(len(labels)), labels) != expected:
            raise StateError(
                f"The bank has other {split} images than {key.dataset} has here, so {key.path} "
                "could not be compared with it image by image; take a bank of the same split, or "
                "leave it out."
            )


def predict(options: argparse.Namespace) -> None:
    """Export the logits of a run."""
    from calgrid.jobs.predict import predict as run

    spec, given = _spec(options, specs.PredictSpec)
    folders = [path.parent for path in options.shifts]
    run(
        spec,
        options.model,
        options.data.parent,
        options.out,
        shifts=dict(zip(spec["shifts"], folders, strict=True)),
        given=given,
        device=options.device,
        threads=options.threads,
    )


def probe(options: argparse.Namespace) -> None:
    """Measure a run with one probe."""
    from calgrid.jobs.probe import probe as run

    spec, given = _spec(options, specs.ProbeSpec)
    run(
        spec,
        options.model,
        options.data.parent,
        options.out,
        given=given,
        device=options.device,
        threads=options.threads,
    )


def import_run(options: argparse.Namespace) -> None:
    """Import external logits."""
    from calgrid.jobs.import_logits import import_run as run

    spec, given = _spec(options, specs.ExternalSpec)
    run(spec, options.files, options.out, given=given)


def ensemble(options: argparse.Namespace) -> None:
    """Pool the predictions of runs."""
    from calgrid.jobs.ensemble import ensemble as run

    folders = [path.parent for path in options.members]
    spec, given = _spec(options, specs.EnsembleSpec)
    run(spec, folders, options.out, given=given)


def calibrate_run(options: argparse.Namespace) -> None:
    """Fit and score all calibrators of a run."""
    from calgrid.jobs.calibrate import calibrate

    spec, given = _spec(options, specs.CalibrateSpec)
    calibrate(spec, options.logits.parent, options.out, options.threads, given=given)


def aggregate(options: argparse.Namespace) -> None:
    """Collect the metrics of a study."""
    from calgrid.jobs.aggregate import aggregate as run

    manifest, given = _manifest(options, "aggregate")
    run(manifest, options.record, options.threads, given=given)


def tables(options: argparse.Namespace) -> None:
    """Write the tables of a study."""
    from calgrid.papers.tables import write_tables

    write_part(*_manifest(options, "tables"), options.record, "tables", write_tables)


def figures(options: argparse.Namespace) -> None:
    """Draw the figures of a study."""
    from calgrid.papers.figures import write_figures

    write_part(*_manifest(options, "figures"), options.record, "figures", write_figures)


def report(options: argparse.Namespace) -> None:
    """Write the report of a study."""
    from calgrid.papers.report import write_report

    write_part(*_manifest(options, "report"), options.record, "report.html", write_report)


def write_part(
    manifest: Manifest,
    given: Inputs,
    record: Path,
    name: str,
    write: Callable[[Path, Manifest, Path], object],
) -> None:
    """Write tables, figures or report of the study with this record into its folder."""
    study, read = record.parents[1], MADE_FROM[Path(name).stem]

    def produce(folder: Path) -> dict[str, Any]:
        if not Path(name).suffix:
            (folder / name).mkdir()
        write(study, manifest, folder / name)
        return {}

    replace_files(record, [name], produce, given.of({study: listing(study, read)}))
