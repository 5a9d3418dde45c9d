"""What the scripts of this folder share: a study, runs by ``python -m calgrid``, the machine's
description.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch

from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study
from calgrid.storage.layout import MANIFEST, RunKey
from calgrid.storage.records import MODEL, write_record

HOME = Path(__file__).resolve().parents[2]


def parser(description: str, minutes: float) -> argparse.ArgumentParser:
    """Options that all scripts take."""
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    made.add_argument("--out", type=Path, required=True, help="folder for what is measured")
    made.add_argument(
        "--work", type=Path, default=Path("gpu_work"), help="folder for data and runs (gpu_work)"
    )
    made.add_argument(
        "--pictures", type=Path, help="folder with train.parquet and test.parquet; else the digits"
    )
    made.add_argument("--minutes", type=float, default=minutes, help="stop in time for this limit")
    made.add_argument(
        "--rehearse", action="store_true", help="tiny sizes, on the CPU where there is no GPU"
    )
    return made


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
    options : parsed; see :func:`parser`.
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
        self.data_root = []
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
            self.data_root = ["--data-root", options.pictures]
        self.plan = Plan(Study(study, HOME))
        self.plan_file = self.results / "plan.json"
        self.results.mkdir(parents=True, exist_ok=True)
        write_record(self.plan_file, self.plan.file())

    def prepare(self) -> None:
        """Prepare the data set."""
        out = self.plan.data(self.dataset).folder
        self.calgrid("data", "--plan", self.plan_file, "--out", out, *self.data_root)

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
        first = self.plan.study.trained[key].first_stage
        stage = [] if first is None else ["--first-stage", self.trained(first) / MODEL]
        return ["train", *self._common(self.trained(key), on), *stage]

    def predict_command(
        self, key: RunKey, on: str | None = None, model: Path | None = None
    ) -> list[Any]:
        """Arguments that predict val and test, by default with the model of the run."""
        model = model or self.trained(key) / MODEL
        return ["predict", *self._common(self.predicted(key), on), "--model", model]

    def _common(self, out: Path, on: str | None) -> list[Any]:
        data = Path(self.plan.data(self.dataset).folder) / MANIFEST
        return [
            *("--plan", self.plan_file),
            *("--out", out),
            *("--data", data),
            *("--device", on or device()),
        ]


def command(arguments: Iterable[Any]) -> list[str]:
    """Command line of calgrid."""
    return [sys.executable, "-m", "calgrid", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Environment variables with which commands run the code of this checkout."""
    paths = os.pathsep.join(filter(None, [str(HOME / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": paths}


def keep(options: argparse.Namespace, name: str, found: dict[str, Any]) -> None:
    """Write what was found beside its conditions."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{name}.json"
    path.write_text(
        json.dumps({"conditions": conditions(), "rehearsal": options.rehearse, **found}, indent=2)
        + "\n"
    )
    print(f"\n{path}", flush=True)


def empty(folder: Path) -> Path:
    """Return the folder, without what an earlier call left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder
