"""A whole study through ``sbatch`` on the test cluster, and again without SLURM: are all results
the same bytes?

    python -m benchmarks.cluster [--configfile FILE] [--into FOLDER]

Without a file it is the default grid, which takes as root about a quarter of an hour. Exit code 1
if a file differs.
"""

import argparse
import collections
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.slurm.cluster import Cluster, why_not
from tests.workflow.dag import HOME, Repository

CONTROLLER = HOME / "tests" / "slurm" / "controller.py"
#: what equal runs have in common, byte for byte; records hold times, costs and what shows them are
#: excepted
SAME = (
    "runs/**/model.safetensors",
    "runs/**/history.parquet",
    "runs/**/logits/**/*.parquet",
    "runs/**/metrics.parquet",
    "*/metrics.parquet",
    "*/summary.parquet",
)


def main() -> int:
    """Return 0 if all files are the same, 1 if one differs, 2 without such a cluster."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--configfile", type=Path, help="configuration of the study (the default grid)"
    )
    parser.add_argument("--into", type=Path, help="folder for both results (a temporary one)")
    options = parser.parse_args()
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 2
    config = ["--configfile", str(options.configfile.resolve())] if options.configfile else []
    with tempfile.TemporaryDirectory() as temporary:
        into = options.into or Path(temporary)
        copies = {}
        for name in ("slurm", "local"):
            (into / name).mkdir(parents=True)
            copies[name] = Repository(into / name)
        _through_slurm(copies["slurm"].root, config)
        _timed("without SLURM", copies["local"].root, ["-m", "snakemake", "--cores", "2", *config])
        return _compare(copies["slurm"].root / "results", copies["local"].root / "results")


def _through_slurm(root: Path, config: list[str]) -> None:
    with Cluster() as cluster:
        site = ["--slurm-no-account", "--slurm-status-command", "squeue"]
        _timed("through sbatch", root, [str(CONTROLLER), "--profile", "slurm", *site, *config])
        print("jobs:", dict(collections.Counter(job["JobState"] for job in cluster.jobs())))


def _timed(name: str, root: Path, command: list[str]) -> None:
    begin = time.monotonic()
    with (root / "snakemake.log").open("w") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            [sys.executable, *command],
            cwd=root,
            stdout=log,
            stderr=log,
            check=False,
            env=environment,
        )
    if ended.returncode:
        sys.exit(
            f"{name} ended with {ended.returncode}:\n{(root / 'snakemake.log').read_text()[-5000:]}"
        )
    print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)


def _compare(slurm: Path, local: Path) -> int:
    found = {
        root: {p.relative_to(root) for pattern in SAME for p in root.glob(pattern)}
        for root in (slurm, local)
    }
    different = sorted(found[slurm] ^ found[local])
    common = sorted(found[slurm] & found[local])
    different += [
        path for path in common if (slurm / path).read_bytes() != (local / path).read_bytes()
    ]
    print(
        f"{len(common)} files of both are compared, {len(different)} differ", *different, sep="\n"
    )
    return 1 if different or not common else 0


if __name__ == "__main__":
    sys.exit(main())
