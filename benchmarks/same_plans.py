"""Compare the plans of all shipped configurations that need no data with those of another checkout.

Usage: ``python benchmarks/same_plans.py ../other``. For each configuration: the number of jobs, of
their identities that differ, and of jobs whose options differ too. The exit code is 1 if an
identity differs.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from calgrid.errors import CalgridError
from calgrid.plan.plan import Plan
from calgrid.study.home import home
from calgrid.study.study import Study
from calgrid.study.yaml_files import read_configuration, with_plugins

HERE = Path(__file__).resolve().parents[1]
CONFIGURATIONS = ("config/*.yaml", "config/studies/*.yaml", "config/papers/*/study.yaml")
#: fingerprints and the identities of folders, which follow from code too
IDENTITY = re.compile(r"\b[0-9a-f]{10}(?:[0-9a-f]{6})?\b")


def plans() -> dict[str, dict[str, str]]:
    """Configuration -> folder of each of its jobs, which ends in the identity -> specification."""
    found = {}
    for pattern in CONFIGURATIONS:
        for path in sorted(Path().glob(pattern)):
            try:
                plan = Plan(Study(with_plugins(read_configuration(path), path), home()))
                jobs = {job.folder: json.dumps(job.spec, sort_keys=True) for job in plan.jobs}
            except CalgridError:
                continue  # it needs data
            found[str(path)] = jobs
    return found


def plans_of(checkout: Path) -> dict[str, dict[str, str]]:
    """Plans of another checkout by its own code, whose modules may have other names."""
    script = checkout / "benchmarks" / Path(__file__).name
    done = subprocess.run(
        [sys.executable, "-P", script if script.is_file() else __file__],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout / "src")},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def options(jobs: dict[str, str]) -> set[str]:
    """Jobs with their specifications, without what follows from code."""
    return {IDENTITY.sub("#", f"{folder} {spec}") for folder, spec in jobs.items()}


def main(other: Path) -> int:
    """Print the differences of each configuration; return 1 if there are any."""
    ours, theirs = plans_of(HERE), plans_of(other.resolve())
    differ = False
    for name in sorted({*ours, *theirs}):
        one, two = ours.get(name, {}), theirs.get(name, {})
        ids, changed = one.keys() ^ two.keys(), options(one) ^ options(two)
        differ |= bool(ids)
        counts = f"{len(ids - two.keys())} other identities, {len(changed)} of other options"
        sys.stdout.write(f"{name:60s} {len(one):5d} jobs, {counts if ids else 'the same'}\n")
        for line in sorted(changed)[:2]:
            sys.stdout.write(f"    {line[:300]}\n")
    return int(differ)


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(main(Path(sys.argv[1])))
    json.dump(plans(), sys.stdout)
