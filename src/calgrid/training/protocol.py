"""Protocols, how networks are trained: every key with its type, default and meaning.

Invalid values raise ConfigError, with one sentence; see :mod:`calgrid.components.validation`.
"""

from typing import Annotated, Literal

from pydantic import Field

from calgrid.components.options import Options
from calgrid.components.validation import Distinct, Model
from calgrid.storage.specs import Views

#: nothing here changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True

Fraction = Annotated[float, Field(gt=0, lt=1)]
Epochs = Annotated[int, Field(ge=1, le=10**8)]
BatchSize = Annotated[int, Field(ge=1, le=10**6)]
LearningRate = Annotated[float, Field(gt=0, le=100)]
WeightDecay = Annotated[float, Field(ge=0, le=10)]
Checkpoints = Annotated[
    list[Literal["best", "refined", "last", "ema", "swa"]], Field(min_length=1), Distinct
]
Reduction = Literal["mean", "sum"]

EPOCHS = "Passes over the training split."
BATCH_SIZE = (
    "Images in a training batch; the last batch of an epoch may be smaller (see drop_last)."
)
DROP_LAST = (
    "Whether the last batch of an epoch is dropped if it is smaller than the others; its images "
    "are random in each epoch. With false it is used; a last batch of a single image is an error."
)
LR = "Learning rate before the schedule."
WEIGHT_DECAY = "Weight decay on all parameters."
SCHEDULE = "Learning rate by epoch."
#: tested weights -> the mean over the training
AVERAGES = {
    "ema": "exponential mean of the weights of all steps (key ema)",
    "swa": "mean of the weights after each of the last epochs (key swa)",
}
#: tested weights -> their epoch
CHECKPOINT_EPOCHS = {
    "best": "highest validation accuracy, the first of equal ones",
    "refined": "lowest validation NLL after temperature scaling, the first of equal ones",
    "last": "last epoch",
    **AVERAGES,
}
CHECKPOINTS = (
    f"Tested weights, one or several - {'; '.join(map(': '.join, CHECKPOINT_EPOCHS.items()))}."
)
REDUCTION = "Mean or sum of the loss over a batch (the focal_calibration line sums)."


class Optimizer(Model):
    """SGD or AdamW."""

    name: Literal["sgd", "adamw"] = Field(description="Optimiser.")
    lr: LearningRate = Field(description=LR)
    weight_decay: WeightDecay = Field(0.0, description=WEIGHT_DECAY)
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of SGD.")
    nesterov: bool = Field(False, description="Nesterov momentum of SGD.")
    norm_bias_factor: float = Field(
        1.0,
        gt=0,
        le=10**4,
        description="Factor of the learning rate of the biases of batch normalisation; their "
        "weight decay is divided by it, so that each step shrinks them as before.",
    )


class Schedule(Model):
    """Learning rate by epoch."""

    name: Literal["step", "constant", "cosine", "triangular"] = Field(
        description="Shape of the schedule."
    )
    milestones: list[Annotated[int, Field(ge=1)]] = Field(
        [],
        description="Epochs (from 0) at which the rate is multiplied by gamma, ascending; for "
        "step.",
    )
    gamma: float = Field(0.1, gt=0, le=1, description="Factor at each milestone.")
    warmup_epochs: float = Field(
        0.0,
        ge=0,
        description="Epochs of linear warm-up from 0, step by step; fewer than all epochs.",
    )
    start: float = Field(
        0.2, ge=0, le=1, description="Share of the rate at the first step; for triangular."
    )
    peak: Fraction = Field(
        0.23, description="Share of all steps at which the rate is reached; for triangular."
    )
    end: float = Field(
        0.07, ge=0, le=1, description="Share of the rate after the last step; for triangular."
    )


class RandAugment(Model):
    """RandAugment (Cubuk et al., NeurIPS 2020), as in torchvision."""

    n: int = Field(2, ge=1, le=10, description="Operations on each image.")
    m: int = Field(9, ge=0, le=30, description="Magnitude of each operation, of 30.")


class AugMix(Model):
    """AugMix (Hendrycks et al., ICLR 2020), without its Jensen-Shannon loss."""

    severity: float = Field(
        3.0, ge=0.1, le=10, description="Largest level of an operation, of 10; the least is 0.1."
    )
    width: int = Field(3, ge=1, le=10, description="Chains of operations that are mixed.")
    depth: int = Field(
        3, ge=1, le=10, description="Most operations of a chain; their number is random from 1 on."
    )
    alpha: float = Field(
        1.0,
        ge=0.01,
        le=100,
        description="Parameter of the Dirichlet distribution of the chains' weights, and of the "
        "Beta distribution of the weight of the image itself.",
    )


class Augmentation(Model):
    """Augmentation of a training batch, on the device."""

    crop_padding: int = Field(
        0,
        ge=0,
        le=4096,
        description="Pixels of padding for a random crop of the original size, at most the side of "
        "the images; 0 crops nothing.",
    )
    padding_mode: Literal["zeros", "reflect"] = Field(
        "zeros", description="Content of the padding: black, or the image mirrored at its border."
    )
    flip: Literal[False, True, "alternate"] = Field(
        False,
        description="Mirror images left to right: a random half of each batch (true); or a random "
        "half of all images in the first epoch and, from then on, each image in every other "
        "epoch (alternate).",
    )
    resized_crop: bool = Field(
        False,
        description="Scale a random part of each image file (8 to 100 % of its area, a ratio of "
        "width to height of 3/4 to 4/3) to the size of the images, as RandomResizedCrop of "
        "torchvision, while threads of the job decode it; for data sets whose images stay encoded "
        "(keep_encoded).",
    )
    randaugment: RandAugment | None = Field(
        None,
        description="Random operations on each image after crop and flip, with 1 or 3 channels; "
        "null: none.",
    )
    augmix: AugMix | None = Field(
        None,
        description="Mixture of each image, after crop and flip, with chains of random operations "
        "on it; null: none.",
    )


class Lookahead(Model):
    """Lookahead (Zhang et al., NeurIPS 2019), with a decay that grows during training.

    Every few steps a running mean of the network's weights and BatchNorm statistics takes a step
    towards them, and replaces them; the mean also replaces them after the last step.
    """

    every: int = Field(5, ge=1, description="Steps between two updates.")
    decay: Fraction = Field(
        0.95**5,
        description="Share of the old mean in an update at the end of training; before, this times "
        "the cube of the share of steps done.",
    )


class Ema(Model):
    """Exponential mean of weights and BatchNorm statistics, from the first step on: checkpoint ema.

    A mean over about ``1 / (1 - decay)`` steps: 1,000 of them by default.
    """

    decay: Fraction = Field(0.999, description="Share of the old mean after each step.")


class Swa(Model):
    """Stochastic weight averaging (Izmailov et al., UAI 2018): checkpoint swa.

    The mean of the weights after each epoch from ``start`` on, with BatchNorm statistics of one
    more epoch of training images. The learning rate is that of the schedule; the authors' is
    constant or cyclic during these epochs.
    """

    start: float = Field(
        0.75, ge=0, lt=1, description="Share of the epochs before the first that counts."
    )


class OptimizerChange(Model):
    """Keys of the optimiser that differ in the second stage."""

    lr: LearningRate | None = Field(None, description=LR)
    weight_decay: WeightDecay | None = Field(None, description=WEIGHT_DECAY)


class SecondStage(Model):
    """Keys of a second stage that differ from the first; None: as in the first."""

    epochs: Epochs | None = Field(None, description=EPOCHS)
    batch_size: BatchSize | None = Field(None, description=BATCH_SIZE)
    drop_last: bool | None = Field(None, description=DROP_LAST)
    optimizer: OptimizerChange | None = Field(
        None, description="Keys of the optimiser that differ."
    )
    schedule: Schedule | None = Field(None, description=SCHEDULE)
    checkpoints: Checkpoints | None = Field(None, description=CHECKPOINTS)
    reduction: Reduction | None = Field(None, description=REDUCTION)


#: keys of a protocol whose weights are not trained here
READY_KEYS = (
    *("description", "weights", "weights_file", "weights_key", "deterministic", "channels_last"),
    *("export_features", "test_normalisation", "test_views"),
)
#: most training images with exported features; of more, a random subset
MOST_TRAIN_ROWS = 50_000


class Protocol(Model):
    """Keys of every protocol; weights that are not trained here take only :data:`READY_KEYS`."""

    description: str = Field("", description="Purpose and source of the protocol.")
    weights: Literal["trained", "published", "focal_calibration", "file"] = Field(
        "trained",
        description="Source of the tested weights - trained here, published weights of the "
        "backbone, the checkpoints of torrvision/focal_calibration for CIFAR, or your own files. "
        "With the latter three nothing is trained, and only the keys weights_file, weights_key, "
        "deterministic, channels_last, export_features, test_normalisation and test_views are "
        "allowed.",
    )
    weights_file: str | None = Field(
        None,
        description="With weights: file, the file below data_root with the state dictionary of a "
        "network, as safetensors or of torch.save; {dataset}, {backbone}, {method} and {seed} "
        "stand for those of the run.",
    )
    weights_key: str | None = Field(
        None,
        description="With weights: file, the key of the network in a file of several, such as "
        "state_dict; without it averaged weights (state_dict_ema, model_ema) are taken where a "
        "file has them.",
    )
    deterministic: bool = Field(
        False,
        description="Whether training, prediction and probes on a GPU give the same bytes each "
        "time - deterministic kernels only, no TF32, no search for the fastest convolution; "
        "slower. With false an NVIDIA GPU chooses kernels and uses TF32, so a repeated or "
        "resumed run ends with slightly different numbers. On the CPU all runs are deterministic.",
    )
    channels_last: bool = Field(True, description="Memory format of images and convolutions.")
    export_features: Literal[False, True, "all", "train"] = Field(
        False,
        description="Whether penultimate features are stored with the logits, for the calibrators "
        "that need them: for val and test (true), also for shift families (all), or also for the "
        "training images without augmentation (train; at most 50,000, the same random ones for all "
        "runs), for the out-of-distribution scores kNN and ViM.",
    )
    test_normalisation: dict[str, str] = Field(
        {},
        description="Data set -> data set whose mean and standard deviation normalise its test "
        "images, their shift families, and these images as an out-of-distribution set; training "
        "and validation images keep their own. Only to reproduce networks that were tested this "
        "way. Variants of a protocol that differ only in how they test share their training.",
    )
    test_views: Views = Field(
        "one",
        description="Views of each image over which logits and features of a prediction are "
        "averaged - the image alone, with its mirror image, or these two also translated by one "
        "pixel along the diagonal in both directions (six views; the four translated ones have "
        "half of the weight). Validation during training uses one view.",
    )
    crop_size: int | None = Field(
        None,
        ge=4,
        description="Side in pixels of a square crop - at a random position in training, after the "
        "padding; in the centre of scored images. null does not crop.",
    )
    pretrained: bool = Field(
        False,
        description="Start from published weights of the backbone (fine-tuning), see calgrid list "
        "backbones.",
    )
    checkpoints: Checkpoints = Field(["last"], description=CHECKPOINTS)
    val_draw: Literal["fixed", "seed"] = Field(
        "fixed",
        description="Validation images that a data set draws from its training images - the same "
        "draw for all runs, or a draw by the seed of the run, as in the code of FeDLaS. Test "
        "images are the same in both cases. Each draw is prepared and stored for itself.",
    )
    disjoint_validation: bool = Field(
        False,
        description="Whether each use of the validation split gets a separate third of its rows - "
        "choice of checkpoints, losses that use validation data (adafocal, cals_alm), fit of "
        "calibrators. With false all of them use all rows, as is common.",
    )


class TrainingProtocol(Protocol):
    """How networks are trained: a file in config/protocols/, the same for all compared methods."""

    epochs: Epochs = Field(description=EPOCHS)
    batch_size: BatchSize = Field(description=BATCH_SIZE)
    drop_last: bool = Field(False, description=DROP_LAST)
    optimizer: Optimizer = Field(description="SGD or AdamW.")
    schedule: Schedule = Field(description=SCHEDULE)
    augmentation: Augmentation = Field(
        default_factory=Augmentation, description="Augmentation of a training batch, on the device."
    )
    clip_grad_norm: float | None = Field(
        None,
        gt=0,
        description="Maximum norm of the network's gradient; null does not clip. Parameters of a "
        "loss are never clipped.",
    )
    lookahead: Lookahead | None = Field(
        None,
        description="Interpolation with a running mean of the weights; null: none. Second stages "
        "have none.",
    )
    ema: Ema = Field(default_factory=Ema, description="Options of the checkpoint ema.")
    swa: Swa = Field(default_factory=Swa, description="Options of the checkpoint swa.")
    reduction: Reduction = Field("mean", description=REDUCTION)
    precision: Literal["fp32", "bf16"] = Field(
        "fp32",
        description="Arithmetic of the training passes. bf16 uses autocast if the device computes "
        "it natively, else fp32. On NVIDIA GPUs with TF32, matrix products and convolutions in "
        "fp32 use it (as PyTorch's convolutions do by default) unless deterministic is true.",
    )
    gpus: int = Field(
        1,
        ge=1,
        le=64,
        description="GPUs of one machine that share each training batch, with a process each; "
        "second stages use one. Batch normalisation, losses and their terms over a batch are those "
        "of the whole batch, so that results differ from those of one GPU by rounding alone, and "
        "by the masks of dropout before the head. Without GPUs there are as many processes on the "
        "CPU, for networks without batch normalisation.",
    )
    cuda_graph: Literal["auto", True, False] = Field(
        "auto",
        description="Whether an NVIDIA GPU is given all operations of a training step at once, as "
        "a CUDA graph, instead of one by one, which takes longer where they are small. auto uses "
        "one where procedure and loss allow it, on one GPU, unless deterministic is true; true "
        "refuses what cannot have one. The first steps, the last batch of an epoch, if it is "
        "smaller, evaluation and CPUs have none.",
    )
    compile: bool = Field(
        False,
        description="Whether the network, all but its head, is compiled for training "
        "(torch.compile), so that batch normalisation, ReLU and sums are one operation; the first "
        "run on a machine waits for it, later ones read its code from PyTorch's cache. Results "
        "differ by rounding. Evaluation and the last batch of an epoch, if it is smaller, use the "
        "layers themselves, and so does training where PyTorch has no compiler (a C++ compiler on "
        "a CPU, Triton on a GPU) or cannot compile the network, which the log says. Second stages "
        "are not compiled.",
    )
    head_dropout: Fraction | None = Field(
        None,
        description="Dropout rate of the features before the head in training (Hinton et al. "
        "2012); null: none. The code of MbLS fine-tunes with 0.5. Losses that read features see "
        "all of them; the heads of second stages have no dropout.",
    )
    checkpoints: Checkpoints = Field(description=CHECKPOINTS)
    second_stage: SecondStage | None = Field(
        None, description="Keys of the second stage of tst, vtst and maccal that differ."
    )


def read_protocol(options: Options) -> Protocol:
    """Return the protocol of a job from its specification."""
    trained = options["weights"] == "trained"
    return (TrainingProtocol if trained else Protocol).model_validate(options)
