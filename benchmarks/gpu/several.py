"""Is a training on several GPUs that of one, the same after an interruption, and how fast is it?

::

    python benchmarks/gpu/several.py --pictures FOLDER --out OUT
"""

import json
import os
import subprocess
from typing import Any

import pyarrow.parquet as pq
import torch
from correctness import LOSS_TOLERANCE, PLAIN, resumed
from kit import Runs, command, empty, environment, keep, parser

from calgrid.datasets import open_prepared
from calgrid.storage.layout import RunKey
from calgrid.storage.records import HISTORY, TRAIN

BACKBONE = "resnet18"
#: a term over the batch, and a state with trained parameters
METHODS = ("mdca", "fedlas_ls")


def main() -> None:
    """Train on one, two, four and eight GPUs, as there are; exit code 1 where a check fails."""
    options = parser(__doc__, 9).parse_args()
    empty(options.work)
    most = 2 if options.rehearse else torch.cuda.device_count()
    counts = [count for count in (1, 2, 4, 8) if count <= most]
    if len(counts) < 2:
        raise SystemExit("This machine has one GPU or none: several.py needs two or more.")
    backbone = BACKBONE
    if not torch.cuda.is_available():  # where batch normalisation cannot be shared
        backbone = "plain_network"
        own = options.work.absolute() / "own"
        made = command(["new", "backbone", backbone, "--into", own])
        subprocess.run(made, check=True, env=environment(), capture_output=True)
        os.environ["CALGRID_PLUGINS"] = str(own)
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
        {"protocol": name, "backbones": [backbone], "methods": list(METHODS), "seeds": [1]}
        for name in protocols
    ]
    runs, again = (Runs(options, protocols, grids, copy=copy) for copy in ("", "_again"))
    for each in (runs, again):
        each.prepare()
    found: dict[str, dict[str, Any]] = {}
    for method in METHODS:
        keys = {count: runs.key(f"exact_{count}", backbone, method) for count in counts}
        found[f"resumed_{method}"] = resumed(runs, again, keys[counts[-1]])
        for count, key in keys.items():
            runs.calgrid(*runs.train_command(key))
            difference = abs(loss(runs, key) / loss(runs, keys[1]) - 1)
            ok = difference <= LOSS_TOLERANCE["fp32"]
            found[f"{method}_{count}"] = {"ok": ok, "loss_difference": difference}
    for count in counts:
        key = runs.key(f"fast_{count}", backbone, METHODS[0])
        runs.calgrid(*runs.train_command(key))
        speed = images_per_second(runs, key, count)
        found[f"speed_{count}"] = {"ok": True, "images_per_second": speed}
    keep(options, "several", found)
    for name, each in found.items():
        print(f"| {name} | {each} |")
    raise SystemExit(not all(each["ok"] for each in found.values()))


def loss(runs: Runs, key: RunKey) -> float:
    """Mean training loss of the first epoch."""
    return pq.read_table(runs.trained(key) / HISTORY)["train_loss"][0].as_py()


def images_per_second(runs: Runs, key: RunKey, count: int) -> float:
    """Training images per second, with validation after each epoch."""
    record = json.loads((runs.trained(key) / TRAIN).read_text())
    data = open_prepared(runs.plan.data(runs.dataset).folder)
    images = len(data.splits["train"]) * record["epochs"]
    return images * count / record["seconds"]  # of all GPUs


if __name__ == "__main__":
    main()
