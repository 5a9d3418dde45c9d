"""Configuration, environment and path patterns that all rules share."""

import sys
from pathlib import Path

from snakemake.cli import args_to_api
from snakemake.exceptions import WorkflowError
from snakemake.jobs import Job
from snakemake.settings.enums import RerunTrigger

HOME = Path(workflow.basedir)
# This checkout, whatever is installed.
sys.path.insert(0, str(HOME / "src"))

from calgrid.configuration.reading import read_configuration
from calgrid.configuration.rules import RuleBook
from calgrid.errors import CalgridError

DEFAULT = HOME / "config" / "config.yaml"
# --configfile merges with this default, so a study of its own must not load it.
if not workflow.overwrite_configfiles:

    configfile: str(DEFAULT)


class FingerprintedWorkflow(type(workflow)):
    """Fingerprints in the parameters and times of files say what must run again; nothing else does.

    The set of input files would make two studies with different shifts undo each other's predictions, a switch to
    conda or an edit of a shell string would run everything again. Snakemake has these triggers as settings of a
    profile, but a default profile would silently take keys away from the SLURM profile.
    """

    @property
    def rerun_triggers(self):
        return super().rerun_triggers & {RerunTrigger.MTIME, RerunTrigger.PARAMS}

    @property
    def dag_settings(self):
        return vars(self)["dag_settings"]

    @dag_settings.setter
    def dag_settings(self, settings):
        """Force the jobs of damaged results: Snakemake does not look at files behind a target that is there."""
        if settings and self.is_main_process:
            forced = bool(settings.forcerun or settings.forceall or settings.forcetargets)
            settings.forcerun = {*settings.forcerun, *BOOK.repair(forced)}
        vars(self)["dag_settings"] = settings


workflow.__class__ = FingerprintedWorkflow


def runs_here():
    """Do jobs run on this machine, and not on a cluster's?

    Snakemake tells a workflow of its executor only after it has read the rules, and in a dry run never. Its command line
    knows, from options and profiles; who calls Snakemake from Python gives a number of nodes for a cluster.
    """
    if not workflow.is_main_process:
        return False
    frame = sys._getframe()
    while frame and frame.f_code is not args_to_api.__code__:
        frame = frame.f_back
    if frame is None:
        return workflow.resource_settings.nodes is None
    return frame.f_locals["args"].executor in ("local", "dryrun", "touch")


LOCAL = runs_here()

try:
    # Snakemake, which has read them already, keeps the last of keys that are repeated.
    for path in workflow.overwrite_configfiles or [DEFAULT]:
        read_configuration(Path(path))
    BOOK = RuleBook(config, HOME, local=LOCAL)
    if workflow.is_main_process:
        BOOK.plan.study.check_labels()
except (CalgridError, OSError) as error:
    raise WorkflowError(str(error)) from None

BOOK.export_environment()
# Jobs on nodes read this file too, with clocks of their own.
if workflow.is_main_process:
    BOOK.mend_times()
# One GPU job at a time on this machine, unless the user says otherwise (--resources gpu=2).
if LOCAL:
    workflow.global_resources.setdefault("gpu", 1)

RESULTS = BOOK.results
STUDY = f"{RESULTS}/{BOOK.study}"
KEY = "{protocol}/{dataset}/{backbone}/{method}/seed{seed}"
RUN = f"{RESULTS}/runs/{KEY}"
PART = f"{STUDY}/parts/{KEY}"
LOGS = f"{RESULTS}/logs"
TIMES = f"{RESULTS}/benchmarks"


def is_shared(job):
    """Does a job write what studies share (data, runs), which a job of another one may be about to read?

    The stages that write those files replace them whole, and say themselves whether they are to be made again.
    """
    return not all(path.startswith(f"{STUDY}/") for path in job.output)


async def remove_existing_output(job):
    """Snakemake's own, but for what is shared and for logs, which each attempt continues."""
    if not is_shared(job):
        for path in job.output:
            await path.remove()


async def cleanup(job, skip_outputs, cleanup=Job.cleanup):
    """Snakemake's own, after a job that failed, but for what an earlier job had made as it is planned now."""
    if not BOOK.is_settled(job.output):
        await cleanup(job, skip_outputs)


Job.remove_existing_output = remove_existing_output
Job.cleanup = cleanup


wildcard_constraints:
    **BOOK.wildcard_constraints,
