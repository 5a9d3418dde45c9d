"""The study as ``JOBS``, and path patterns that all rules share."""

import gc
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod

# Use the code of this checkout, if it is one, instead of an installed package.
sys.path.insert(0, str(Path(workflow.current_basedir.path).parents[1] / "src"))

from calgrid.cli import events
from calgrid.study.yaml_files import read_configuration, with_plugins
from calgrid.study.home import home
from calgrid.plan.plan import KINDS, Plan
from calgrid.plan.rules import Jobs
from calgrid.study.slow_checks import check_all
from calgrid.study.study import Study
from calgrid.errors import CalgridError
from calgrid.storage.records import MADE_FROM, STUDY_STAGES

# What is imported stays: the garbage collector need not search it again and again while jobs are
# planned.
gc.freeze()

# The default is the study of this folder, as written by `calgrid init`, or else that of calgrid.
DEFAULT = next(
    path / "config/config.yaml"
    for path in (Path(), home())
    if (path / "config/config.yaml").is_file()
)
# Snakemake merges --configfile with this default, so it is loaded only without --configfile.
if not workflow.overwrite_configfiles:

    configfile: str(DEFAULT)


# Only calls for a cluster (a profile, --jobs) set a number of nodes; the executor is not known here.
LOCAL = workflow.is_main_process and workflow.resource_settings.nodes is None
IN_CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method

try:
    # Snakemake has read the files already, but does not report repeated keys.
    for path in workflow.overwrite_configfiles or [DEFAULT]:
        read_configuration(Path(path))
        config = with_plugins(config, Path(path))
    JOBS = Jobs(Plan(Study(config, home())), local=LOCAL)
    if workflow.is_main_process:
        check_all(JOBS.plan.study)
        JOBS.check_installed(IN_CONDA)
        JOBS.check_files()
        JOBS.compare_inputs(lambda: workflow.dag_settings)
except (CalgridError, OSError) as error:
    events.say(str(error))
    raise WorkflowError(str(error)) from None

JOBS.export_environment()
# One GPU job at a time on this machine, unless set by the user (--resources gpu=2).
if LOCAL:
    workflow.global_resources.setdefault("gpu", 1)

RESULTS = JOBS.folder.parent
STUDY = JOBS.folder
LOGS = f"{RESULTS}/logs"
# Specifications of all jobs by their folders, and the runs of the study; written before the jobs.
PLAN = JOBS.plan.path


wildcard_constraints:
    **JOBS.wildcard_constraints,
