"""Provenance in records of jobs: source code, versions, type of machine.

Names of hosts and users, and environment variables except the SLURM job, are never recorded.
"""

import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from calgrid import __version__
from calgrid.storage.records import Facts

#: variable with the commit, which the workflow sets for its jobs, so that git is called once
COMMIT_VARIABLE = "CALGRID_COMMIT"
DIRTY = "+dirty"
GIT_SECONDS = 20


def describe(*packages: str) -> dict[str, str]:
    """Return versions of Python, calgrid and the given packages, git commit, type of machine, SLURM
    job.
    """
    return {
        "calgrid": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        **{package: _version(package) for package in packages},
        "machine": platform.machine(),
        "cpu": _cpu(),
        "slurm_job": os.environ.get("SLURM_JOB_ID", ""),
    }


def job_record(facts: Facts, begin: float, *packages: str) -> Facts:
    """Return the record of a job without a network: its inputs and results, environment, seconds
    and memory.

    ``begin`` is ``time.monotonic()`` at its start; ``packages``: packages whose versions affect its
    results.
    """
    return {
        **facts,
        "environment": describe(*packages),
        "seconds": time.monotonic() - begin,
        "peak_memory_mb": peak_memory_mb(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def commit() -> str:
    """Return the git commit of the checkout with this package, and ``+dirty`` if a tracked file
    differs.

    Empty without git or repository, as in an installed package.
    """
    if (known := os.environ.get(COMMIT_VARIABLE)) is not None:
        return known
    file = Path(__file__)
    try:
        if not _git(file.parent, "ls-files", "--", file.name):
            return ""  # installed inside another repository
        head = _git(file.parent, "rev-parse", "HEAD")
        changed = _git(file.parent, "status", "--porcelain", "--untracked-files=no", "--", ":/")
    except (OSError, subprocess.SubprocessError):
        return ""
    return head + (DIRTY if changed else "")


def peak_memory_mb(children: int = 0) -> float:
    """Peak resident memory of this process in MB, plus ``children`` times the peak of its largest
    finished child.
    """
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size += children * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return size / (2**20 if sys.platform == "darwin" else 2**10)


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=GIT_SECONDS
    )
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cpu() -> str:
    """Model of the processor, which affects rounding of results."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "")
