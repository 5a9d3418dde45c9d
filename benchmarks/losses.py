"""Measure what one training step of each loss costs beyond the network: forward, backward, hook
after the step.

::

    python benchmarks/losses.py                          all losses, at five sizes
    python benchmarks/losses.py --only cpc mmce_w        some of them
    python benchmarks/losses.py --sizes 64x200 256x1000  at other sizes, batch size x classes

Every loss has a process of its own, with one thread. In it, steps of the loss and of cross-entropy
alternate, so that a busy moment of the machine falls on both: ``ms`` is the median of the loss, ``x
ce`` the ratio of the medians. ``MB`` is by how much the peak resident memory of the process
(``ru_maxrss``) grew at the first steps, over what it was with torch imported and the batch drawn;
below about 2 MB it is noise of the allocator. The table is Markdown.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from calgrid.components import registry
from calgrid.losses import build_loss
from speed import describe_machine, print_lines

SIZES = ("128x10", "128x100", "64x200", "256x1000", "1024x1000")
FEATURES = 512
SAMPLES = 45_000  # rows of the buffers of losses that remember samples: the training split of CIFAR
SECONDS = 1.0  # of timing for a loss at a size, at least three steps
REFERENCE = "ce"
PLAIN = (
    "F.cross_entropy"  # the function of torch alone: what the checks and terms of ``ce`` add to it
)


def main() -> None:
    """Measure all losses, each in a process of its own, and print the table."""
    options = parse()
    if options.child:
        print(json.dumps([measure(options.child, *shape(size)) for size in options.sizes]))
        return
    print_lines("conditions", {**describe_machine(), "threads": "1", "features": str(FEATURES)})
    head = [f"{size} {what}" for size in options.sizes for what in ("ms", "x ce", "MB")]
    print_row(["loss", *head])
    print_row(["---", *["---:"] * len(head)])
    for name in options.only:
        figures = child(name, options.sizes)
        print_row(
            [
                name,
                *(
                    f"{value:{form}}"
                    for row in figures
                    for value, form in zip(row, FORMS, strict=True)
                ),
            ]
        )


FORMS = (".2f", ".1f", ".0f")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure time and memory of the losses.")
    known = [PLAIN, *registry.descriptions("loss")]
    parser.add_argument("--only", nargs="+", choices=known, default=known, metavar="LOSS")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="NxC", help="ascending")
    parser.add_argument("--child", choices=known, help=argparse.SUPPRESS)
    return parser.parse_args()


def shape(size: str) -> tuple[int, int]:
    """Batch size and classes of ``NxC``."""
    count, _, classes = size.partition("x")
    return int(count), int(classes)


def print_row(cells: Sequence[str]) -> None:
    """Print one row of a Markdown table."""
    print(f"| {' | '.join(cells)} |", flush=True)


def child(name: str, sizes: Sequence[str]) -> list[list[float]]:
    """Figures of one loss at all sizes, from a new process."""
    command = [sys.executable, __file__, "--child", name, "--sizes", *sizes]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, count: int, classes: int) -> tuple[float, float, float]:
    """Milliseconds of a step, their ratio to cross-entropy, and megabytes of memory."""
    torch.set_num_threads(1)
    before = peak_mb()
    step, plain = training_step(name, count, classes), training_step(REFERENCE, count, classes)
    for _ in range(2):  # the second step allocates what the first has left behind
        step()
    memory = peak_mb() - before
    times: list[float] = []
    base: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 3:
        base.append(timed(plain))
        times.append(timed(step))
    return (
        1000 * statistics.median(times),
        statistics.median(times) / statistics.median(base),
        memory,
    )


def training_step(name: str, count: int, classes: int) -> Callable[[], None]:
    """Forward, backward and hook of a loss on one batch in the middle of a training."""
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(count, classes, generator=generator)).requires_grad_()
    labels = torch.randint(classes, (count,), generator=generator)
    features = torch.rand(count, FEATURES, generator=generator)
    index = torch.randint(SAMPLES, (count,), generator=generator)
    if name == PLAIN:
        return lambda: plain_step(logits, labels)
    loss = build_loss(name, classes)
    loss.begin_training(torch.arange(SAMPLES) % classes)
    loss.end_epoch(1, logits.detach(), labels)
    parameters = list(loss.parameters())

    def step() -> None:
        logits.grad = None
        for parameter in parameters:
            parameter.grad = None
        loss(logits, labels, features=features, index=index).backward()
        loss.after_step(logits.detach(), labels, index)

    return step


def plain_step(logits: torch.Tensor, labels: torch.Tensor) -> None:
    """Forward and backward of cross-entropy as torch has it, without a loss of ours around it."""
    logits.grad = None
    F.cross_entropy(logits, labels).backward()


def timed(step: Callable[[], None]) -> float:
    """Seconds of one step."""
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def peak_mb() -> float:
    """Peak resident memory of this process so far, in 10^6 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main()
