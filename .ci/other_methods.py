"""Run each registered training-time method that the default study lacks, with one seed, and check
its results.

Usage: ``python .ci/other_methods.py``, from the root of the repository, with the environment's
Python.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import yaml

from calgrid.study.runs import registered_methods

STUDY = "other_methods"
#: configurations of the default study, and of the study with a grid of all methods
STUDIES = ("config", "all_methods")
#: a few epochs show that a method runs
PROTOCOL = {
    "base": "digits",
    "epochs": 4,
    "schedule": {"name": "step", "milestones": [2, 3], "gamma": 0.1, "warmup_epochs": 0},
    "second_stage": {"epochs": 2},
}


def main() -> int:
    """Return 0 if all methods ran and the tables hold them all."""
    (default,), (grid,) = (
        yaml.safe_load(Path(f"config/{name}.yaml").read_text())["grids"] for name in STUDIES
    )
    others = [name for name in registered_methods() if name not in default["methods"]]
    grid |= {"seeds": [1], "protocol": "once", "methods": ["ce", *others], "calibrators": ["none"]}
    config = {
        "study": STUDY,
        "protocols": {"once": PROTOCOL},
        "grids": [grid],
        "statistics": {"bootstrap": 0},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "once.yaml")
        path.write_text(yaml.safe_dump(config))
        snakemake = Path(sys.executable).with_name("snakemake")
        subprocess.run(
            [snakemake, "--cores", "all", "--quiet", "all", "--configfile", path, "--", "tables"],
            check=True,
        )
    results = Path("results", STUDY)
    metrics = pd.read_parquet(results / "metrics.parquet")
    scored = set(metrics.query("split == 'test' and metric == 'nll' and value == value")["method"])
    timed = set(pd.read_csv(results / "tables" / "training_time.csv")["method"])
    wanted = set(grid["methods"])
    for name, found in (("a result", scored), ("a training time", timed)):
        if found != wanted:
            sys.stderr.write(f"Methods without {name}: {', '.join(sorted(wanted - found))}\n")
            return 1
    sys.stdout.write(f"{len(wanted)} methods have results and a training time\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
