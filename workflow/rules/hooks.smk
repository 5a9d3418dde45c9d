"""Checks before the first job; after the last one where the report is, or why jobs failed."""

import logging
import os
import shutil
import subprocess
import sys
import time
from collections import Counter

from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent

from calgrid import forkserver
from calgrid.cli import events, joblogs
from calgrid.plan.rules import check_temporary_folder
from calgrid.storage.publish import FORCED
from calgrid.storage.records import why_not_current, write_record


class Errors(logging.Handler):
    """Logs why a job failed, as soon as it does, and keeps the messages of executors, which no file has."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def emit(self, record):
        if getattr(record, "event", None) == LogEvent.JOB_ERROR:
            self.found[record.jobid] = (
                [path for path in record.log if path],
                record.rule_msg or "",
            )
            logger.error(f"The reason: {joblogs.why(*self.found[record.jobid])}")

    def reasons(self, jobs):
        """Reason and output of each failed job by its log; logs are read again, because those of SLURM may be late."""
        found = {job: self.found.get(workflow.dag.jobid(job), (list(job.log), "")) for job in jobs}
        return {
            logs[0]: joblogs.Failed(joblogs.why(logs, message), str(job.output[0]))
            for job, (logs, message) in found.items()
        }


def is_news(record):
    """Whether to show a message; Snakemake warns of each new output with the flag ``update``, and
    that it keeps outputs of failed jobs, which are complete results or not there."""
    text = str(record.msg)
    return not (text.endswith(": no backup found.") or text.startswith("--keep-incomplete mode"))


ERRORS = Errors()
logger.addFilter(is_news)
if workflow.is_main_process:
    logger.addHandler(ERRORS)
    logger.addHandler(events.Writer())


onstart:
    try:
        JOBS.check_writable()
        check_temporary_folder()
    except CalgridError as error:
        events.say(str(error))
        raise WorkflowError(str(error)) from None
    JOBS.bring_times_to_now()
    JOBS.plan.copy_plugins()
    write_record(Path(PLAN), JOBS.plan.file())
    # A conda environment has libraries of its own.
    if LOCAL and not IN_CONDA:
        forkserver.start({name: kind.module for name, kind in KINDS.items()})
    settings = workflow.dag_settings
    if settings.forceall or settings.forcetargets or settings.forcerun:
        os.environ[FORCED] = str(time.time())
    # Backups of results that were forced by a call that was killed would stop another forced call.
    shutil.rmtree(".snakemake/backup", ignore_errors=True)
    if getattr(workflow.executor_settings, "status_command", None) == "sacct":
        asked = subprocess.run(
            "sacct --noheader --jobs=1", shell=True, capture_output=True, text=True
        )
        if asked.returncode:
            workflow.executor_settings.status_command = "squeue"
            logger.warning(
                f"This cluster has no accounting ({asked.stderr.strip()}): the states of jobs are read from squeue, "
                "as with 'slurm-status-command: squeue' in the profile."
            )


onerror:
    failed = [
        single for job in workflow.scheduler.failed for single in getattr(job, "jobs", [job])
    ]
    blocked = set(workflow.dag.bfs(workflow.dag.depending, *failed))
    left = [
        job for job in workflow.dag.needrun_jobs() if not job.is_norun and job not in failed
    ]
    rules = Counter(sorted(job.rule.name for job in left if job in blocked))
    summary = joblogs.report(
        ERRORS.reasons(failed), rules, len(left) - rules.total(), sys.argv[1:]
    )
    logger.error(summary)
    events.say(summary)


onsuccess:
    if any(job.rule.name == "report" for job in workflow.dag.finished_jobs):
        if why := why_not_current(STUDY):
            logger.warning(f"The files of {STUDY} do not belong together: {why}; run again.")
        else:
            logger.info(f"Report: {STUDY}/report.html")
