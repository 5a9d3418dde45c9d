"""Train CIFAR-10 by the protocol ``cifar10_cpu``, and beside it by a hand-written loop.

::

    python benchmarks/cifar10.py FOLDER --backbone airbench24 --method ls

FOLDER is a data root with ``cifar-10-python.tar.gz`` or ``cifar-10-batches-py``. The loop is what
one would write for this recipe alone: the same network, images and steps, without records, resume
states, checks or deterministic mode; it is trained first, because calgrid changes how the process
keeps freed memory. ``--images 5120 --epochs 1`` compares the speeds in a minute; ``--only loop`` or
``--only calgrid`` trains once.
"""

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import pages
from calgrid.backbones import build_backbone
from calgrid.datasets import Prepared, open_prepared, prepare
from calgrid.jobs.network import read_images, training_images
from calgrid.jobs.train import build_trainer
from calgrid.parallel import keep_freed_memory
from calgrid.plan.plan import Plan
from calgrid.study.study import Study
from calgrid.training import environment
from calgrid.training.data import DeviceImages
from calgrid.training.interrupt import StopRequest
from calgrid.training.protocol import TrainingProtocol

HOME = Path(__file__).parents[1]
CPU = torch.device("cpu")
EVALUATED = 128
WARM_UP = 1024
ACCURACIES = ("val accuracy, %", "test accuracy, %")


@dataclasses.dataclass
class Trained:
    """A trained network, processor seconds in all and of validations, images of all steps."""

    model: nn.Module
    seconds: float
    validation: float
    images: int


def main() -> None:
    """Train, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data_root", type=Path, nargs="?", default=Path())
    parser.add_argument("--backbone", default="airbench24")
    parser.add_argument("--method", choices=["ce", "ls"], default="ce")
    parser.add_argument("--epochs", type=int, help="instead of those of the protocol")
    parser.add_argument("--images", type=int, help="train on the first training images only")
    parser.add_argument("--only", choices=["calgrid", "loop"])
    pages.run(parser, measured, page, __file__)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Conditions, and figures of the loop and of calgrid."""
    torch.set_num_threads(1)
    # a variant that changes nothing about the training would be trained as its base
    protocol, variants = "cifar10_cpu", {}
    if options.epochs is not None:
        protocol = "shorter"
        variants[protocol] = {"base": "cifar10_cpu", "epochs": options.epochs}
    grid = {
        "protocol": protocol,
        "datasets": ["cifar10"],
        "backbones": [options.backbone],
        "methods": [options.method],
        "seeds": [1],
    }
    study = Study({"study": "benchmark", "protocols": variants, "grids": [grid]}, HOME)
    (key,) = study.trained
    name = f"{options.backbone} {options.method}"
    name += f", {options.epochs} epochs" if options.epochs else ""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        prepare("cifar10", Path(folder, "data"), data_root=options.data_root)
        prepared = first_images(open_prepared(Path(folder, "data")), options.images)
        # the first steps also pay for what torch sets up once
        spec = Plan(study).train(key).spec
        short = {**spec, "protocol": {**spec["protocol"], "epochs": 1}}
        by_loop(first_images(prepared, WARM_UP), short, Path(folder))
        for by, trained in {"loop": by_loop, "calgrid": by_calgrid}.items():
            if options.only in (None, by):
                made = trained(prepared, spec, Path(folder))
                rate = made.images / (made.seconds - made.validation)
                shown = [accuracy(made.model, prepared, split) for split in ("val", "test")]
                found[by] = {
                    "core minutes": made.seconds / 60,
                    "images/s": rate,
                    **{key: 100 * each for key, each in zip(ACCURACIES, shown, strict=True)},
                }
    under = pages.machine(name, "bf16" if environment.computes_bf16(CPU) else "float32")
    if options.images:
        speeds = {by: row["images/s"] for by, row in found.items()}
        return {"conditions": under, "speeds": {f"{name}, {options.images:,} images": speeds}}
    return {"conditions": under, "trained": {f"{name}, {by}": row for by, row in found.items()}}


def page(figures: dict[str, Any]) -> str:
    """The page of the figures."""
    columns = {"core minutes": ".2f", "images/s": ".0f", **dict.fromkeys(ACCURACIES, ".2f")}
    speeds = {"loop": ",.0f", "calgrid": ",.0f"}
    return f"""# CIFAR-10 on one core

Training by the protocol `cifar10_cpu`, and by a hand-written loop with the same network, images and
steps: one seed, ten epochs, one thread. 45,000 training images, 5,000 validation images after each
epoch, one view.

    python benchmarks/cifar10.py FOLDER --backbone airbench24 --method ce

{pages.conditions(figures)}

Core minutes are processor time; images a second leave validation out.

{pages.table("network, method, by", figures.get("trained", {}), columns)}

Test accuracies differ by at most 0.4 points, as those of seeds do. Fourteen epochs of `airbench64`
have [93 %](../docs/cifar10_bank.md).

One epoch (`--images 8192 --epochs 1`; 4,096 images for `resnet20`, 1,024 for `resnet18`):

{pages.table("images/s", figures.get("speeds", {}), speeds)}

- Here freed memory is kept, as in jobs. In older measurements without it calgrid had 0.99 to 1.00
  times the images a second of the loop.
- Views, in float32 on AMD EPYC (Zen 3, AVX2), `ce` on `airbench24`: 89.30 % and an NLL of 0.332
  with one, 90.36 % and 0.306 with `test_views: mirror`, 90.36 % and 0.300 with `mirror_translate`.
- **93 % in 40 core minutes needs bf16**: without it ten epochs of `airbench64` take 79 (95 images a
  second).
- `ce` is underconfident by this recipe: mean confidence 86.3 %, accuracy 89.3 % (loop 86.6 and
  89.2 %).
"""


def first_images(prepared: Prepared, count: int | None) -> Prepared:
    """Prepared data with the first training images only."""
    train = prepared.splits["train"]
    fewer = dataclasses.replace(
        train, images=train.images[:count], labels=train.labels[:count], rows=None
    )
    return dataclasses.replace(prepared, splits={**prepared.splits, "train": fewer})


def by_calgrid(prepared: Prepared, spec: dict, folder: Path) -> Trained:
    """Train by the trainer of jobs."""
    keep_freed_memory()
    environment.prepare(CPU, threads=1)
    begin = time.process_time()
    trainer = build_trainer(spec, prepared, None, CPU, folder, 1e9)
    validation, validate = 0.0, trainer._validation_logits

    def timed() -> torch.Tensor:
        nonlocal validation
        start = time.process_time()
        logits = validate()
        validation += time.process_time() - start
        return logits

    trainer._validation_logits = timed
    with StopRequest() as stop:
        trainer.run(stop)
    seen = trainer.steps * trainer.protocol.batch_size * trainer.protocol.epochs
    return Trained(trainer.model, time.process_time() - begin, validation, seen)


def by_loop(prepared: Prepared, spec: dict, folder: Path) -> Trained:
    """Train by a hand-written loop."""
    begin, validation = time.process_time(), 0.0
    torch.set_deterministic_debug_mode("default")
    torch.manual_seed(1)
    protocol = TrainingProtocol.model_validate(spec["protocol"])
    smoothing = spec["loss"]["options"].get("alpha", 0.0)
    size, epochs, optimizer = protocol.batch_size, protocol.epochs, protocol.optimizer
    autocast = environment.computes_bf16(CPU)
    train, _ = training_images(prepared, protocol, CPU)
    model = build_backbone(spec["key"]["backbone"], 10).to(memory_format=torch.channels_last)
    read_images(model, train)
    biases = [m.bias for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    apart = {id(bias) for bias in biases}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in apart]
    lr, decay = optimizer.lr, optimizer.weight_decay
    groups = [
        {"params": others, "rate": lr, "weight_decay": decay},
        {"params": biases, "rate": lr * 64, "weight_decay": decay / 64},
    ]
    sgd = torch.optim.SGD(groups, lr=lr, momentum=optimizer.momentum, nesterov=True, foreach=True)
    weights = [*others, *biases, *(b for b in model.buffers() if b.is_floating_point())]
    weights = [each.detach() for each in weights]
    mean = [each.clone() for each in weights]
    pixels, labels = torch.tensor(prepared.splits["train"].images), train.labels
    mirrored = torch.rand(len(pixels), 1, 1, 1) < 0.5
    pixels = torch.where(mirrored, pixels.flip(-1), pixels)
    padded = F.pad(pixels.float(), (2,) * 4, mode="reflect").to(torch.uint8)
    steps = len(pixels) // size
    total, done, side = steps * epochs, 0, torch.arange(32)
    for epoch in range(epochs):
        model.train()
        for index in torch.randperm(len(pixels)).split(size)[:steps]:
            offsets = torch.randint(0, 5, (2, size, 1))
            rows, columns = side + offsets[0], (side.flip(0) if epoch % 2 else side) + offsets[1]
            batch = padded[index]
            batch = batch[
                torch.arange(size).view(-1, 1, 1), :, rows.unsqueeze(2), columns.unsqueeze(1)
            ]
            progress = done / total
            share = (
                0.2 + 0.8 * progress / 0.23
                if progress < 0.23
                else 1 - 0.93 * (progress - 0.23) / 0.77
            )
            for group in sgd.param_groups:
                group["lr"] = group["rate"] * share
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                logits = model(train.normalise(batch.permute(0, 3, 1, 2)))
            loss = F.cross_entropy(logits.float(), labels[index], label_smoothing=smoothing)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            done += 1
            with torch.no_grad():
                if done % 5 == 0:
                    weight = 1 - 0.95**5 * (done / total) ** 3
                    torch._foreach_lerp_(mean, weights, weight)
                if done % 5 == 0 or done == total:
                    torch._foreach_copy_(weights, mean)
        start = time.process_time()
        accuracy(model, prepared, "val")
        validation += time.process_time() - start
    return Trained(model, time.process_time() - begin, validation, total * size)


@torch.no_grad()
def accuracy(model: nn.Module, prepared: Prepared, name: str) -> float:
    """Accuracy in evaluation mode, in the precision of the training."""
    split = prepared.splits[name]
    images = DeviceImages(split.images, split.labels, *prepared.normalisation, CPU, True)
    hits = 0
    model.eval()
    for batch in images.batches(EVALUATED):
        with torch.autocast("cpu", torch.bfloat16, enabled=environment.computes_bf16(CPU)):
            hits += int((model(batch.images).argmax(1) == batch.labels).sum())
    return hits / len(split.labels)


if __name__ == "__main__":
    main()
