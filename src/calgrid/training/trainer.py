"""The training loop of all methods.

The state of a run is: network, optimiser, running means of its weights, loss, procedure, epoch,
step, sums of the current epoch, chosen checkpoints, history, tables of training samples. All random
numbers are seeded by (seed, name, epoch, step), so a run resumed from this state is bit-identical:
always on the CPU (same type of processor and number of threads), on a GPU if the protocol is
``deterministic``. Otherwise a resumed run on a GPU differs by rounding.
"""

import copy
import inspect
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from calgrid.backbones.base import Backbone, Network
from calgrid.components import plugins
from calgrid.errors import ConfigError, DataError
from calgrid.losses.base import Loss
from calgrid.progress import Progress, log
from calgrid.storage.checkpoint import load_resume_state, save_resume_state
from calgrid.training import environment, policies
from calgrid.training.averages import Average, Lookahead, first_averaged
from calgrid.training.compiled import CompiledFeatures
from calgrid.training.cuda_graph import GraphedStep, side_stream
from calgrid.training.data import EVALUATION_BATCH, Batch, DeviceImages, StreamedImages
from calgrid.training.interrupt import StopRequest
from calgrid.training.procedure import Procedure, Training
from calgrid.training.protocol import AVERAGES, Optimizer, TrainingProtocol
from calgrid.training.refinement import loss_parts
from calgrid.training.schedule import epoch_batches, learning_rate
from calgrid.training.seeds import generator, seed_global, stream
from calgrid.training.val_rows import CHOICE, FEEDBACK, rows_by_purpose

RESUME_FILE = "resume.pt"
States = dict[str, dict[str, torch.Tensor]]
#: epochs with a stored table of all training samples, plus one after each drop of the learning rate
SAMPLED_EPOCHS = 12


@dataclass
class TrainingState:
    """State and results of a training so far; saved and restored as a whole."""

    epoch: int = 0
    step: int = 0
    sums: dict[str, torch.Tensor] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)
    samples: list[dict[str, torch.Tensor | int]] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    chosen: dict[str, States] = field(default_factory=dict)
    seconds: float = 0.0
    interruptions: int = 0


class Trainer:
    """Trains one run.

    Parameters
    ----------
    model, loss, procedure : on ``device``; parameters of the loss are trained with the network.
    protocol : resolved protocol of this stage.
    train, val : the splits, on the device or streamed to it.
    seed : the run's seed, from which all random numbers derive.
    autocast : compute training passes in bfloat16.
    folder : folder of the resume state.
    resume_every : seconds between resume states.
    title : for the progress bar.
    """

    def __init__(
        self,
        model: Network,
        loss: Loss,
        procedure: Procedure[Any],
        protocol: TrainingProtocol,
        train: DeviceImages,
        val: DeviceImages,
        *,
        seed: int,
        autocast: bool,
        folder: Path,
        resume_every: float,
        title: str,
    ) -> None:
        self.model = model
        self.network = model  # for predictions; in several processes, their parts of batches
        self.loss = loss
        self.procedure = procedure
        self.protocol = protocol
        self.seed = seed
        self.autocast = autocast
        self.title = title
        self.device = train.labels.device
        self.streamed = isinstance(train, StreamedImages)
        changes = protocol.augmentation
        crops = changes.crop_padding, changes.resized_crop, protocol.crop_size
        augmented = any((*crops, changes.flip, changes.randaugment, changes.augmix))
        procedure.training = Training(seed, protocol.epochs, augmented, folder)
        procedure.begin_training(model, procedure.training)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=autocast):
            self.train_images, self.val_images = procedure.splits(model, train, val)
        rows = rows_by_purpose(val.labels.cpu(), protocol.disjoint_validation)
        self.val_rows = {
            purpose: torch.from_numpy(rows[purpose]).to(self.device)
            for purpose in (CHOICE, FEEDBACK)
        }
        self.trained = [p for p in procedure.parameters(model) if p.requires_grad]
        biases = [layer.bias for layer in norm_layers(model) if layer.affine]
        self.optimizer = build_optimizer(
            [*self.trained, *loss.parameters()], protocol.optimizer, biases
        )
        self.steps, self.last_batch = epoch_batches(len(train), protocol)
        self.search_rates = procedure.search_rates()
        self.lookahead = None
        if protocol.lookahead is not None:
            statistics = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
            steps = self.steps * protocol.epochs
            self.lookahead = Lookahead([*self.trained, *statistics], protocol.lookahead, steps)
        wanted = [name for name in AVERAGES if name in protocol.checkpoints]
        self.averages = {name: Average(model) for name in wanted}
        rng = generator("cpu", seed, "mirrored")
        self.mirrored_first = (torch.rand(len(train), generator=rng) < 0.5).to(self.device)
        if self.last_batch == 1 < protocol.batch_size:
            log(
                f"Warning: {title}: each epoch ends with a step on a single image, as {len(train)} "
                f"training images are dealt to batches of {protocol.batch_size}; drop_last: true "
                "in the protocol leaves it out."
            )
        self.sampled = sampled_epochs(protocol)
        self.loss.begin_training(train.labels)
        self.position = TrainingState()
        self.resume_path = folder / RESUME_FILE
        self.resume_every = resume_every
        self._restore()
        self.graph: GraphedStep | None = None
        #: that the compiler took; None if the network is not compiled
        self.compile_seconds: float | None = None
        if protocol.compile:
            self._use_compiler()
        if protocol.cuda_graph and self.device.type == "cuda":
            self._use_cuda_graph()

    def _use_compiler(self) -> None:
        """Compile the body of the network, unless PyTorch cannot."""
        size = min(self.protocol.batch_size, len(self.train_images))
        batch = self.train_images.batch(torch.arange(size, device=self.device))
        try:
            compiled = CompiledFeatures(cast(Backbone, self.model), batch.images, self.autocast)
        except (RuntimeError, OSError) as error:
            reason = str(error).partition("\n")[0]
            said = f"PyTorch cannot compile the network: {reason}; it is trained without."
            log(f"{self.title}: {said}")
            return
        self.model.features = compiled  # type: ignore[assignment]
        self.compile_seconds = compiled.seconds

    def _use_cuda_graph(self) -> None:
        """Make steps CUDA graphs, whose learning rates are tensors."""
        for group in self.optimizer.param_groups:
            group["lr"] = torch.zeros((), device=self.device)  # set before each step
        size = min(self.protocol.batch_size, len(self.train_images))
        self.graph = GraphedStep(
            self._compute, size, self.loss, self.procedure, self._refuse_cuda_graph, self.title
        )

    def _refuse_cuda_graph(self, reason: str) -> None:
        said = f"{self.title}: a training step cannot be a CUDA graph, because {reason}"
        if self.protocol.cuda_graph is True:
            raise ConfigError(f"{said}; leave cuda_graph out of the protocol.")
        log(f"{said}; it is trained without.")

    def run(self, stop: StopRequest) -> TrainingState:
        """Train to the end; on a stop request, save the resume state and raise StoppedError."""
        position = self.position
        epochs = self.protocol.epochs + len(self.search_rates)
        clock = environment.clock(self.device)
        before, begin = position.seconds, clock()
        last_save = time.monotonic()
        with (
            side_stream(self.graph is not None),
            Progress(self.title, epochs, "epoch", position.epoch) as progress,
        ):
            while position.epoch < epochs:
                batches = self._batches(position.epoch, position.step)
                self.loss.train()
                self.procedure.begin_epoch(self.model, position.epoch)
                if self.graph is not None:
                    self.graph.begin_epoch()
                if position.epoch >= self.protocol.epochs and position.step == 0:
                    self.optimizer.state.clear()
                while position.step < self.steps:
                    self._train_step(batches[position.step])
                    position.step += 1
                    now, stops = time.monotonic(), self._stops(stop)
                    if stops or now - last_save >= self.resume_every:
                        position.seconds, last_save = before + clock() - begin, now
                        self._save()
                    if stops:
                        stop.check()
                progress.advance(**self._finish_epoch())
        self._finish_averages()
        position.seconds = before + clock() - begin
        return position

    def _batches(self, epoch: int, begin: int = 0) -> Sequence[torch.Tensor]:
        """Positions in the split of each batch of an epoch; streamed images expect all from
        ``begin`` on.
        """
        rng = generator("cpu", self.seed, "order", epoch)
        order = torch.randperm(len(self.train_images), generator=rng).to(self.device)
        batches = order.split(self.protocol.batch_size)[: self.steps]
        if isinstance(self.train_images, StreamedImages):
            parts_seed = None
            if self.protocol.augmentation.resized_crop:
                parts_seed = stream(self.seed, "parts", epoch)
            self.train_images.expect(batches[begin:], parts_seed)
        return batches

    def _stops(self, stop: StopRequest) -> bool:
        """Whether to stop after this step."""
        return bool(stop.requested)

    def _train_step(self, index: torch.Tensor) -> None:
        epoch, step = self.position.epoch, self.position.step
        seed_global(self.device, self.seed, "step", epoch, step)
        batch = self.procedure.draw(self._augmented(index, epoch, step))
        rate = self._rate(epoch, step)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate * group["factor"])
            else:
                group["lr"] = rate * group["factor"]
        compute = self._compute if self.graph is None else self.graph
        logits = compute(batch)
        self.procedure.after_step(self.model)
        if self.lookahead is not None and epoch < self.protocol.epochs:
            self.lookahead.after_step(epoch * self.steps + step + 1)
        if "ema" in self.averages:
            self.averages["ema"].add(1 - self.protocol.ema.decay)
        self.loss.after_step(logits, batch.labels, batch.index)

    def _compute(self, batch: Batch) -> torch.Tensor:
        """Both passes, the step of the optimiser and the epoch's sums; return the logits (B, K)."""
        with environment.explained(self.title):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
                logits, total = self._checked(self._forward_loss(batch), len(batch))
            if total.is_cpu:  # elsewhere once per epoch: a check of each step would synchronise
                self._check_finite(f"loss in step {self.position.step + 1}", float(total.detach()))
            self.optimizer.zero_grad(set_to_none=True)
            total.backward()
        self.procedure.before_step(self.model)
        if self.protocol.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.trained, self.protocol.clip_grad_norm)
        self.optimizer.step()
        logits, total, count = logits.detach(), total.detach(), len(batch)
        # the history has means over samples in both cases
        weight = 1 if self.loss.reduction == "sum" else count
        parts = {**self.loss.last_terms, **self.procedure.last_terms}
        sums = {
            "train_loss": total * weight,
            "train_accuracy": self.procedure.correct(logits, batch).sum(),
            "train_confidence": logits.float().softmax(dim=1).amax(dim=1).sum(),
            **{f"train_{name}": value * count for name, value in parts.items()},
        }
        # on the device, to avoid synchronisation
        for name, value in sums.items():
            if name not in self.position.sums:
                self.position.sums[name] = torch.zeros_like(value, dtype=torch.float64)
            self.position.sums[name] += value
        return logits

    def _augmented(self, index: torch.Tensor, epoch: int, step: int) -> Batch:
        """Batch of the training images at ``index``, augmented for a step."""
        augmentation = self.protocol.augmentation
        flip: bool | torch.Tensor
        if augmentation.flip == "alternate":
            flip = self.mirrored_first[index] ^ (epoch % 2 == 1)
        else:
            flip = augmentation.flip
        rng = np.random.default_rng(stream(self.seed, "operations", epoch, step))
        return self.train_images.batch(
            index,
            operations=partial(policies.augmented, augmentation=augmentation, rng=rng),
            crop_padding=augmentation.crop_padding,
            padding_mode=augmentation.padding_mode,
            flip=flip,
            rng=generator(self.device, self.seed, "augmentation", epoch, step),
        )

    def _forward_loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (B, K) and loss of a training batch."""
        return self.procedure.forward_loss(self.model, self.loss, batch)

    def _checked(self, found: Any, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What ``forward_loss`` returned; ConfigError unless it fits a batch of this size."""
        parts = found if isinstance(found, tuple | list) else (found,)
        wanted = [str((count, self.loss.num_classes)), "()"]
        shapes = [
            str(tuple(each.shape)) if isinstance(each, torch.Tensor) else type(each).__name__
            for each in parts
        ]
        if shapes != wanted or not parts[1].requires_grad:
            detached = " without gradient" if shapes == wanted else ""
            raise ConfigError(
                f"{plugins.shown(type(self.procedure).__module__)}: forward_loss() of a procedure "
                f"must return logits (B, K) and a scalar loss, here {' and '.join(wanted)}, but it "
                f"returned {' and '.join(shapes)}{detached}."
            )
        return parts[0], parts[1]

    def _check_finite(self, name: str, loss: float) -> None:
        if not math.isfinite(loss):
            raise DataError(
                f"{self.title} diverged in epoch {self.position.epoch + 1}: its {name} is {loss}; "
                "lower the learning rate of the protocol, clip gradients, or correct the method if "
                "it is your own."
            )

    def _rate(self, epoch: int, step: int) -> float:
        searched = epoch - self.protocol.epochs
        if searched < 0:
            return learning_rate(self.protocol, epoch, step, self.steps)
        return self.protocol.optimizer.lr * self.search_rates[searched]

    def _finish_epoch(self) -> dict[str, float]:
        position = self.position
        seen = (self.steps - 1) * self.protocol.batch_size + self.last_batch
        # one transfer: each value that is read waits for the device
        sums = torch.stack([value.to(self.device) for value in position.sums.values()]).cpu()
        means = {
            name: value / seen for name, value in zip(position.sums, sums.tolist(), strict=True)
        }
        self._check_finite("mean loss", means["train_loss"])
        # before validation, which then uses the state of the checkpoint
        diagnostics = self.procedure.end_epoch(self.model, position.epoch, means)
        if "swa" in self.averages and position.epoch >= first_averaged(self.protocol):
            self.averages["swa"].add(1 / (self.averages["swa"].count + 1))
        val_logits, val_labels = self._validation_logits(), self.val_images.labels
        choice, feedback = self.val_rows[CHOICE], self.val_rows[FEEDBACK]
        logits, labels = val_logits[choice], val_labels[choice]
        val_accuracy = float((logits.argmax(1) == labels).double().mean())
        table = self.loss.sample_table(position.epoch) if position.epoch in self.sampled else None
        if table is not None:
            position.samples.append({"epoch": position.epoch, **table})
        diagnostics.update(self.loss.pop_diagnostics())
        self.loss.end_epoch(position.epoch, val_logits[feedback], val_labels[feedback])
        row = {
            "epoch": position.epoch,
            "learning_rate": self._rate(position.epoch, self.steps - 1),
            **means,
            "val_accuracy": val_accuracy,
            **loss_parts(logits, labels),
            **diagnostics,
        }
        position.history.append(row)
        copy_of_states = None
        for checkpoint, score in self.procedure.scores(position.epoch, row).items():
            # the first one also if its score is not a number
            best = position.scores.get(checkpoint, math.nan)
            if score > best or math.isnan(best):
                position.scores[checkpoint] = score
                if checkpoint in self.protocol.checkpoints:
                    copy_of_states = copy_of_states or copied(self.states())
                    position.chosen[checkpoint] = copy_of_states
        for total in position.sums.values():
            total.zero_()
        position.epoch, position.step = position.epoch + 1, 0
        return {"loss": means["train_loss"], "val_accuracy": val_accuracy}

    def _finish_averages(self) -> None:
        """Store the means of the weights as checkpoints, after the last epoch."""
        for checkpoint, average in self.averages.items():
            last = copy.deepcopy(self.model.state_dict())
            self.model.load_state_dict({**last, **average.mean})
            if checkpoint == "swa":
                self._renew_statistics()
            self.position.chosen[checkpoint] = copied(self.states())
            self.model.load_state_dict(last)

    @torch.no_grad()
    def _renew_statistics(self) -> None:
        """Replace the statistics of batch normalisation by the means over the batches of one more
        epoch, as ``torch.optim.swa_utils.update_bn`` does; the training is over.
        """
        self.model.train()
        layers = [layer for layer in norm_layers(self.model) if layer.training]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None
        vars(self.model).pop("features", None)  # compiled: with the momentum of the training
        for step, index in enumerate(self._batches(self.position.epoch) if layers else ()):
            seed_global(self.device, self.seed, "step", self.position.epoch, step)
            batch = self._augmented(index, self.position.epoch, step)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
                self.procedure.predict(self.network, batch)
        self.model.eval()

    @torch.no_grad()
    def _validation_logits(self) -> torch.Tensor:
        self.model.eval()
        self.loss.eval()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            batches = self.val_images.batches(EVALUATION_BATCH, filled=True)
            logits = [self.procedure.predict(self.network, batch)[0] for batch in batches]
        return torch.cat(logits)[: len(self.val_images)].float()

    def states(self) -> States:
        """State of network, loss and procedure for a checkpoint."""
        procedure = self.procedure.state_dict()
        return {
            "model": self.model.state_dict(),
            "loss": self.loss.state_dict(),
            "procedure": {name: torch.as_tensor(value) for name, value in procedure.items()},
        }

    def _save(self) -> None:
        state = {
            "position": vars(self.position),
            "states": self.states(),
            "procedure": dict(self.procedure.resume_state()),
            "optimizer": self.optimizer.state_dict(),
            "lookahead": None if self.lookahead is None else self.lookahead.mean,
            "averages": {name: (each.count, each.mean) for name, each in self.averages.items()},
        }
        save_resume_state(self.resume_path, state)

    def _restore(self) -> None:
        state = load_resume_state(self.resume_path)
        if state is None:
            return
        self.model.load_state_dict(state["states"]["model"])
        self.loss.load_state_dict(state["states"]["loss"])
        self.procedure.load_state_dict(state["states"]["procedure"])
        self.procedure.load_resume_state(state["procedure"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.lookahead is not None:
            torch._foreach_copy_(self.lookahead.mean, state["lookahead"])
        for name, average in self.averages.items():
            average.restore(*state["averages"][name])
        self.position = TrainingState(**state["position"])
        self.position.sums = {
            name: value.to(self.device) for name, value in self.position.sums.items()
        }
        self.position.interruptions += 1


def copied(states: States) -> States:
    """Return a copy on the CPU, as in a resumed run, without references to device memory."""
    copies = {}
    for part, tensors in states.items():
        copies[part] = {
            name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()
        }
    return copies


def sampled_epochs(protocol: TrainingProtocol) -> frozenset[int]:
    """Epochs, from 0, with stored samples: first, last, evenly between them, first with each
    learning rate.
    """
    epochs, schedule = protocol.epochs, protocol.schedule
    count = min(SAMPLED_EPOCHS, epochs)
    evenly = {round(k * (epochs - 1) / max(count - 1, 1)) for k in range(count)}
    drops = schedule.milestones if schedule.name == "step" else ()
    return frozenset(evenly | {milestone for milestone in drops if milestone < epochs})


def norm_layers(model: nn.Module) -> list[_BatchNorm]:
    """Layers of batch normalisation of a network."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def build_optimizer(
    parameters: list[nn.Parameter], options: Optimizer, norm_biases: Iterable[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """SGD or AdamW: equal learning rate and weight decay for network, BatchNorm, biases and loss,
    unless the protocol has a ``norm_bias_factor`` for ``norm_biases``.

    The ``factor`` of a group multiplies its learning rate.
    """
    lr, weight_decay, factor = options.lr, options.weight_decay, options.norm_bias_factor
    apart = {id(bias) for bias in norm_biases} if factor != 1 else set()
    groups: list[dict[str, object]] = [
        {"params": [each for each in parameters if id(each) not in apart], "factor": 1.0}
    ]
    if faster := [each for each in parameters if id(each) in apart]:
        groups.append({"params": faster, "factor": factor, "weight_decay": weight_decay / factor})
    # one operation for all tensors on a GPU, where it reads the rate from a tensor, as a CUDA graph
    # needs
    fused = parameters[0].device.type == "cuda"
    if options.name == "adamw":
        return _without_compiler(torch.optim.AdamW)(
            groups, lr=lr, weight_decay=weight_decay, fused=fused, capturable=fused
        )
    return _without_compiler(torch.optim.SGD)(
        groups,
        lr=lr,
        momentum=options.momentum,
        weight_decay=weight_decay,
        nesterov=options.nesterov,
        # also on a CPU, where the default, one tensor after the other, gives the same numbers later
        foreach=not fused,
        fused=fused,
    )


_Kind = TypeVar("_Kind", bound=type[torch.optim.Optimizer])


def _without_compiler(kind: _Kind) -> _Kind:
    """The optimizer class without wrappers for ``torch.compile``: their first call imports
    PyTorch's compiler, which takes longer than a small training.
    """
    wrapped = ("add_param_group", "zero_grad", "step", "state_dict", "load_state_dict")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in wrapped}
    methods["step"] = torch.no_grad()(methods["step"])
    return cast(_Kind, type(kind.__name__, (kind,), methods))
