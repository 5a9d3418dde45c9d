"""Images a second: trainings of calgrid under changes of its protocol, loops by hand, several
trainings at once, a whole training and a prediction.

Random 32x32 images, batches of 256, crops and flips, SGD. Each figure of steps is the best of the
timed epochs after one that warms up. The peak is that of a large matrix product on the same device
in the same precision (fp32: TF32).
"""

import argparse
import functools
import json
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kit import HOME, Figures, Piece, Runs, Wave, device, empty
from PIL import Image
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision import transforms

from calgrid import forkserver
from calgrid.backbones import build_backbone
from calgrid.datasets import ImageSplit, Prepared
from calgrid.jobs.train import build_trainer
from calgrid.plan.plan import Plan
from calgrid.storage.records import PREDICT, TRAIN, RunKey
from calgrid.study.study import Study
from calgrid.training.environment import prepare
from calgrid.training.interrupt import StopRequest
from calgrid.training.protocol import TrainingProtocol
from calgrid.training.trainer import Trainer

CLASSES, SIDE, BATCH, PADDING = 10, 32, 256, 4
MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
#: operations of a training step over those of its forward pass: a backward pass has twice as many
STEP = 3
#: a training of calgrid -> changes of the protocol `evening`
CHANGES: dict[str, dict[str, Any]] = {
    "as_graph": {"cuda_graph": True},
    "calgrid": {"cuda_graph": False},
    "compiled": {"compile": True},
}
AT_ONCE = (2, 4)


def waves(options: argparse.Namespace) -> list[Wave]:
    """Pieces of this part, most telling figures first; nothing runs beside another."""
    loops: dict[str, Callable[..., Figures]] = {
        **{name: functools.partial(calgrid, each) for name, each in CHANGES.items()},
        "by_hand": by_hand,
        "by_hand_compiled": functools.partial(by_hand, compiled=True),
        "usual": usual,
    }
    lacks = {}
    for name, changes in CHANGES.items():
        unknown = changes.keys() - TrainingProtocol.model_fields.keys()
        lacks[name] = f"protocols have no key {', '.join(sorted(unknown))}" if unknown else ""
    if options.rehearse:  # a minute on a core
        lacks["compiled"] = lacks["by_hand_compiled"] = "left out of a rehearsal"
    backbones = ("resnet8",) if options.rehearse else ("resnet18", "resnet50", "resnet110")
    first, usual_precision = backbones[0], precision_of(options)

    def pieces(backbone: str, precision: str, names: list[str]) -> list[Piece]:
        made = []
        for name in names:
            measure = functools.partial(row, name, loops[name], backbone, precision)
            title = f"{backbone}, {precision}: {name}"
            made.append(Piece(title, 90, measure, lacks.get(name, "")))
        return made

    ours = [*CHANGES]
    made = [
        *pieces(first, usual_precision, [*loops]),
        Piece("training and prediction", 150, whole),
        *(
            Piece(f"{n} at once", 90, functools.partial(at_once, n, first))
            for n in (AT_ONCE[:1] if options.rehearse else AT_ONCE)
        ),
    ]
    for backbone in backbones[1:]:
        made += pieces(backbone, "bf16", [*ours, "by_hand"])
    if not options.rehearse:
        for backbone in ("airbench64", "resnet9", "resnet20"):
            made += pieces(backbone, "bf16", ours)
        made += pieces(first, "fp32", [*ours, "by_hand", "usual"])
    return [(1, made)]


def row(
    name: str,
    loop: Callable[..., Figures],
    backbone: str,
    precision: str,
    options: argparse.Namespace,
) -> Iterator[Figures]:
    """Figures of one loop."""
    about = {"loop": name, "backbone": backbone, "precision": precision}
    figures = about | loop(backbone, precision, *sizes(options))
    yield figures
    top = peak(torch.device(device()), precision, 512 if options.rehearse else 8192)
    operations = STEP * forward_operations(backbone) * figures["images_s"]
    yield {"peak_flops": top, "peak_share": operations / top}


def forward_operations(backbone: str) -> int:
    """Floating-point operations of the forward pass of one image."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        build_backbone(backbone, CLASSES).eval()(torch.empty(1, 3, SIDE, SIDE))
    return counter.get_total_flops()


def sizes(options: argparse.Namespace) -> tuple[int, int]:
    """Training images and timed epochs."""
    return (BATCH, 1) if options.rehearse else (20480, 3)


def precision_of(options: argparse.Namespace) -> str:
    """Precision of most loops; CPUs, which rehearse, compute bf16 slowly."""
    return "fp32" if options.rehearse else "bf16"


def peak(where: torch.device, precision: str, side: int) -> float:
    """Operations a second of a product of square matrices."""
    torch.backends.cuda.matmul.allow_tf32 = True
    matrix = torch.randn(
        side, side, device=where, dtype=torch.bfloat16 if precision == "bf16" else torch.float32
    )
    best = float("inf")
    for _ in range(5):
        wait(where)
        begin = time.perf_counter()
        for _ in range(5):
            matrix @ matrix
        wait(where)
        best = min(best, (time.perf_counter() - begin) / 5)
    return 2 * side**3 / best


class TimedTrainer(Trainer):
    """A trainer that knows the seconds of the steps of each epoch, and of what follows them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.steps_took: list[float] = []
        self.rest_took: list[float] = []
        self._begin = time.perf_counter()

    def _finish_epoch(self) -> dict[str, float]:
        wait(self.device)
        between = time.perf_counter()
        self.steps_took.append(between - self._begin)
        shown = super()._finish_epoch()
        wait(self.device)
        self._begin = time.perf_counter()
        self.rest_took.append(self._begin - between)
        return shown


def calgrid(
    changes: dict[str, Any], backbone: str, precision: str, size: int, epochs: int
) -> Figures:
    """A training of calgrid on random images: steps, and the validation of a tenth as many."""
    where = torch.device(device())
    protocol = {"base": "evening", "epochs": epochs + 1, "precision": precision, **changes}
    protocol["schedule"] = {"warmup_epochs": 0}
    grid = {
        "protocol": "timed",
        "datasets": ["cifar10"],
        "backbones": [backbone],
        "methods": ["ce"],
        "seeds": [1],
    }
    study = {"study": "speed", "data_root": ".", "protocols": {"timed": protocol}, "grids": [grid]}
    spec = Plan(Study(study, HOME)).train(RunKey("timed", "cifar10", backbone, "ce", 1)).spec
    prepare(where, 1, deterministic=False)
    splits = {}
    for name, count in {"train": size, "val": size // 10, "test": 1}.items():
        splits[name] = ImageSplit(*pictures(count))
    data = Prepared("random", "dataset", CLASSES, MEAN, STD, splits, (), {})
    with tempfile.TemporaryDirectory() as folder, StopRequest() as stop:
        trainer = build_trainer(spec, data, None, where, Path(folder), math.inf, TimedTrainer)
        trainer.run(stop)
    return {
        "images_s": size // BATCH * BATCH / min(trainer.steps_took[1:]),
        "validation_images_s": size // 10 / min(trainer.rest_took[1:]),
        "first_epoch_s": trainer.steps_took[0],
    }


def by_hand(
    backbone: str, precision: str, size: int, epochs: int, compiled: bool = False
) -> Figures:
    """A short loop that a careful author writes: images on the device, one crop and flip index a
    batch; also with the network compiled.
    """
    where = torch.device(device())
    images, labels = (torch.from_numpy(each).to(where) for each in pictures(size))
    images = nn.functional.pad(images, (PADDING,) * 4)
    mean, std = (torch.tensor(each, device=where).view(1, 3, 1, 1) * 255 for each in (MEAN, STD))
    model = build_backbone(backbone, CLASSES).to(where, memory_format=torch.channels_last)
    if compiled:
        model.compile()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=5e-4, nesterov=True)
    side = torch.arange(SIDE, device=where)

    def epoch() -> None:
        order = torch.randperm(size, device=where)
        for begin in range(0, size - BATCH + 1, BATCH):
            index = order[begin : begin + BATCH]
            down, right = (
                torch.randint(0, 2 * PADDING + 1, (BATCH, 1), device=where) + side for _ in range(2)
            )
            right = torch.where(torch.rand(BATCH, 1, device=where) < 0.5, right.flip(1), right)
            batch = images[index.view(-1, 1, 1), :, down.unsqueeze(2), right.unsqueeze(1)].permute(
                0, 3, 1, 2
            )
            with torch.autocast(where.type, torch.bfloat16, enabled=precision == "bf16"):
                loss = nn.functional.cross_entropy(
                    model((batch.float() - mean) / std), labels[index]
                )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    return fastest(epoch, where, size // BATCH * BATCH, epochs)


class Pictures(torch.utils.data.Dataset):
    """Pictures as most repositories read them: one PIL image a sample."""

    def __init__(self, size: int) -> None:
        images, self.labels = pictures(size)
        self.images = images.transpose(0, 2, 3, 1)
        self.change = transforms.Compose(
            [
                transforms.RandomCrop(SIDE, PADDING),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return self.change(Image.fromarray(self.images[row])), int(self.labels[row])


def usual(backbone: str, precision: str, size: int, epochs: int) -> Figures:
    """The usual loop: PIL transforms in workers of a DataLoader, ``.item()`` in each step."""
    where = torch.device(device())
    workers = min(16, len(os.sched_getaffinity(0)))
    loader = torch.utils.data.DataLoader(
        Pictures(size),
        BATCH,
        shuffle=True,
        num_workers=workers,
        pin_memory=where.type == "cuda",
        drop_last=True,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = build_backbone(backbone, CLASSES).to(where)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=5e-4, nesterov=True)
    total = 0.0

    def epoch() -> None:
        nonlocal total
        for images, labels in loader:
            inputs, targets = (
                images.to(where, non_blocking=True),
                labels.to(where, non_blocking=True),
            )
            with torch.autocast(where.type, torch.bfloat16, enabled=precision == "bf16"):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()

    return fastest(epoch, where, size // BATCH * BATCH, epochs)


def at_once(count: int, backbone: str, options: argparse.Namespace) -> Iterator[Figures]:
    """Images a second of all of several trainings on one device."""
    arguments = ({}, backbone, precision_of(options), *sizes(options))
    with multiprocessing.get_context("fork").Pool(count) as pool:
        rows = pool.starmap(calgrid, [arguments] * count)
    yield {"images_s": sum(each["images_s"] for each in rows)}


def whole(options: argparse.Namespace) -> Iterator[Figures]:
    """Seconds of a training and a prediction by commands, each begun by a Python of its own."""
    backbone, epochs = ("resnet8", 1) if options.rehearse else ("resnet18", 10)
    protocol: dict[str, Any] = {
        "base": "evening",
        "epochs": epochs,
        "schedule": {"warmup_epochs": 0},
    }
    if options.pictures is None:  # 8x8 pixels
        protocol["augmentation"] = {"crop_padding": 0, "flip": False}
    grid = {"protocol": "timed", "backbones": [backbone], "methods": ["ce"], "seeds": [1]}
    empty(options.work / "results_speed")
    runs = Runs(options, {"timed": protocol}, [grid], copy="_speed")
    runs.prepare()
    key = runs.key("timed", backbone, "ce")
    os.environ.pop(forkserver.ADDRESS, None)
    jobs = {
        "training": (runs.train_command(key), runs.trained(key) / TRAIN),
        "prediction": (runs.predict_command(key), runs.predicted(key) / PREDICT),
    }
    for name, (arguments, record) in jobs.items():
        begin = time.perf_counter()
        runs.calgrid(*arguments)
        took, counted = time.perf_counter() - begin, json.loads(record.read_text())["seconds"]
        yield {f"{name}_s": counted, f"{name}_start_s": took - counted}
    counts = {name: len(split) for name, split in runs.data().splits.items()}
    predicted = counts["val"] + counts["test"]
    yield {"epochs": epochs, "images": counts["train"], "predictions_s": predicted / counted}


def pictures(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images uint8 ``(N, 3, 32, 32)`` and labels ``(N,)``."""
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (size, 3, SIDE, SIDE), dtype=np.uint8), rng.integers(
        0, CLASSES, size
    )


def fastest(epoch: Callable[[], None], where: torch.device, images: int, epochs: int) -> Figures:
    """Images a second of the fastest of some epochs, after one that warms up."""
    begin = time.perf_counter()
    epoch()
    first = time.perf_counter() - begin
    best = float("inf")
    for _ in range(epochs):
        wait(where)
        begin = time.perf_counter()
        epoch()
        wait(where)
        best = min(best, time.perf_counter() - begin)
    return {"images_s": images / best, "first_epoch_s": first}


def wait(where: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if where.type == "cuda":
        torch.cuda.synchronize()
