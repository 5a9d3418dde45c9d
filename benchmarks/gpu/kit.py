"""What the scripts of this folder share: a configuration, runs by ``python -m calgrid``, the
machine's description.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

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
    """A study whose runs are made one by one by the command line.

    Parameters
    ----------
    options : parsed; see :func:`parser`.
    protocols : variants of protocols, as in a configuration.
    grids : as in a configuration, without data set.
    subset : number of training pictures; all if None.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        protocols: dict[str, Any],
        grids: list[dict[str, Any]],
        subset: int | None = None,
    ) -> None:
        self.folder = options.work
        self.folder.mkdir(parents=True, exist_ok=True)
        self.unit = "digits" if options.pictures is None else "pictures"
        own = {
            "base": "image_parquet",
            "train": "train.parquet",
            "test": "test.parquet",
            "like": "cifar10",
            **({} if subset is None else {"subset": subset}),
        }
        pictures = (
            {}
            if options.pictures is None
            else {"data_root": str(options.pictures), "datasets": {"pictures": own}}
        )
        self.config = self.folder / "config.yaml"
        study = {
            "study": "gpu",
            **pictures,
            "protocols": protocols,
            "grids": [{**grid, "datasets": [self.unit]} for grid in grids],
        }
        self.config.write_text(json.dumps(study))
        self.data = self.folder / "data" / self.unit
        spec = (
            []
            if options.pictures is None
            else ["--spec", f"{self.config}#pictures", "--data-root", options.pictures]
        )
        self.calgrid("data", "--unit", self.unit, "--out", self.data, *spec)

    def calgrid(self, *arguments: Any) -> None:
        """Run a command; what it says goes to a log, which is shown where it fails."""
        command = [sys.executable, "-m", "calgrid", *map(str, arguments)]
        paths = os.pathsep.join(filter(None, [str(HOME / "src"), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            command,
            check=False,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")

    def out(self, name: str, copy: str = "") -> Path:
        """Folder of a run."""
        return self.folder / f"runs{copy}" / name

    def name(self, protocol: str, backbone: str, method: str, seed: int) -> str:
        """Name of a run in the configuration."""
        return f"{protocol}/{self.unit}/{backbone}/{method}/seed{seed}"

    def train_command(
        self, name: str, copy: str = "", on: str | None = None, first: str = ""
    ) -> list[Any]:
        """Arguments that train a run."""
        spec, out = f"{self.config}#{name}", self.out(name, copy)
        stage = ["--first-stage", self.out(first) / "model.safetensors"] if first else []
        return [
            "train",
            "--spec",
            spec,
            "--data",
            self.data,
            "--out",
            out,
            "--device",
            on or device(),
            *stage,
        ]

    def predict_command(
        self, name: str, on: str | None = None, model: Path | None = None, copy: str = ""
    ) -> list[Any]:
        """Arguments that predict val and test."""
        spec, out = f"{self.config}#{name}", self.out(name, copy)
        model = model or out / "model.safetensors"
        return [
            "predict",
            "--spec",
            spec,
            "--model",
            model,
            "--data",
            self.data,
            "--out",
            out,
            "--device",
            on or device(),
        ]


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
