"""A PyTorch classifier and a fitted calibrator as one module."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calgrid.calibrators import Calibrator
from calgrid.calibrators._probabilities import PROBABILITY_TOLERANCE
from calgrid.errors import ConfigError, DataError, StateError


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
    """

    def __init__(self, model: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        if calibrator.n_classes is None:
            raise StateError(
                f"Calibrator '{calibrator.id}' is not fitted; call its fit(logits, labels) first."
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
        those of the model.

        Raises
        ------
        DataError : the output of the model does not match the fit of the calibrator.
        ConfigError : PyTorch traces, exports or compiles a calibrator without a module.
        """
        output = self.model(*inputs, **named)
        logits, features = output if isinstance(output, tuple) else (output, None)
        is_traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        is_recorded = is_traced or torch.compiler.is_compiling()
        if self.calibration is not None:
            if not is_recorded:
                self._check(logits)
            probabilities: Tensor = self.calibration(logits)
            return probabilities
        if is_recorded:
            raise ConfigError(
                f"{self.reason.rstrip('.')}, without tracing, export or compilation, which would "
                "store its output as a constant."
            )
        array = self.calibrator.predict_proba(
            _array(logits), None if features is None else _array(features)
        )
        return torch.from_numpy(array).to(logits)

    def _check(self, logits: Tensor) -> None:
        """Raise DataError for another number of classes, NaN, or probabilities in the place of
        logits.
        """
        calibrator = self.calibrator
        if calibrator.binary:
            return
        if logits.ndim != 2 or logits.shape[1] != calibrator.n_classes:
            raise DataError(
                f"The model returns numbers of shape {tuple(logits.shape)}, but the calibrator was "
                f"fitted on {calibrator.n_classes} classes; use the same model."
            )
        sums = logits.double().sum(dim=1)
        off = (sums - 1).abs().max()
        if calibrator.kind == "logits" and off <= PROBABILITY_TOLERANCE and logits.min() >= 0:
            raise DataError(
                "The model returns probabilities, but the calibrator was fitted on logits; remove "
                "its softmax."
            )
        if sums.isnan().any():
            raise DataError("The model returns NaN; run it in float32.")


def _array(values: Tensor) -> np.ndarray:
    """Tensor of any floating dtype and device as a float64 array."""
    return values.double().cpu().numpy()
