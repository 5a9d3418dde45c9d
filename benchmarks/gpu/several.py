"""Is a training on several GPUs that of one, the same after an interruption, and how fast is it?"""

import argparse
import functools
import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import torch
from checks import LOSS_TOLERANCE, PLAIN, resumed
from kit import Figures, Piece, Runs, Wave, command, empty, environment

from calgrid import forkserver
from calgrid.storage.records import HISTORY, TRAIN, RunKey

BACKBONE = "resnet18"
#: a term over the batch, and a state with trained parameters
METHODS = ("mdca", "fedlas_ls")


def waves(options: argparse.Namespace) -> list[Wave]:
    """Pieces of this part, one after the other."""
    most = 2 if options.rehearse else torch.cuda.device_count()
    counts = [count for count in (1, 2, 4, 8) if count <= most]
    lacks = "" if len(counts) > 1 else "two GPUs are needed"
    made = [Piece("data", 120, functools.partial(prepared, counts), lacks)]
    for method in METHODS[:1] if options.rehearse else METHODS:
        for name, measure in {"interrupted": interrupted, "against one GPU": equal}.items():
            call = functools.partial(measure, counts, method)
            made.append(Piece(f"{name}: {method}", 120, call, lacks))
    for count in counts:
        made.append(Piece(f"speed of {count}", 120, functools.partial(speed, counts, count), lacks))
    return [(1, made)]


def copies(counts: list[int], options: argparse.Namespace) -> tuple[Runs, Runs]:
    """The same runs twice."""
    if not torch.cuda.is_available():
        os.environ["CALGRID_PLUGINS"] = str(options.work / "own")
        os.environ.pop(forkserver.ADDRESS, None)  # the server does not know them
    protocols: dict[str, Any] = {}
    for count in counts:
        protocols[f"exact_{count}"] = {**PLAIN, "epochs": 2, "precision": "fp32", "gpus": count}
        fast = {"base": "evening", "epochs": 3, "batch_size": 1024, "gpus": count}
        protocols[f"fast_{count}"] = fast
    if options.pictures is None:  # 8x8 pixels
        for protocol in protocols.values():
            protocol["augmentation"] = {"crop_padding": 0, "flip": False}
            protocol["batch_size"] = 20
    grids = [
        {"protocol": name, "backbones": [backbone()], "methods": list(METHODS), "seeds": [1]}
        for name in protocols
    ]
    subset = 500 if options.rehearse else None
    first, second = (
        Runs(options, protocols, grids, subset, copy) for copy in ("_several", "_several_again")
    )
    return first, second


def backbone() -> str:
    """A network; on the CPU one without batch normalisation, which processes cannot share there."""
    return BACKBONE if torch.cuda.is_available() else "plain_network"


def prepared(counts: list[int], options: argparse.Namespace) -> Iterator[Figures]:
    """Prepare data for both copies of the runs."""
    if not torch.cuda.is_available():
        own = empty(options.work / "own")
        made = command(["new", "backbone", backbone(), "--into", own])
        subprocess.run(made, check=True, env=environment(), capture_output=True)
    for copy in ("_several", "_several_again"):
        empty(options.work / f"results{copy}")
    for runs in copies(counts, options):
        runs.prepare()
    yield {"ok": True}


def interrupted(counts: list[int], method: str, options: argparse.Namespace) -> Iterator[Figures]:
    """Train on all GPUs once without and once with an interruption."""
    runs, again = copies(counts, options)
    yield resumed(runs, again, runs.key(f"exact_{counts[-1]}", backbone(), method))


def equal(counts: list[int], method: str, options: argparse.Namespace) -> Iterator[Figures]:
    """Compare the first epoch on several GPUs with that on one."""
    runs, _ = copies(counts, options)
    keys = {count: runs.key(f"exact_{count}", backbone(), method) for count in counts}
    differences = {}
    for count, key in keys.items():
        runs.calgrid(*runs.train_command(key))
        differences[count] = abs(loss(runs, key) / loss(runs, keys[1]) - 1)
        ok = max(differences.values()) <= LOSS_TOLERANCE["fp32"]
        yield {"ok": ok, "loss_difference": differences}


def speed(counts: list[int], count: int, options: argparse.Namespace) -> Iterator[Figures]:
    """Images a second on some GPUs."""
    runs, _ = copies(counts, options)
    key = runs.key(f"fast_{count}", backbone(), METHODS[0])
    runs.calgrid(*runs.train_command(key))
    yield {"images_s": images_per_second(runs, key, count)}


def loss(runs: Runs, key: RunKey) -> float:
    """Mean training loss of the first epoch."""
    return pq.read_table(runs.trained(key) / HISTORY)["train_loss"][0].as_py()


def images_per_second(runs: Runs, key: RunKey, count: int) -> float:
    """Training images per second, with validation after each epoch."""
    record = json.loads((runs.trained(key) / TRAIN).read_text())
    images = len(runs.data().splits["train"]) * record["epochs"]
    return images * count / record["seconds"]  # of all GPUs
