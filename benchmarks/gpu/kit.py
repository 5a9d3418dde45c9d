"""What the parts share: pieces, runs by ``python -m calgrid``, the description of the machine."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch

from calgrid import threads
from calgrid.datasets import Prepared, open_prepared
from calgrid.plan.plan import Plan
from calgrid.storage.records import RunKey, write_record
from calgrid.study.study import Study

HOME = Path(__file__).resolve().parents[2]


Figures = dict[str, Any]


@dataclass(frozen=True)
class Piece:
    """One measurement, made in a process of its own.

    Attributes
    ----------
    name : of its row.
    seconds : after which it is stopped.
    measure : takes the options and yields figures, so that one that is stopped keeps some;
        ``{"ok": False}`` among them says that a check fails.
    lacks : why it cannot be made; empty if it can.
    """

    name: str
    seconds: float
    measure: Callable[[argparse.Namespace], Iterator[Figures]]
    lacks: str = ""


#: number of pieces at the same time, and the pieces
Wave = tuple[int, list[Piece]]


def device() -> str:
    """``cuda`` where there is a GPU, else ``cpu``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def conditions() -> dict[str, Any]:
    """What a figure must be read with: GPU, driver, versions, cores."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "gpu": gpu,
        "torch": torch.__version__,
        "cuda": torch.version.cuda if gpu else None,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "date": time.strftime("%Y-%m-%d"),
    }


class Runs:
    """Runs of a study that the command line makes one by one, without Snakemake.

    Parameters
    ----------
    options : with ``work`` and ``pictures``, see ``run.py``.
    protocols : variants of protocols, as in a configuration.
    grids : as in a configuration, without data set.
    subset : number of training pictures; all if None.
    copy : end of the name of the folder of results, so that a run can be made twice.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        protocols: dict[str, Any],
        grids: list[dict[str, Any]],
        subset: int | None = None,
        copy: str = "",
    ) -> None:
        self.results = options.work.absolute() / f"results{copy}"
        self.dataset = "digits" if options.pictures is None else "pictures"
        study: dict[str, Any] = {
            "study": "gpu",
            "results": str(self.results),
            "protocols": protocols,
            "grids": [{**grid, "datasets": [self.dataset]} for grid in grids],
        }
        if options.pictures is not None:
            pictures = {
                "base": "image_parquet",
                "train": "train.parquet",
                "test": "test.parquet",
                "like": "cifar10",
            }
            if subset is not None:
                rows = pq.read_metadata(options.pictures / "train.parquet").num_rows
                if subset > rows // 2:  # validation images are taken from them too
                    raise SystemExit(f"{options.pictures} has {rows} pictures; give {2 * subset}.")
                pictures["subset"] = subset
            study["data_root"] = str(options.pictures)
            study["datasets"] = {"pictures": pictures}
        self.plan = Plan(Study(study, HOME))
        self.plan_file = self.results / "plan.json"
        self.results.mkdir(parents=True, exist_ok=True)
        write_record(self.plan_file, self.plan.file())

    def prepare(self) -> None:
        """Prepare the data set, unless it is there."""
        out = self.plan.data(self.dataset).folder
        self.calgrid("job", "data", "--plan", self.plan_file, "--out", out)

    def data(self) -> Prepared:
        """The prepared data set."""
        return open_prepared(Path(self.plan.data(self.dataset).folder))

    def calgrid(self, *arguments: Any) -> None:
        """Run a command; what it says goes to a log, which is shown where it fails."""
        done = subprocess.run(
            command(arguments), check=False, env=environment(), capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(done.args)}\n{done.stdout}{done.stderr}")

    def key(self, protocol: str, backbone: str, method: str, seed: int = 1) -> RunKey:
        """Key of a run on the data set."""
        return RunKey(protocol, self.dataset, backbone, method, seed)

    def trained(self, key: RunKey) -> Path:
        """Folder of a training."""
        return Path(self.plan.train(key).folder)

    def predicted(self, key: RunKey) -> Path:
        """Folder of the logits of a run."""
        return Path(self.plan.predicted(key).folder)

    def train_command(self, key: RunKey, on: str | None = None) -> list[Any]:
        """Arguments that train a run, on the CPU or by default on a GPU if there is one."""
        return ["job", "train", *self._common(self.trained(key), on)]

    def predict_command(self, key: RunKey, on: str | None = None) -> list[Any]:
        """Arguments that predict val and test with the model of the run in its plan."""
        return ["job", "predict", *self._common(self.predicted(key), on)]

    def _common(self, out: Path, on: str | None) -> list[Any]:
        return ["--plan", self.plan_file, "--out", out, "--device", on or device()]


def command(arguments: Iterable[Any]) -> list[str]:
    """Command line of calgrid."""
    return [sys.executable, "-m", "calgrid", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Environment variables with which commands run the code of this checkout."""
    paths = os.pathsep.join(filter(None, [str(HOME / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **dict.fromkeys(threads.VARIABLES, "1"), "PYTHONPATH": paths}


def keep(options: argparse.Namespace, name: str, rows: list[Figures]) -> Path:
    """Write rows beside the conditions that they were measured under; return the file."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{name}.json"
    content = {"conditions": conditions(), "rehearsal": options.rehearse, "rows": rows}
    path.with_suffix(".new").write_text(json.dumps(content, indent=2) + "\n")
    path.with_suffix(".new").replace(path)
    return path


def empty(folder: Path) -> Path:
    """Return the folder, without what an earlier call left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder
