"""A classifier of PyTorch and a fitted calibrator as one module."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calgrid.calibrators import Calibrator
from calgrid.errors import StateError


class CalibratedModule(nn.Module):
    """A trained classifier whose outputs are calibrated probabilities.

    The network runs where it is; its logits are calibrated in float64 on the CPU, without gradients. The module is in
    evaluation mode, since the calibrator was fitted on logits of this mode. A ``state_dict`` holds the network alone:
    the calibrator has its own :meth:`~calgrid.calibrators.Calibrator.save`.

    Parameters
    ----------
    model : returns logits ``(N, K)``; for calibrators that need features a pair of logits and features ``(N, d)``.
    calibrator : fitted on logits (and features) of this model.

    Raises
    ------
    StateError : the calibrator is not fitted.
    """

    def __init__(self, model: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        if calibrator.n_classes is None:
            raise StateError(f"Calibrator '{calibrator.id}' is not fitted: call its fit(logits, labels) first.")
        self.model = model
        self.calibrator = calibrator
        self.eval()

    @torch.no_grad()
    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return probabilities ``(N, K)`` on the device of the logits, of their type; arguments are the model's.

        Raises
        ------
        DataError : what the model returns is not what the calibrator was fitted on.
        """
        found = self.model(*inputs, **named)
        logits, features = found if isinstance(found, tuple) else (found, None)
        probabilities = self.calibrator.predict_proba(_array(logits), None if features is None else _array(features))
        return torch.from_numpy(probabilities).to(logits)


def _array(values: Tensor) -> np.ndarray:
    """Values of a tensor of any floating type and device, float64."""
    return values.double().cpu().numpy()
