"""``calgrid report-logits``: tables, figures and HTML report of a network's logits, without
Snakemake.
"""

import os
from pathlib import Path

from calgrid.cli.files import ALL, calibrator_names, left_out_lines, read
from calgrid.cli.terminal import Arguments, write
from calgrid.components.options import Options
from calgrid.logits.ranking import usable
from calgrid.logits.reading import read_head_arrays
from calgrid.plan.plan import Plan
from calgrid.progress import log
from calgrid.storage.publish import Call
from calgrid.storage.specs import EXTERNAL_READING
from calgrid.study.home import home
from calgrid.study.study import Study


def report_logits(options: Arguments) -> None:
    """Run a study of the given files in this process."""
    plan = Plan(Study(_configuration(options), home()))
    plan.copy_plugins()
    content = plan.file()
    for job in (*plan.jobs, *plan.stages):
        out = Path(job.result if job.is_stage else job.folder)
        Call.planned(content, job.kind, out, threads=options.threads).make()
    write(f"wrote {plan.study.folder / 'report.html'}\n")


def _configuration(options: Arguments) -> Options:
    """Configuration of a study with one external run."""
    external: dict[str, object] = {
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


def _calibrators(options: Arguments) -> list[str]:
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
