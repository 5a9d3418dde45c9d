"""Validation accuracy of ``ce`` under each candidate of config/studies/recipe.yaml; the choice."""

import argparse
import functools
import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
from kit import HOME, Figures, Piece, Runs, Wave

from calgrid.storage.records import HISTORY, TRAIN, RunKey
from calgrid.study.yaml_files import read_configuration

STUDY = HOME / "config" / "studies" / "recipe.yaml"


def waves(options: argparse.Namespace) -> list[Wave]:
    """Pieces of this part."""
    names = candidates()
    trainings = [Piece(name, 150, functools.partial(trained, name)) for name in names]
    return [
        (1, [Piece("data", 120, prepared)]),
        (1, trainings),
        (1, [Piece("choice", 30, choice)]),
    ]


def candidates() -> list[str]:
    """Protocols of the study, the default first."""
    return [grid["protocol"] for grid in read_configuration(STUDY)["grids"]]


def protocols(options: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """Protocols as the study has them; in a rehearsal shorter ones, with names of their own."""
    own: dict[str, Any] = read_configuration(STUDY)["protocols"]
    if not options.rehearse:
        return own
    found = {}
    for name in names:
        changes = own.get(name, {})
        crops = {"crop_padding": 1, "flip": False} if options.pictures is None else {}
        short = {"epochs": 3, "second_stage": {"epochs": 1}, "batch_size": 32}
        augmentation = {**changes.get("augmentation", {}), **crops}
        found[f"short_{name}"] = {
            "base": "evening",
            **changes,
            **short,
            "augmentation": augmentation,
        }
    return found


def runs(options: argparse.Namespace, part: str, names: list[str], **grid: Any) -> Runs:
    """Runs of a part under some protocols of the study."""
    backbone = "resnet8" if options.rehearse else "resnet18"
    grids = [{"protocol": named(options, name), "backbones": [backbone], **grid} for name in names]
    subset = 500 if options.rehearse else None
    return Runs(options, protocols(options, names), grids, subset, f"_{part}")


def named(options: argparse.Namespace, name: str) -> str:
    """Name of a protocol in a run or a rehearsal."""
    return f"short_{name}" if options.rehearse else name


def key_of(options: argparse.Namespace, made: Runs, name: str, method: str, seed: int) -> RunKey:
    """Key of a run under a protocol of the study."""
    backbone = "resnet8" if options.rehearse else "resnet18"
    return made.key(named(options, name), backbone, method, seed)


def candidate_runs(options: argparse.Namespace) -> Runs:
    """A run of ``ce`` under each candidate."""
    return runs(options, "recipe", candidates(), methods=["ce"], seeds=[1])


def prepared(options: argparse.Namespace) -> Iterator[Figures]:
    """Prepare the data."""
    candidate_runs(options).prepare()
    yield {"ok": True}


def trained(name: str, options: argparse.Namespace) -> Iterator[Figures]:
    """Train under a candidate; accuracies of the last epoch."""
    made = candidate_runs(options)
    key = key_of(options, made, name, "ce", 1)
    made.calgrid(*made.train_command(key))
    yield last_epoch(made, key)


def last_epoch(made: Runs, key: RunKey) -> Figures:
    """Accuracies of the last epoch of a training, and its seconds."""
    history = pq.read_table(made.trained(key) / HISTORY).to_pylist()[-1]
    record = json.loads((made.trained(key) / TRAIN).read_text())
    accuracies = {f"{split}_accuracy": history[f"{split}_accuracy"] for split in ("train", "val")}
    return {**accuracies, "training_s": record["seconds"]}


def choice(options: argparse.Namespace) -> Iterator[Figures]:
    """The candidate of the highest validation accuracy, the first of equal ones."""
    made, found = candidate_runs(options), {}
    for name in candidates():
        key = key_of(options, made, name, "ce", 1)
        if (made.trained(key) / TRAIN).exists():
            found[name] = last_epoch(made, key)["val_accuracy"]
            yield {"val_accuracy": found}
    lacking = [name for name in candidates() if name not in found]
    if lacking:
        yield {"ok": False, "says": f"no choice without {', '.join(lacking)}"}
    else:
        yield {"chosen": max(found, key=found.__getitem__)}
