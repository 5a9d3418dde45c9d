"""``calgrid report-logits``: tables, figures and HTML report of a network's logits, without
Snakemake.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from calgrid.cli import jobs
from calgrid.cli.files import ALL, calibrator_names, read
from calgrid.configuration.home import home
from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study
from calgrid.files.logits import read_head_arrays
from calgrid.files.ranking import usable
from calgrid.jobs.aggregate import aggregate
from calgrid.jobs.calibrate import calibrate
from calgrid.jobs.import_logits import import_run
from calgrid.specs import EXTERNAL_READING
from calgrid.storage.records import write_record


def report_logits(options: argparse.Namespace) -> None:
    """Run a study of the given files in this process."""
    plan = Plan(Study(_configuration(options), home()))
    layout, manifest = plan.study.layout, plan.manifest()
    for key in plan.study.external:
        run = Path(layout.run(key))
        import_run(plan.external(key), plan.study.external_files(key), run)
        calibrate(plan.calibrate(key), run, Path(layout.part(key)), options.threads)
    folder = Path(layout.results, layout.study)
    path = folder / "manifest.json"
    write_record(path, manifest)
    aggregate(manifest, folder, options.threads)
    for write, name in (
        (jobs.tables, "tables"),
        (jobs.figures, "figures"),
        (jobs.report, "report.html"),
    ):
        write(argparse.Namespace(manifest=path, out=folder / name))
    sys.stdout.write(f"wrote {folder / 'report.html'}\n")


def _configuration(options: argparse.Namespace) -> dict[str, Any]:
    """Configuration of a study with one external run."""
    files = {
        "val": options.fit,
        "val_labels": options.fit_labels,
        "test": options.apply,
        "head": options.head,
    }
    files["test_labels"] = options.apply_labels
    reading = {name: value for name in EXTERNAL_READING if (value := getattr(options, name))}
    external = {
        **{name: str(path.resolve()) for name, path in files.items() if path},
        **reading,
        "kind": options.kind,
        "dataset": "logits",
        "backbone": options.name,
        "method": "model",
        "calibrators": _calibrators(options),
    }
    return {
        "study": options.name,
        "results": str(options.results),
        "external": {"logits": external},
        "statistics": {"bins": options.bins, "bootstrap": options.bootstrap},
    }


def _calibrators(options: argparse.Namespace) -> list[str]:
    names = calibrator_names(options.calibrator)
    if names == [ALL]:
        data = [
            read(options.fit, options.fit_labels, options),
            read(options.apply, options.apply_labels, options),
        ]
        features = None if any(each.features is None for each in data) else data[0].features
        names = usable(features, read_head_arrays(options.head) if options.head else None)
    return list(dict.fromkeys(["none", *names]))
