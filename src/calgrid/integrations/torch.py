"""A fitted calibrator as a PyTorch module, and a classifier and its calibrator as one."""

import copy
import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from calgrid.calibrators import Calibrator
from calgrid.calibrators._probabilities import (
    FEWEST_ROUNDED,
    PROBABILITY_TOLERANCE,
    ROW_SUM_TOLERANCE,
    without_impossible,
)
from calgrid.calibrators._validation import IMPOSSIBLE
from calgrid.calibrators.base import no_module
from calgrid.class_names import as_names, shown_names
from calgrid.errors import ConfigError, DataError

#: without a type, because PyTorch declares none
is_tracing: Any = torch.jit.is_tracing  # type: ignore[attr-defined]


class CalibratorModule(nn.Module):
    """The map of a fitted calibrator: logits or probabilities, as of the fit, to calibrated
    probabilities of their dtype.

    Arithmetic is in float64, also for lower precision; the numbers of the fit stay float64 buffers
    after ``half()``. Another number of columns is an error. A row that NumPy refuses becomes NaN:
    one with NaN or +inf, without a finite logit, or that is not probabilities where the fit was.

    Raises
    ------
    ConfigError : the map takes no tensors.
    """

    def __init__(self, calibrator: Calibrator) -> None:
        super().__init__()
        #: its arrays become tensors
        self.fitted: Any = copy.copy(calibrator)
        self.names = tuple(calibrator._state())
        for name, value in calibrator._state().items():
            self.register_buffer(f"fitted_{name}", torch.tensor(value))
        self.unit: Tensor
        self.register_buffer("unit", torch.tensor(calibrator._scale, dtype=torch.float64))
        # a plain number would become float32 in ONNX
        self.lowest: Tensor
        self.register_buffer(
            "lowest", torch.tensor(-IMPOSSIBLE, dtype=torch.float64), persistent=False
        )
        # functions of NumPy would be constants of a recorded module
        abstract = copy.deepcopy(self).to("meta")
        shape: Any = (2,) if self.fitted.binary else (2, self.fitted.n_classes)
        try:
            abstract(torch.empty(shape, device="meta"))
        except Exception as error:
            raise no_module(self.fitted.id, "its _transform takes no tensors") from error

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def moved(tensor: Tensor) -> Tensor:
            result = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        return super()._apply(moved, recurse)  # type: ignore[no-untyped-call]

    def forward(self, values: Tensor) -> Tensor:
        """Return probabilities ``(N, K)`` of ``(N, K)``; of ``(N,)`` or ``(N, 1)``, the numbers of
        class 1 of two, if the fit was given one column.
        """
        if not is_tracing():
            return self._probabilities(values)
        with warnings.catch_warnings():
            # a map reads sizes of the fit
            warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined]
            return self._probabilities(values)

    def _probabilities(self, values: Tensor) -> Tensor:
        logits: Any = values.to(torch.float64)
        of_probabilities = self.fitted.kind == "probabilities"
        if self.fitted.binary:
            is_column = logits.dim() == 1 or (logits.dim() == 2 and logits.shape[1] == 1)
            if not is_tracing() and not is_column:
                raise ValueError("The calibrator was fitted on one column, class 1 of two.")
            # to (rows,) and not (-1,): an error in a traced module, too, if there are more columns
            logits = logits.reshape(logits.shape[0])
            other = 1.0 - logits if of_probabilities else torch.zeros_like(logits)
            logits = torch.stack([other, logits], dim=1)
        n_classes = self.fitted.n_classes
        if not is_tracing() and (logits.dim() != 2 or logits.shape[1] != n_classes):
            raise ValueError("The calibrator was fitted on another number of classes.")
        logits = logits.reshape(logits.shape[0], n_classes)
        usable = self._usable(logits)
        if of_probabilities:
            logits = logits.clamp(min=float(np.finfo(np.float32).tiny)).log()
        logits = logits - logits.amax(dim=1, keepdim=True)
        logits = torch.where(logits < self.lowest, -torch.inf, logits)
        state: Any = {name: getattr(self, f"fitted_{name}") for name in self.names}
        self.fitted._load_state(state)
        probabilities = self.fitted._transform(logits / self.unit, None)
        if not self.fitted.maps_impossible:
            probabilities = without_impossible(logits, probabilities)
        probabilities = torch.where(usable, probabilities, torch.nan)
        return probabilities.to(values.dtype if values.is_floating_point() else torch.float32)

    def _usable(self, values: Tensor) -> Tensor:
        """Return whether NumPy would accept each row of values ``(N, K)``, as ``(N, 1)``."""
        # comparisons with NaN are false in all runtimes; some pass it over in maxima and sums
        if self.fitted.kind == "probabilities":
            valid = (values >= 0.0) & (values <= 1.0 + ROW_SUM_TOLERANCE)
            total = torch.where(valid, values, 0.0).sum(dim=1, keepdim=True)
            some = (total - 1.0).abs() <= ROW_SUM_TOLERANCE
        else:
            valid = values < torch.inf
            some = (values > -torch.inf).any(dim=1, keepdim=True)
        return some & valid.all(dim=1, keepdim=True)


class CalibratedModule(nn.Module):
    """A trained classifier that returns calibrated probabilities.

    The output of the network goes through :meth:`~calgrid.calibrators.Calibrator.module` on its
    device, so that both can be traced, exported and compiled together; the numbers of the
    calibrator are in the ``state_dict``. Calibrators without a module (those that use features)
    run in NumPy on the CPU. Arithmetic is in float64, without gradients. The module is in
    evaluation mode, as the logits of the calibrator's fit.

    Parameters
    ----------
    model : returns logits ``(N, K)`` (or probabilities, if the calibrator was fitted on them); for
        calibrators that use features, a pair of logits and features ``(N, d)``.
    calibrator : fitted on logits (and features) of this model.

    Raises
    ------
    StateError : the calibrator is not fitted.
    DataError : the model names its ``classes``, and they differ from those of the fit.
    """

    def __init__(self, model: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        names, fitted = as_names(getattr(model, "classes", None)), calibrator.class_names
        if names and fitted and tuple(names) != fitted:
            raise DataError(
                f"The model has the classes {shown_names(names)}, but the calibrator was fitted on "
                f"{shown_names(fitted)}; use the same model, with its classes in the same order."
            )
        self.model = model
        self.calibrator = calibrator
        self.calibration: nn.Module | None = None
        self.reason = ""
        try:
            self.calibration = calibrator.module()
        except ConfigError as error:
            self.reason = str(error)
        self.eval()

    @torch.no_grad()
    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return probabilities ``(N, K)`` with the device and dtype of the logits; arguments are
        the model's.

        Raises
        ------
        DataError : the output of the model does not match the fit of the calibrator.
        ConfigError : PyTorch traces, exports or compiles a calibrator without a module.
        """
        output = self.model(*inputs, **named)
        logits, features = output if isinstance(output, tuple) else (output, None)
        if self.calibration is not None:
            if not is_recorded():
                self._check(logits)
            probabilities: Tensor = self.calibration(logits)
            return probabilities
        if is_recorded():
            raise ConfigError(
                f"{self.reason.rstrip('.')}, without tracing, export or compilation, which would "
                "store its output as a constant."
            )
        given = None if features is None else features.cpu()
        return torch.from_numpy(self.calibrator.predict_proba(logits.cpu(), given)).to(logits)

    def _check(self, values: Tensor) -> None:
        """Raise DataError for numbers of another shape or kind than in the fit, and for ones that
        are not finite.
        """
        calibrator = self.calibrator
        expected = f"{calibrator.n_classes} classes"
        fits = values.ndim == 2 and values.shape[1] == calibrator.n_classes
        if calibrator.binary:
            expected = "one column, for class 1 of two"
            fits = values.ndim == 1 or values.shape[1:] == (1,)
        if not fits:
            raise DataError(
                f"The model returns numbers of shape {tuple(values.shape)}, but the calibrator was "
                f"fitted on {expected}; use the same model."
            )
        rows = values.double().reshape(len(values), -1)
        if not rows.amax(dim=1).isfinite().all():
            raise DataError(
                "The model returns a row with NaN, +inf or no finite number; run it in float32."
            )
        least, most = rows.min(), rows.max()
        off = (rows.sum(dim=1) - 1).abs().max()
        if calibrator.kind == "probabilities":
            in_unit = least >= 0 and most <= 1 + ROW_SUM_TOLERANCE
            if not (in_unit and (calibrator.binary or off <= ROW_SUM_TOLERANCE)):
                raise DataError(
                    "The model returns numbers outside [0, 1] or rows that do not sum to 1, but "
                    "the calibrator was fitted on probabilities; add the softmax of the fit."
                )
            return
        looks_alike = bool(off <= PROBABILITY_TOLERANCE)
        if calibrator.binary:
            # a few logits lie between 0 and 1 by chance
            looks_alike = len(rows) >= FEWEST_ROUNDED and bool(most <= 1 + PROBABILITY_TOLERANCE)
        if looks_alike and least >= -PROBABILITY_TOLERANCE:
            raise DataError(
                "The model returns probabilities, but the calibrator was fitted on logits; remove "
                "its softmax."
            )


def is_recorded() -> bool:
    """Whether PyTorch traces, exports or compiles, so that values cannot be checked."""
    return bool(is_tracing()) or torch.compiler.is_compiling()
