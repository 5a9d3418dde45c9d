"""Images a second of training: calgrid, also with CUDA graphs, the usual loop, a loop written by
hand, several runs at once.

::

    python benchmarks/gpu/speed.py --out OUT --minutes 9

Random 32x32 images, batches of 256, crops and flips, SGD. Each figure is the best of the timed
epochs after one that warms up; validation is left out. The peak is that of a large matrix product
on the same device in the same precision (fp32: TF32).
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kit import device, keep, parser
from PIL import Image
from torch import nn
from torchvision import transforms

from calgrid.backbones import build_backbone
from calgrid.components.registry import describe
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure
from calgrid.training import environment
from calgrid.training.data import DeviceImages
from calgrid.training.interrupt import StopRequest
from calgrid.training.protocol import (
    Augmentation,
    Optimizer,
    Schedule,
    TrainingProtocol,
)
from calgrid.training.trainer import Trainer

CLASSES, SIDE, BATCH, PADDING = 10, 32, 256, 4
MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
#: floating-point operations of a training step for each multiply-add of a forward pass: forward 2,
#: backward 4
OPERATIONS = 6
AT_ONCE = (1, 2, 4)


def main() -> None:
    """Measure what fits into the time, most telling figures first."""
    made = parser(__doc__, 9)
    made.add_argument(
        "--one",
        nargs=2,
        metavar=("BACKBONE", "PRECISION"),
        help="one run of calgrid, for --at-once",
    )
    options = made.parse_args()
    size, epochs = (512, 1) if options.rehearse else (20480, 3)
    backbones = ("resnet8",) if options.rehearse else ("resnet18", "resnet50", "resnet110")
    where = torch.device(device())
    if options.one:
        print(calgrid(*options.one, where, size, epochs))
        return
    end = time.monotonic() + 60 * options.minutes
    rows: list[dict[str, Any]] = []
    tops = {
        precision: peak(where, precision, 512 if options.rehearse else 8192)
        for precision in ("bf16", "fp32")
    }
    work: list[tuple[str, str, str, Callable[..., float]]] = [
        (loop.__name__, backbone, precision, loop)
        for precision in ("bf16", "fp32")
        for backbone in backbones
        for loop in (calgrid, as_graph, by_hand, usual)
    ]
    for name, backbone, precision, loop in work:
        if time.monotonic() > end:
            break
        rate = loop(backbone, precision, where, size, epochs)
        operations = OPERATIONS * describe("backbone", backbone).info["macs"] * rate
        share = operations / tops[precision]
        epoch = 50_000 / rate
        rows.append(
            {
                "loop": name,
                "backbone": backbone,
                "precision": precision,
                "images_s": rate,
                "peak_share": share,
            }
        )
        print(
            f"| {name} | {backbone} | {precision} | {rate:,.0f} | {epoch:.1f} | {share:.1%} |",
            flush=True,
        )
    together = {}
    for count in AT_ONCE:
        if time.monotonic() < end:
            together[count] = at_once(count, backbones[0], options)
            print(
                f"| {count} at once | {backbones[0]} | bf16 | {together[count]:,.0f} | | |",
                flush=True,
            )
    keep(options, "speed", {"rows": rows, "peak_flops": tops, "images_s_at_once": together})


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
    """A trainer that knows the seconds of each epoch, validation left out."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.seconds: list[float] = []
        self._begin = time.perf_counter()

    def _finish_epoch(self) -> dict[str, float]:
        wait(self.device)
        self.seconds.append(time.perf_counter() - self._begin)
        shown = super()._finish_epoch()
        wait(self.device)
        self._begin = time.perf_counter()
        return shown


def calgrid(
    backbone: str,
    precision: str,
    where: torch.device,
    size: int,
    epochs: int,
    cuda_graph: bool = False,
) -> float:
    """The training loop of calgrid: images on the device, augmentation of whole batches."""
    environment.prepare(where, 1)
    protocol = TrainingProtocol(
        epochs=epochs + 1,
        batch_size=BATCH,
        drop_last=True,
        optimizer=Optimizer(name="sgd", lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True),
        schedule=Schedule(name="constant"),
        augmentation=Augmentation(crop_padding=PADDING, flip=True),
        clip_grad_norm=2.0,
        cuda_graph=cuda_graph,
        checkpoints=["last"],
    )
    images, labels = pictures(size)
    train = DeviceImages(images, labels, MEAN, STD, where, channels_last=True)
    val = DeviceImages(images[:10], labels[:10], MEAN, STD, where, channels_last=True)
    procedure = build_procedure("standard")
    model = procedure.build_model(build_backbone(backbone, CLASSES), CLASSES)
    model = model.to(where, memory_format=torch.channels_last)
    loss = build_loss("ce", CLASSES).to(where)
    with tempfile.TemporaryDirectory() as folder, StopRequest() as stop:
        settings = {
            "seed": 1,
            "autocast": precision == "bf16" and environment.computes_bf16(where),
            "folder": Path(folder),
            "resume_every": 1e9,
            "title": "speed",
        }
        trainer = TimedTrainer(model, loss, procedure, protocol, train, val, **settings)
        trainer.run(stop)
    return size // BATCH * BATCH / min(trainer.seconds[1:])


def as_graph(backbone: str, precision: str, where: torch.device, size: int, epochs: int) -> float:
    """The training loop of calgrid with the network as a CUDA graph."""
    return calgrid(backbone, precision, where, size, epochs, cuda_graph=True)


def by_hand(backbone: str, precision: str, where: torch.device, size: int, epochs: int) -> float:
    """A short loop that a careful author writes: images on the device, one crop and flip index a
    batch.
    """
    images, labels = (torch.from_numpy(each).to(where) for each in pictures(size))
    images = nn.functional.pad(images, (PADDING,) * 4)
    mean, std = (torch.tensor(each, device=where).view(1, 3, 1, 1) * 255 for each in (MEAN, STD))
    model = build_backbone(backbone, CLASSES).to(where, memory_format=torch.channels_last)
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


def usual(backbone: str, precision: str, where: torch.device, size: int, epochs: int) -> float:
    """The usual loop: PIL transforms in workers of a DataLoader, ``.item()`` in each step."""
    workers = min(16, len(os.sched_getaffinity(0)))
    loader = torch.utils.data.DataLoader(
        Pictures(size),
        BATCH,
        shuffle=True,
        num_workers=workers,
        pin_memory=where.type == "cuda",
        drop_last=True,
        persistent_workers=True,
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


def at_once(count: int, backbone: str, options: Any) -> float:
    """Images a second of all of several processes that train on one device at a time."""
    command = [sys.executable, __file__, "--one", backbone, "bf16", "--out", str(options.out)]
    command += ["--rehearse"] if options.rehearse else []
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    said = [process.communicate()[0] for process in processes]
    return sum(float(text.strip().splitlines()[-1]) for text in said)


def pictures(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images uint8 ``(N, 3, 32, 32)`` and labels ``(N,)``."""
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (size, 3, SIDE, SIDE), dtype=np.uint8), rng.integers(
        0, CLASSES, size
    )


def fastest(epoch: Callable[[], None], where: torch.device, images: int, epochs: int) -> float:
    """Images a second of the fastest of some epochs, after one that warms up."""
    epoch()
    best = float("inf")
    for _ in range(epochs):
        wait(where)
        begin = time.perf_counter()
        epoch()
        wait(where)
        best = min(best, time.perf_counter() - begin)
    return images / best


def wait(where: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if where.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
