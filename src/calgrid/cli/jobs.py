"""Commands that the rules of the workflow call."""

import argparse
import json
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from calgrid import specs
from calgrid.components import plugins
from calgrid.configuration.protocols import trains
from calgrid.errors import ConfigError, unknown_id
from calgrid.storage import provenance
from calgrid.storage.atomic import read_json
from calgrid.storage.records import FILES, listed, read_record, study_record, write_record
from calgrid.storage.stage import keep_record


def _manifest(path: Path) -> specs.Manifest:
    manifest = specs.checked(read_record(path, "manifest"), specs.Manifest, f"The manifest {path}")
    plugins.use(manifest["configuration"].get("plugins", ()), f"The manifest {path}: plugins")
    plugins.export()
    return manifest


def _spec(text: str, stage: str, kind: type[specs.Spec]) -> specs.Spec:
    """Read a specification: JSON, a JSON file, or a run of a configuration (CONFIG#RUN)."""
    config, hash_sign, run = text.partition("#")
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"--spec is not valid JSON ({error}).") from None
    elif hash_sign:
        found = _from_configuration(Path(config), run, stage)
    else:
        found = read_json(Path(text), "specification")
    return specs.checked(found, kind, "--spec")


def _from_configuration(config: Path, run: str, stage: str) -> object:
    """Specification of a run (``protocol/dataset/backbone/method/seed1``) or data set of a
    configuration.

    For a probe, the name of the probe follows the run: ``.../seed1/margin_attack``.
    """
    from calgrid.cli.listing import read_study
    from calgrid.configuration.plan import Plan

    plan = Plan(read_study(config))
    plugins.export()
    if stage == "data":
        if run not in plan.study.datasets.configured:
            raise unknown_id(
                "configured data set", run, plan.study.datasets.configured, str(config)
            )
        return plan.data_spec(run)
    runs = {key.path: key for key in plan.study.runs}
    run, *rest = run.rsplit("/", 1) if stage == "probe" else [run]
    if run not in runs:
        raise unknown_id("run", run, runs, str(config))
    return getattr(plan, stage)(runs[run], *rest)


def data(options: argparse.Namespace) -> None:
    """Prepare a data set or shift family; machine and duration are recorded outside the manifest."""
    from calgrid.datasets import prepare

    begin = time.monotonic()
    configured = _spec(options.spec, "data", specs.DataSpec) if options.spec else None
    manifest = prepare(
        options.unit, options.out, options.data_root, options.base, configured, options.threads
    )
    spec = configured or {"unit": options.unit, "base": options.base and options.base.name}
    fingerprint: str = options.fingerprint or (configured["fingerprint"] if configured else "")
    facts = {"spec": spec, "fingerprint": fingerprint}
    write_record(
        options.out / "prepare.json",
        provenance.stage_record(facts, begin, "numpy", "scikit-learn", "Pillow"),
    )
    keep_record(options.out, "data", fingerprint, manifest.name)


def train(options: argparse.Namespace) -> None:
    """Train one run, or load its published weights."""
    spec = _spec(options.spec, "train", specs.TrainSpec)
    settings = {"device": options.device, "threads": options.threads}
    if trains(spec["protocol"]):
        from calgrid.jobs.train import train as run

        first, every = options.first_stage, options.resume_every
        run(spec, options.data, options.out, first_stage=first, resume_every=every, **settings)
    else:
        from calgrid.jobs.published import take_weights

        take_weights(spec, options.data, options.out, data_root=options.data_root, **settings)


def predict(options: argparse.Namespace) -> None:
    """Export the logits of a run."""
    from calgrid.jobs.predict import predict as run

    run(
        _spec(options.spec, "predict", specs.PredictSpec),
        options.model,
        options.data,
        options.out,
        families={
            family: options.data.parent / family.removeprefix("ood/") for family in options.shifts
        },
        device=options.device,
        threads=options.threads,
    )


def probe(options: argparse.Namespace) -> None:
    """Measure a run with one probe."""
    from calgrid.jobs.probe import probe as run

    spec = _spec(options.spec, "probe", specs.ProbeSpec)
    run(
        spec,
        options.model,
        options.data,
        options.out,
        device=options.device,
        threads=options.threads,
    )


def import_run(options: argparse.Namespace) -> None:
    """Import external logits."""
    from calgrid.jobs.import_logits import import_run as run

    run(_spec(options.spec, "external", specs.ExternalSpec), options.files, options.out)


def calibrate_run(options: argparse.Namespace) -> None:
    """Fit and score all calibrators of a run."""
    from calgrid.jobs.calibrate import calibrate

    spec = _spec(options.spec, "calibrate", specs.CalibrateSpec)
    calibrate(spec, options.run_folder, options.out, options.threads)


def aggregate(options: argparse.Namespace) -> None:
    """Collect the metrics of a study."""
    from calgrid.jobs.aggregate import aggregate as run

    run(_manifest(options.manifest), options.out, options.threads)


def _replace_folder(out: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` on a new folder, then replace ``out`` by it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    new = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        new.mkdir()
        write(new)
        shutil.rmtree(out, ignore_errors=True)
        new.rename(out)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _record(out: Path) -> None:
    """List the files of a folder, or the file itself, in a hidden record in the same folder."""
    files = [
        path for path in ([out] if out.is_file() else sorted(out.rglob("*"))) if path.is_file()
    ]
    names = [str(path.relative_to(out.parent)) for path in files]
    write_record(study_record(out), {FILES: listed(out.parent, names)})


def _write_folder(
    options: argparse.Namespace, write: Callable[[Path, specs.Manifest, Path], object]
) -> None:
    manifest = _manifest(options.manifest)
    _replace_folder(options.out, lambda folder: write(options.manifest.parent, manifest, folder))
    _record(options.out)


def tables(options: argparse.Namespace) -> None:
    """Write the tables of a study."""
    from calgrid.reporting.tables import write_tables

    _write_folder(options, write_tables)


def figures(options: argparse.Namespace) -> None:
    """Draw the figures of a study."""
    from calgrid.reporting.figures import write_figures

    _write_folder(options, write_figures)


def report(options: argparse.Namespace) -> None:
    """Write the report of a study."""
    from calgrid.reporting.html import write_report

    write_report(options.manifest.parent, _manifest(options.manifest), options.out)
    _record(options.out)
