"""Base class of the training losses, their construction, and shared parts: buffers with one row per
training sample, and terms.
"""

import math
from abc import abstractmethod
from contextlib import nullcontext
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from calgrid.components import registry
from calgrid.components.options import Options
from calgrid.errors import ConfigError, DataError, row_at

Terms = dict[str, Tensor]
#: a loss, and its terms by name
LossTerms = tuple[Tensor, Terms]
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
#: keeps the gradient of ``x ** gamma`` finite at x = 0 for gamma < 1 (0 * inf would be NaN); far
#: below 1 - p in float32
FLOOR = 1e-20
#: width of the Laplacian kernel of MMCE in units of confidence, as in all official code
KERNEL_WIDTH = 0.4


class PerSample(nn.Module):
    """A buffer with one row per training sample, initially zero, that grows to the largest index.

    Losses are built before the number of training samples is known, so ``rows`` starts empty.
    Loading a state replaces all rows, whatever their number.

    Parameters
    ----------
    shape : shape of a row; empty for scalars.
    dtype : dtype of the rows.

    Attributes
    ----------
    rows : (S, *shape), S the reserved number of samples or the largest index plus one.
    """

    rows: Tensor

    def __init__(self, *shape: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(0, *shape, dtype=dtype))
        self._reserved = 0

    def reserve(self, samples: int) -> None:
        """Allocate a row for each of ``samples`` samples."""
        self._reserved = samples
        self.grow(samples)

    def grow(self, samples: int) -> None:
        """Add rows of zeros until there are at least ``samples``."""
        missing = samples - len(self.rows)
        if missing > 0:
            self.rows = torch.cat([self.rows, self.rows.new_zeros(missing, *self.rows.shape[1:])])

    def clear(self) -> None:
        """Delete all rows; the buffer is empty until the next write."""
        self.rows = self.rows[:0].clone()

    def cover(self, index: Tensor) -> Tensor:
        """Allocate rows for each ``index`` (N,), and return it as int64.

        On an accelerator reserved rows are assumed to be sufficient, because a check would
        synchronise with the device.

        Raises
        ------
        DataError : an index is negative.
        """
        self.grow(self._reserved)
        if index.device.type == "cpu" or not self._reserved:
            low, high = (int(bound) for bound in index.aminmax())
            if low < 0:
                raise DataError(
                    f"index must hold positions in the training split, from 0 on, got {low}."
                )
            self.grow(high + 1)
        return index.long()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved = state_dict.get(f"{prefix}rows")
        if saved is not None:
            self.rows = self.rows.new_zeros(len(saved), *self.rows.shape[1:])
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Loss(nn.Module):
    """Base class of the training losses; a subclass defines :meth:`compute`.

    Losses are computed in float32 without autocast, because the small constants of the formulas
    vanish in half precision. All state is in parameters, buffers or extra state, so that training
    resumes exactly from ``state_dict``.

    Facts in ``@register``, as literals:

    - ``hard_labels`` : True if ``t loss(s, y1) + (1 - t) loss(s, y2)`` is not the loss of the
      mixed label, because the loss is not affine in the one-hot label or each call changes its
      state;
    - ``needs`` : inputs of the call beside logits and labels, among ``"features"`` and ``"index"``;
      default ``()``;
    - ``sees_validation`` : True if :meth:`end_epoch` uses the validation split (an information
      advantage);
    - ``state`` : when the state of the loss changes, ``"step"`` or ``"epoch"``; default ``"none"``.

    Parameters
    ----------
    num_classes : number of classes C, at least 2.

    Attributes
    ----------
    reduction : ``"mean"`` over the batch, or ``"sum"`` = N times the mean, including batch-level
        terms (as in focal_calibration, where MMCE is multiplied by N too).
    last_terms : terms of the last call by name, detached scalars, always means over the batch.
    needs : inputs that the call requires beside logits and labels.

    Raises
    ------
    ConfigError : ``num_classes`` is too small.
    """

    registered: ClassVar[Options] = {}

    def __init__(self, num_classes: int, **options: Any) -> None:
        super().__init__()
        registry.set_options(self, options)
        if num_classes < 2:
            raise ConfigError(
                f"loss '{self.id}': num_classes must be at least 2, got {num_classes}."
            )
        self.num_classes = int(num_classes)
        self.needs: tuple[str, ...] = tuple(self.registered.get("needs", ()))
        self.reduction: Literal["mean", "sum"] = "mean"
        self.last_terms: Terms = {}
        self._labels_seen = False

    @property
    def id(self) -> str:
        """Identifier of the loss: the name of its file."""
        return type(self).__module__.rpartition(".")[2]

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        features: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        logits : (N, C) of any floating type.
        labels : (N,) integers in [0, C).
        features : (N, d), input of the classifier head, for losses that need it.
        index : (N,) integers, stable position of each sample in the training split, for losses that
            need it.

        Returns
        -------
        Tensor
            Scalar float32.

        Raises
        ------
        DataError : a shape, type or label is invalid, a needed input is missing, or a logit is not
            finite. On an accelerator the range of the labels is checked in the first call only, and
            logits are not checked, because reading values synchronises with the device.
        """
        self._check(logits, labels, features, index, self.needs)
        features = None if features is None else features.float()
        kind = logits.device.type
        # entering autocast takes as long as five operations on a batch
        autocast = torch.is_autocast_enabled(kind)
        with torch.autocast(kind, enabled=False) if autocast else nullcontext():
            found = self.compute(logits.float(), labels.long(), features, index)
        right = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Tensor)
        if not right or found[0].ndim:
            raise ConfigError(
                f"{type(self).__module__}: compute() of a loss returns its mean over the batch, a "
                "tensor without dimensions, and a dict of its terms; it returned something else."
            )
        total, parts = found
        self.last_terms = {name: value.detach() for name, value in parts.items()}
        return total * len(labels) if self.reduction == "sum" else total

    @abstractmethod
    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the batch mean of the loss and its terms by name, from checked float32 inputs."""
        raise NotImplementedError(f"{type(self).__name__} does not define compute().")

    def after_step(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> None:
        """Update state after the optimiser step, from the training-mode forward of that batch."""

    def end_epoch(self, epoch: int, val_logits: Tensor | None, val_labels: Tensor | None) -> None:
        """Update state after ``epoch`` (counted from 0), from the validation logits (M, C) and
        labels (M,).
        """

    def sample_table(self, epoch: int) -> dict[str, Tensor] | None:
        """Return records of each training sample in ``epoch``, by column, each (S,) on the CPU, or
        None.

        Called at the end of sampled epochs, before :meth:`pop_diagnostics`.
        """
        return None

    def pop_diagnostics(self) -> dict[str, float]:
        """Return additional columns of the history for the epoch, and reset them.

        A loss that uses the validation split during training has a column ``sees_validation`` of
        ones.
        """
        return {"sees_validation": 1.0} if self.registered.get("sees_validation") else {}

    def begin_training(self, labels: Tensor) -> None:
        """Prepare for the training split with labels (S,): allocate buffers for all its samples, so
        that they need not grow.
        """
        for module in self.modules():
            if isinstance(module, PerSample):
                module.reserve(len(labels))

    def validation(self, logits: Tensor | None, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the validation logits (M, C) as float32 and labels (M,) of :meth:`end_epoch`,
        checked.

        Raises
        ------
        DataError : they are missing, empty or invalid.
        """
        if logits is None or labels is None:
            raise DataError(
                f"loss '{self.id}' reads the validation split; pass its logits to end_epoch()."
            )
        self._check(logits, labels, None, None, ())
        return logits.detach().float(), labels

    def _check(
        self,
        logits: Tensor,
        labels: Tensor,
        features: Tensor | None,
        index: Tensor | None,
        needs: tuple[str, ...],
    ) -> None:
        if (
            logits.ndim != 2
            or logits.shape[1] != self.num_classes
            or not logits.is_floating_point()
        ):
            shape, kind = tuple(logits.shape), logits.dtype
            raise DataError(
                f"loss '{self.id}': logits must be floating (N, {self.num_classes}), got {kind} "
                f"{shape}."
            )
        count = logits.shape[0]
        if count == 0:
            raise DataError(
                f"loss '{self.id}': the batch is empty; a loss needs at least one sample."
            )
        self._check_integers("labels", labels, count)
        for name, value in (("features", features), ("index", index)):
            if value is None and name in needs:
                raise DataError(f"loss '{self.id}' needs {name}; pass {name}= in the call.")
        if features is not None and (features.ndim != 2 or features.shape[0] != count):
            raise DataError(
                f"loss '{self.id}': features must be ({count}, d), got {tuple(features.shape)}."
            )
        if index is not None:
            self._check_integers("index", index, count)
        if labels.is_cpu or not self._labels_seen:
            low, high = (int(bound) for bound in labels.aminmax())
            if low < 0 or high >= self.num_classes:
                wrong = low if low < 0 else high
                raise DataError(
                    f"loss '{self.id}': labels must lie in [0, {self.num_classes - 1}], got "
                    f"{wrong}; check num_classes and the labels of the data set."
                )
            self._labels_seen = True
        if logits.is_cpu:
            self._check_finite(logits.detach())

    def _check_finite(self, logits: Tensor) -> None:
        # one pass; checked again below, because the sum of finite logits may overflow
        if math.isfinite(logits.sum()):
            return
        wrong = (~logits.isfinite()).any(dim=1).nonzero()
        if len(wrong) > 0:
            raise DataError(
                f"loss '{self.id}': logits of {len(wrong)} of {len(logits)} rows of the batch are "
                f"not finite, first {row_at(int(wrong[0]))}: training diverged or the input is "
                "damaged; lower the learning rate or clip gradients."
            )

    def _check_integers(self, name: str, values: Tensor, count: int) -> None:
        kind = values.dtype
        if values.shape != (count,) or kind not in INTEGERS:
            shape = tuple(values.shape)
            raise DataError(
                f"loss '{self.id}': {name} must be integers ({count},), got {kind} {shape}."
            )


def build_loss(
    id: str,
    num_classes: int,
    dataset: str | None = None,
    backbone: str | None = None,
    **overrides: Any,
) -> Loss:
    """Build a training loss with the published hyper-parameters of a data set.

    Parameters
    ----------
    id : identifier of the loss, the name of its file (``"fedlas_ls"``).
    num_classes : number of classes C, at least 2.
    dataset, backbone : where the loss will be used; they select its published defaults there.
    overrides : hyper-parameters of the loss, and ``reduction`` (``"mean"``, or ``"sum"`` over the
        batch), that win over the defaults. Learned gates and random indicators are initialised from
        torch's global generator.

    Returns
    -------
    A module called ``loss(logits, labels, features=None, index=None)``; see :class:`Loss`.

    Raises
    ------
    ConfigError : the loss or a hyper-parameter does not exist, or a value has the wrong type or
        range.
    """
    component = registry.description_of(registry.load("loss", id))
    return planned_loss(id, num_classes, component.resolve(overrides, dataset, backbone))


def planned_loss(id: str, num_classes: int, options: Options) -> Loss:
    """Build the loss of a plan, whose options were checked, and are all given."""
    own = {name: value for name, value in options.items() if name != "reduction"}
    loss: Loss = registry.load("loss", id)(num_classes, **own)
    loss.reduction = options["reduction"]
    return loss


def cross_entropy(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Negative log-likelihood ``-log p_y``: (N, C), (N,) -> (N,)."""
    return -log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)


def uniform_cross_entropy(log_probs: Tensor) -> Tensor:
    """Cross-entropy against the uniform distribution, ``-(1/C) sum_c log p_c``: (N, C) -> (N,)."""
    return -log_probs.mean(dim=1)


def entropy(log_probs: Tensor) -> Tensor:
    """Shannon entropy ``-sum_c p_c log p_c`` in nats: (N, C) -> (N,)."""
    return -(log_probs.exp() * log_probs).sum(dim=1)


def margin_excess(logits: Tensor, margin: float) -> Tensor:
    """Mean excess of the logit distances over a margin, ``mean_c relu(max_l s_l - s_c - m)``: (N,
    C) -> (N,).

    The gradient also flows through the largest logit. The papers of MbLS and FeDLaS (Eq. 6) have a
    sum over classes; the official code of MbLS, ACLS and FeDLaS averages, and the published weights
    are for the average.
    """
    largest = logits.max(dim=1, keepdim=True).values
    return (largest - logits - margin).relu().mean(dim=1)


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Indicator ``1[c = y]`` in float32: (N,) -> (N, C)."""
    zeros = torch.zeros(len(labels), num_classes, device=labels.device)
    return zeros.scatter_(1, labels.unsqueeze(1), 1.0)


def complement(log_p: Tensor) -> Tensor:
    """``1 - p`` from ``log p`` (N,), also exact if p rounds to 1."""
    return -log_p.expm1()


def modulation(base: Tensor, gamma: float | Tensor) -> Tensor:
    """``base ** gamma`` for base (N,) in [0, inf), with finite gradients everywhere."""
    return base.clamp_min(FLOOR).pow(gamma)


def frequency_gap(probs: Tensor, labels: Tensor) -> Tensor:
    """``(1/C) sum_c |mean_i p_ic - mean_i 1[y_i = c]|``, scalar, of probabilities (N, C) and labels
    (N,).

    The factor 1/C makes the term small for many classes; for N < C the frequencies in a batch are
    mostly noise.
    """
    return (probs.mean(dim=0) - one_hot(labels, probs.shape[1]).mean(dim=0)).abs().mean()


def top_confidence(log_probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return confidence ``max_c p_c`` (N,) and correctness (N,), 0.0 or 1.0, without gradient."""
    largest, predicted = log_probs.max(dim=1)
    return largest.exp(), (predicted == labels).float()


def kernel_form(gap: Tensor, pairs: Tensor) -> Tensor:
    """``sum_ij g_i g_j k_ij``, scalar, of gaps g (N,) and a kernel (N, N).

    Sums instead of a matrix product, which a GPU may compute in TF32.
    """
    return (gap * (pairs * gap).sum(dim=1)).sum()


def kernel(confidence: Tensor) -> Tensor:
    """Laplacian kernel ``exp(-|k_i - k_j| / 0.4)`` (N, N) of confidences (N,), through which the
    gradient flows.
    """
    return ((confidence.unsqueeze(0) - confidence.unsqueeze(1)).abs() / -KERNEL_WIDTH).exp()
