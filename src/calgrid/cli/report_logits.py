"""``calgrid report-logits``: tables, figures and HTML report of a network's logits, without
Snakemake.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from calgrid.cli.files import ALL, calibrator_names, left_out_lines, read
from calgrid.cli.jobs import write_part
from calgrid.configuration.home import home
from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study
from calgrid.jobs.aggregate import aggregate
from calgrid.jobs.calibrate import calibrate
from calgrid.jobs.import_logits import import_run
from calgrid.papers.figures import write_figures
from calgrid.papers.report import write_report
from calgrid.papers.tables import write_tables
from calgrid.progress import log
from calgrid.storage.layout import SUMMARIES
from calgrid.storage.specs import EXTERNAL_READING
from calgrid.user_logits.ranking import usable
from calgrid.user_logits.reading import read_head_arrays


def report_logits(options: argparse.Namespace) -> None:
    """Run a study of the given files in this process."""
    plan = Plan(Study(_configuration(options), home()))
    manifest = plan.manifest()
    plan.copy_plugins()
    for key in plan.study.external:
        taken, calibrated = plan.external(key), plan.calibrate(key)
        logits = Path(taken.folder)
        import_run(taken.spec, plan.study.external_files(key), logits, plan.inputs(taken))
        given, out = plan.inputs(calibrated), Path(calibrated.folder)
        calibrate(calibrated.spec, logits, out, options.threads, given=given)
    records, read = {}, {}
    for name in SUMMARIES:
        read[name] = plan.stage_inputs(name)
        records[name] = Path(plan.stage_record(name))
    given = read["aggregate"]
    aggregate(manifest, records["aggregate"], options.threads, given=given)
    parts = {
        "tables": ("tables", write_tables),
        "figures": ("figures", write_figures),
        "report": ("report.html", write_report),
    }
    for name, (file, write) in parts.items():
        write_part(manifest, read[name], records[name], file, write)
    sys.stdout.write(f"wrote {plan.study.layout.file('report.html')}\n")


def _configuration(options: argparse.Namespace) -> dict[str, Any]:
    """Configuration of a study with one external run."""
    external: dict[str, Any] = {
        "kind": options.kind or "logits",
        "dataset": "logits",
        "backbone": options.name,
        "method": "model",
        "calibrators": _calibrators(options),
    }
    files = {
        "val": options.fit,
        "val_labels": options.fit_labels,
        "test": options.apply,
        "test_labels": options.apply_labels,
        "head": options.head,
    }
    for role, path in files.items():
        if path:
            external[role] = os.path.relpath(path)
    for name in EXTERNAL_READING:
        value = getattr(options, name)
        if value:
            external[name] = value
    return {
        "study": options.name,
        "results": str(options.results),
        "data_root": None,
        "external": {"logits": external},
        "statistics": {"bins": options.bins, "bootstrap": options.bootstrap},
    }


def _calibrators(options: argparse.Namespace) -> list[str]:
    names = calibrator_names(options.calibrator)
    if names == [ALL]:
        val = read(options.fit, options.fit_labels, options)
        test = read(options.apply, options.apply_labels, options, val.metadata.get("classes"))
        features = None if test.features is None else val.features
        head = read_head_arrays(options.head) if options.head else None
        names, left_out = usable(val.logits.shape[1], features, head)
        for line in left_out_lines(left_out):
            log(line)
    return list(dict.fromkeys(["none", *names]))
