"""Measure what one training step of each loss costs.

::

    python benchmarks/losses.py                          all losses, at two sizes
    python benchmarks/losses.py --only cpc mmce_w        some of them
    python benchmarks/losses.py --sizes 64x200 256x1000  at other sizes, batch size x classes

Every loss has a process of its own. ``MB`` is by how much its peak resident memory grew at the
first steps; below about 2 MB it is noise of the allocator.
"""

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import pages
from calgrid.components import registry
from calgrid.losses import build_loss

SIZES = ("128x100", "1024x1000")
FEATURES = 512
SAMPLES = 45_000  # rows of the buffers of losses that remember samples: the training split of CIFAR
SECONDS = 1.0  # of timing for a loss at a size, at least three steps
REFERENCE = "ce"
PLAIN = (
    "F.cross_entropy"  # the function of torch alone: what the checks and terms of ``ce`` add to it
)


def main() -> None:
    """Measure all losses, each in a process of its own."""
    pages.run(parser(), measured, page, __file__)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Conditions, and figures of each loss."""
    if options.child:
        print(json.dumps([measure(options.child, *shape(size)) for size in options.sizes]))
        sys.exit()
    found = {name: child(name, options.sizes) for name in options.only}
    parts = [] if options.only == options.known else options.only
    return {"conditions": pages.machine(*parts), "losses": found}


def page(figures: dict[str, Any]) -> str:
    """The page of the figures."""
    losses = figures["losses"]
    keys = dict.fromkeys(key for row in losses.values() for key in row if not key.endswith("MB"))
    forms = {key: ".1f" if "ce" in key else ".2f" for key in keys}
    missing = ", ".join(name for name, row in losses.items() if row.get("128x100 x ce", 0) > 3)
    return f"""# Time and memory of the losses

What a training step costs beyond the network: forward, backward and the hook after the step.
{FEATURES} features, buffers for {SAMPLES:,} samples, float32, one thread.

    python benchmarks/losses.py

Columns: batch size x classes; median ms; ratio to `ce`, whose steps alternate with those of the
loss. `F.cross_entropy` is the function of torch.

{pages.conditions(figures)}

{pages.table("loss", losses, forms)}

The aim is at most 3 times `ce` at 128x100, except where O(C^2) is inherent. These miss it:
{missing}. All but `cpc` take about 0.5 ms or less there. On 2026-11-21:

- `cpc` is O(N C^2) by definition: 10^9 pairs at 1024x1000, in blocks of 4 MiB.
- `fedlas_ls` and `fedlas_mbls` train a gate of two layers (0.17 of 0.48 ms), beside label smoothing
  (0.10), indicator (0.06) and record of samples (0.07).
- `mmce_w` is O(N^2): some 20 passes over 128 x 128 pairs.
- `ce` checks shapes, labels and logits, and gathers: the fused kernel skips labels of -100 in
  silence.
- Between runs `acls` has 2.8 to 3.2 and `crl` 2.8 to 2.9. Ratios at 1024x1000 are uncertain by a
  factor of two (`ce` against itself: 1.2 to 1.8): 4 MB leave the cache.
- Peak memory grows by at most 51 MB at 1024x1000 (`cals_alm`; `mmce_w` 50, `mmce` 48: copies of a
  kernel of 4 MiB).
"""


def parser() -> argparse.ArgumentParser:
    """Options of the command line."""
    options = argparse.ArgumentParser(description="Measure time and memory of the losses.")
    known = [PLAIN, *registry.descriptions("loss")]
    options.add_argument("--only", nargs="+", choices=known, default=known, metavar="LOSS")
    options.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="NxC", help="ascending")
    options.add_argument("--child", choices=known, help=argparse.SUPPRESS)
    options.set_defaults(known=known)
    return options


def shape(size: str) -> tuple[int, int]:
    """Batch size and classes of ``NxC``."""
    count, _, classes = size.partition("x")
    return int(count), int(classes)


def child(name: str, sizes: Sequence[str]) -> dict[str, float]:
    """Figures of one loss at all sizes, from a new process."""
    command = [sys.executable, __file__, "--child", name, "--sizes", *sizes]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    keys = (f"{size} {what}" for size in sizes for what in ("ms", "x ce", "MB"))
    return dict(zip(keys, itertools.chain(*found), strict=True))


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
