"""Trainings, batches and steps on which procedures are tested without a trainer."""

from pathlib import Path

import torch

from calgrid.training.data import Batch
from calgrid.training.procedure import Training

CPU = torch.device("cpu")


def begin(procedure, model, **changes):
    """Begin a training, as the trainer does."""
    usual = {"seed": 1, "epochs": 2, "augmented": False, "folder": Path("nothing is written here")}
    procedure.training = Training(**{**usual, **changes})
    procedure.begin_training(model, procedure.training)


def images_batch(count, classes):
    """Normal images (count, 3, 8, 8) with random labels, the same at each call."""
    torch.manual_seed(1)
    return Batch(
        torch.randn(count, 3, 8, 8), torch.randint(0, classes, (count,)), torch.arange(count)
    )


def train_step(procedure, model, optimizer, loss, batch):
    """Take the step that a trainer takes; returns the value of the loss."""
    _, total = procedure.forward_loss(model, loss, procedure.draw(batch))
    optimizer.zero_grad(set_to_none=True)
    total.backward()
    procedure.before_step(model)
    optimizer.step()
    procedure.after_step(model)
    return total.item()
