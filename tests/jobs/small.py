"""A small real study: the embedded digits, a protocol of a few epochs, real processes."""

import os
import subprocess
import sys
from pathlib import Path

from calgrid.jobs import calibrate as calibrate_job
from calgrid.jobs import import_logits, published
from calgrid.jobs import predict as predict_job
from calgrid.jobs import train as train_job
from calgrid.storage.publish import Call
from calgrid.storage.records import MANIFEST, PREDICT, RunKey, write_record

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


def train(spec, data, out, first_stage=None):
    """Train by a specification; returns whether there was something to do, as the next ones do."""
    models = [] if first_stage is None else [first_stage]
    return train_job.run(Call(spec, out, (data / MANIFEST, *models), device="cpu"))


def take_weights(spec, data, out, root=""):
    return published.run(Call(spec, out, (data / MANIFEST,), root=str(root)))


def predict(spec, model, data, out, shifts=()):
    """``shifts`` are the folders of the images of the shift families of the specification."""
    images = [folder / MANIFEST for folder in shifts]
    return predict_job.run(Call(spec, out, (model, data / MANIFEST, *images), device="cpu"))


def calibrate(spec, logits, out, threads=1):
    return calibrate_job.run(Call(spec, out, (logits / PREDICT,), threads=threads))


def import_run(spec, files, out):
    return import_logits.run(Call(spec, out, tuple(files)))


def trained(plan, data, out, run=CE, **options):
    """Train a run in ``out/train``; returns the path of its model."""
    train(plan.train(run).spec, data / run.dataset, out / "train", **options)
    return out / "train/model.safetensors"


def predicted(plan, data, out, run=CE, families=(), spec=None, job="predict"):
    """Predict the run in ``out/train``; returns whether there was something to do."""
    spec = dict(spec or plan.predict(run).spec)
    spec["shifts"] = {name: spec["shifts"][name] for name in families}
    folders = [data / family.removeprefix("ood/") for family in families]
    model = out / "train/model.safetensors"
    return predict(spec, model, data / run.dataset, out / job, folders)


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
    """Arguments of ``calgrid job`` for a plan of one job, which makes the folder ``out``."""
    path = out.parent / f"{out.name}-plan.json"
    reads = [data / "digits/manifest.json"]
    write_plan(path, {str(out): plan.train(key(method)).spec}, reads=reads)
    extra = [
        part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    return ["job", "train", "--plan", path, "--out", out, *extra]


def write_plan(path, specifications, module="calgrid.jobs.train", reads=()):
    """Write a plan of some jobs, as the workflow does before its jobs; without code and files."""
    told = {"code": "", "files": {}, "root": "", "plugins": "", "in_processes": False}
    told |= {"module": module, "reads": list(map(str, reads))}
    inputs = dict.fromkeys(specifications, told)
    further = {"inputs": inputs, "code": {"": {}}, "sources": {}, "rows": {}}
    write_record(path, {"jobs": specifications, **further})
