"""A small real study: the embedded digits, a protocol of a few epochs, real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

from calgrid.jobs.predict import predict
from calgrid.jobs.train import train
from calgrid.storage.layout import RunKey

HOME = Path(__file__).parents[2]
FAMILIES = ("digits_c", "ood/photos")


def small_study(**changes):
    return {
        "study": "small",
        "protocols": {
            "quick": {
                "base": "digits",
                "epochs": 3,
                "schedule": {"milestones": [2]},
                "checkpoints": ["best", "last"],
                "second_stage": {"epochs": 2},
            }
        },
        "grids": [
            {
                "protocol": "quick",
                "datasets": ["digits"],
                "backbones": ["resnet8"],
                "methods": ["ce", "fedlas_ls", "tst"],
                "seeds": [1],
                "calibrators": ["none", "ts", "iso", "smart"],
                "shifts": ["digits_c", "ood/photos"],
            }
        ],
        "statistics": {"bootstrap": 50},
        **changes,
    }


def key(method, seed=1):
    return RunKey("quick", "digits", "resnet8", method, seed)


CE = key("ce")


def trained(plan, data, out, run=CE, **options):
    """Train a run; returns the path of its model."""
    train(plan.train(run), data / run.dataset, out, device="cpu", **options)
    return out / "model.safetensors"


def predicted(plan, data, out, run=CE, families=(), spec=None):
    """Predict a trained run; returns whether there was something to do."""
    folders = {family: data / family.removeprefix("ood/") for family in families}
    spec = spec or plan.predict(run)
    return predict(
        spec, out / "model.safetensors", data / run.dataset, out, families=folders, device="cpu"
    )


def values(rows):
    """Values of rows of metrics by their metric."""
    return dict(zip(rows["metric"], rows["value"], strict=True))


def command(*arguments, **environment):
    """Start ``calgrid`` as a real process with one thread."""
    return subprocess.Popen(
        [sys.executable, "-m", "calgrid", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CALGRID_DEVICE": "cpu", **environment},
    )


def train_arguments(plan, data, out, method="ce", **options):
    spec = out.parent / f"{out.name}-spec.json"
    spec.parent.mkdir(parents=True, exist_ok=True)
    spec.write_text(json.dumps(plan.train(key(method))))
    extra = [
        part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    return ["train", "--spec", spec, "--data", data / "digits", "--out", out, *extra]
