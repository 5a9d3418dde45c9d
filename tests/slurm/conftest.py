"""The cluster, and workflows that run on it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.slurm.cluster import Cluster, why_not
from tests.workflow.dag import Repository

CONTROLLER = Path(__file__).with_name("controller.py")


@pytest.fixture(scope="session")
def cluster():
    if reason := why_not():
        pytest.skip(reason)
    with Cluster() as running:
        yield running


class Grid(Repository):
    """A copy of the repository whose workflow runs on the cluster."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.controllers: list[subprocess.Popen] = []

    def start(
        self, *arguments: str, config: str = "tiny.yaml", **environment: str
    ) -> subprocess.Popen:
        """A controller, its output in ``controller.log``; it ends with the test at the latest."""
        with (self.root / "controller.log").open("a") as log:
            call = [sys.executable, CONTROLLER, "--profile", "slurm", *arguments]
            controller = subprocess.Popen(
                [*call, "--configfile", config],
                cwd=self.root,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            )
        self.controllers.append(controller)
        return controller

    def end(self) -> None:
        for controller in self.controllers:
            controller.kill()
            controller.wait()
        # with proctrack/linuxproc a process can outlive its job
        subprocess.run(["pkill", "-KILL", "-f", str(self.root)], check=False)

    def log(self) -> str:
        return (self.root / "controller.log").read_text()


@pytest.fixture(scope="module")
def new_grid(tmp_path_factory):
    grids = []

    def make() -> Grid:
        grids.append(Grid(tmp_path_factory.mktemp("cluster")))
        return grids[-1]

    yield make
    for grid in grids:
        grid.end()
