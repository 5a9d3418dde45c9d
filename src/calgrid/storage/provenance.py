"""What a record of a stage says of where it ran: source code, versions, kind of machine; nothing secret.

Names of hosts and users, and the environment but for SLURM's job number, are left out.
"""

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from calgrid import __version__

#: how the workflow hands the commit on to its jobs, so that git is asked once
COMMIT_VARIABLE = "CALGRID_COMMIT"
DIRTY = "+dirty"
GIT_SECONDS = 20


def describe(*packages: str) -> dict[str, str]:
    """Versions of Python, calgrid and the given packages, git commit, kind of machine, SLURM job."""
    return {
        "calgrid": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        **{package: _version(package) for package in packages},
        "machine": platform.machine(),
        "cpu": _cpu(),
        "slurm_job": os.environ.get("SLURM_JOB_ID", ""),
    }


def stage_record(facts: Mapping[str, Any], begin: float, *packages: str) -> dict[str, Any]:
    """Record of a stage without a network: its ``facts``, where it ran, its seconds and memory.

    Parameters
    ----------
    facts : what the stage was told (``spec``, ``fingerprint``) and what it found.
    begin : ``time.monotonic()`` at its start.
    packages : names of packages on whose versions its results depend.
    """
    return {
        **facts,
        "environment": describe(*packages),
        "seconds": time.monotonic() - begin,
        "peak_memory_mb": peak_memory_mb(),
        "finished": finished(),
    }


def finished() -> str:
    """Return the time of day with its zone, for a record."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def commit() -> str:
    """Git commit of the checkout that this package lies in, with ``+dirty`` behind it if a tracked file differs.

    Empty where there is no git or no repository, as in an installed package.
    """
    known = os.environ.get(COMMIT_VARIABLE)
    return _ask_git(Path(__file__)) if known is None else known


def peak_memory_mb(children: int = 0) -> float:
    """Largest resident memory of this process in MB, with so many times that of the largest child that has ended."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size += children * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return size / (2**20 if sys.platform == "darwin" else 2**10)


def _ask_git(file: Path) -> str:
    try:
        if not _git(file.parent, "ls-files", "--", file.name):
            return ""  # installed below a repository of somebody else
        head = _git(file.parent, "rev-parse", "HEAD")
        changed = _git(file.parent, "status", "--porcelain", "--untracked-files=no", "--", ":/")
    except (OSError, subprocess.SubprocessError):
        return ""
    return head + (DIRTY if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=GIT_SECONDS)
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cpu() -> str:
    """Model of the processor, on which the last bits of results depend."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
