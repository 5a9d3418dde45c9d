"""``resnet18`` under a protocol: as many methods and seeds as fit; logits and histories kept."""

import argparse
import fcntl
import functools
import tarfile
from collections.abc import Iterator

import numpy as np
import pyarrow.parquet as pq
from kit import Figures, Piece, Runs, Wave
from recipe import key_of, last_epoch, runs

from calgrid.storage.records import HISTORY, PREDICT, TRAIN, logits_file

#: `ce` first, from which `maccal` starts
METHODS = ("ce", "ls", "mbls", "fedlas_ls", "maccal", "fl3", "mixup")
SEEDS = (1, 2, 3)
AT_ONCE = 3


def waves(options: argparse.Namespace) -> list[Wave]:
    """Pieces of this part: all methods with one seed, then with the next."""
    made: list[Wave] = [(1, [Piece("data", 120, prepared)])]
    methods, seeds = (("ce", "maccal"), (1,)) if options.rehearse else (METHODS, SEEDS)
    for seed in seeds:
        first, *others = (
            Piece(f"{method}, seed {seed}", 240, functools.partial(run, method, seed))
            for method in methods
        )
        made += [(1, [first]), (AT_ONCE, others)]
    return made


def all_runs(options: argparse.Namespace) -> Runs:
    """Runs of all methods and seeds."""
    return runs(options, "grid", [options.protocol], methods=list(METHODS), seeds=list(SEEDS))


def prepared(options: argparse.Namespace) -> Iterator[Figures]:
    """Prepare the data."""
    all_runs(options).prepare()
    yield {"ok": True}


def run(method: str, seed: int, options: argparse.Namespace) -> Iterator[Figures]:
    """Train, predict, and add logits, history and records to ``runs.tar``."""
    made = all_runs(options)
    key = key_of(options, made, options.protocol, method, seed)
    made.calgrid(*made.train_command(key))
    yield last_epoch(made, key)
    made.calgrid(*made.predict_command(key))
    test = pq.read_table(made.predicted(key) / logits_file("last", "test"))
    right = np.array(test["logits"].to_pylist()).argmax(1) == test["label"].to_numpy()
    yield {"test_accuracy": float(right.mean())}
    with (options.work / "runs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with tarfile.open(options.out / "runs.tar", "a") as archive:
            for name in (TRAIN, HISTORY):
                archive.add(made.trained(key) / name, f"{key.path}/{name}")
            for name in (PREDICT, *(logits_file("last", split) for split in ("val", "test"))):
                archive.add(made.predicted(key) / name, f"{key.path}/{name}")
