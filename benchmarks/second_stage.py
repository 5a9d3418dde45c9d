"""Measure what computing frozen features once saves in a second stage.

::

    python benchmarks/second_stage.py

Trains the head of ``tst`` on the embedded digits twice in one process, over a first stage with
random weights: once on features computed anew from the images of each batch, as an augmenting
protocol needs, and once on features computed once. The numbers are processor seconds of whole
trainings, with one thread; the table is Markdown.
"""

import tempfile
import time
from pathlib import Path

import torch

from calgrid.backbones import build_backbone
from calgrid.datasets import open_prepared, prepare
from calgrid.jobs.network import training_images
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure
from calgrid.training.interrupt import StopRequest
from calgrid.training.protocol import (
    Augmentation,
    Optimizer,
    Schedule,
    TrainingProtocol,
)
from calgrid.training.trainer import Trainer
from posthoc import print_row
from speed import describe_machine, print_lines

BACKBONES = ("resnet8", "resnet20")
PROTOCOL = TrainingProtocol(
    epochs=40,
    batch_size=20,
    optimizer=Optimizer(name="sgd", lr=0.01, momentum=0.9),
    schedule=Schedule(name="constant"),
    checkpoints=["last"],
)


def main() -> None:
    """Measure and print the table."""
    torch.set_num_threads(1)
    print_lines(
        "conditions", {**describe_machine(), "threads": "1", "epochs": str(PROTOCOL.epochs)}
    )
    print_row(["backbone", "features of each batch, s", "features once, s", "ratio"])
    print_row(["---", *["---:"] * 3])
    with tempfile.TemporaryDirectory() as folder:
        prepare("digits", Path(folder, "digits"))
        seconds(
            BACKBONES[0], Path(folder), flip=True
        )  # the first training also pays for what torch sets up once
        for backbone in BACKBONES:
            each, once = (seconds(backbone, Path(folder), flip) for flip in (True, False))
            print_row([backbone, f"{each:.2f}", f"{once:.2f}", f"{each / once:.1f}"])


def seconds(backbone: str, folder: Path, flip: bool) -> float:
    """Processor seconds of a second stage; with ``flip`` the protocol augments, so that features
    change each epoch.
    """
    prepared = open_prepared(folder / "digits")
    cpu = torch.device("cpu")
    protocol = PROTOCOL.model_copy(update={"augmentation": Augmentation(flip=flip)})
    train, val = training_images(prepared, protocol, cpu)
    procedure = build_procedure("tst")
    torch.manual_seed(0)
    model = procedure.build_model(build_backbone(backbone, prepared.n_classes), prepared.n_classes)
    begin = time.process_time()
    trainer = Trainer(
        model,
        build_loss("ce", prepared.n_classes),
        procedure,
        protocol,
        train,
        val,
        seed=1,
        autocast=False,
        folder=folder / f"{backbone}-{flip}",
        resume_every=1e9,
        title="second stage",
    )
    with StopRequest() as stop:
        trainer.run(stop)
    return time.process_time() - begin


if __name__ == "__main__":
    main()
