"""The network of parameterised temperature scaling: which numbers it reads and how many units it has."""

import numpy as np

from calgrid.calibrators._indicators import top_logits
from calgrid.calibrators._temperature_network import TemperatureNetwork
from calgrid.calibrators.base import Array

#: largest logits that are read, the bound that they are clipped to, units of the hidden layers
TOP, BOUND, HIDDEN = 10, 100.0, (5, 5)


class TopLogitsNetwork(TemperatureNetwork):
    """Reads the ten largest logits, clipped to ±100, through two layers of five units."""

    def _inputs(self, logits: Array) -> Array:
        return np.clip(top_logits(logits, min(TOP, logits.shape[1])), -BOUND, BOUND)

    def _sizes(self, n_inputs: int) -> tuple[int, ...]:
        return (n_inputs, *HIDDEN, 1)
