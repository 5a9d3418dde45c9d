"""A PyTorch classifier and a fitted calibrator as one module."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calgrid.calibrators import Calibrator
from calgrid.errors import StateError


class CalibratedModule(nn.Module):
    """A trained classifier that returns calibrated probabilities.

    The network runs on its device; its logits are calibrated in float64 on the CPU, without
    gradients. The module is in evaluation mode, as the logits of the calibrator's fit. Its
    ``state_dict`` has only the network; save the calibrator with
    :meth:`~calgrid.calibrators.Calibrator.save`.

    Parameters
    ----------
    model : returns logits ``(N, K)``; for calibrators that use features, a pair of logits and
        features ``(N, d)``.
    calibrator : fitted on logits (and features) of this model.

    Raises
    ------
    StateError : the calibrator is not fitted.
    """

    def __init__(self, model: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        if calibrator.n_classes is None:
            raise StateError(
                f"Calibrator '{calibrator.id}' is not fitted: call its fit(logits, labels) first."
            )
        self.model = model
        self.calibrator = calibrator
        self.eval()

    @torch.no_grad()
    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return probabilities ``(N, K)`` with the device and dtype of the logits; arguments are
        those of the model.

        Raises
        ------
        DataError : the output of the model does not match the fit of the calibrator.
        """
        output = self.model(*inputs, **named)
        logits, features = output if isinstance(output, tuple) else (output, None)
        probabilities = self.calibrator.predict_proba(
            _array(logits), None if features is None else _array(features)
        )
        return torch.from_numpy(probabilities).to(logits)


def _array(values: Tensor) -> np.ndarray:
    """Tensor of any floating dtype and device as a float64 array."""
    return values.double().cpu().numpy()
