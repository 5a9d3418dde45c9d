"""Parameterised temperature scaling with the settings that its authors published."""

import numpy as np

from calgrid.calibrators._network import Adam
from calgrid.calibrators._objectives import SquaredLoss
from calgrid.calibrators._probabilities import Array, Head, History, Labels, centred, namespace
from calgrid.calibrators._temperature import KEPT, temperature_range
from calgrid.calibrators._temperature_network import BOUND, TopLogitsNetwork
from calgrid.components.registry import register

#: range of temperatures
T_BOUNDS = (1e-12, 1e12)
#: epsilon of Keras's Adam
EPSILON = 1e-7


@register(
    source="Tomani, Cremers, Buettner, Parameterized Temperature Scaling, ECCV 2022, arXiv "
    "2102.12182",
    keeps_argmax=True,
    parameters="91",
    slow_from=2,
    limits={
        "seed": "[0, 4294967295]",
        "learning_rate": "(0, inf)",
        "batch_size": "[1, inf)",
        "steps": "[1, inf)",
    },
)
class PublishedParameterisedTemperature(TopLogitsNetwork):
    """Parameterised temperature scaling (PTS) as published.

    The ten largest logits of a sample (all of them if K < 10), clipped to ±100, go through
    Linear(10, 5), ReLU, Linear(5, 5), ReLU, Linear(5, 1) to t; the output is ``softmax(z / T)`` of
    the clipped logits with ``T = |t|`` clamped to [1e-12, 1e12]. Objective: the mean of ``(p_k -
    y_k)^2`` over samples and classes. Adam with learning rate 5e-5 on batches of 1000, 100,000
    steps; Glorot-uniform weights and zero biases (Keras's default); the last weights are kept.
    Network, clamps and loss are those of the authors' code (github.com/tochris/pts-uncertainty); it
    does not set learning rate, batch size and steps: these are the values of independent ports,
    without weight decay.

    One deviation: the mean of the finite logits of a row is subtracted first, for invariance to a
    constant added to a row. As in the authors' code, the map depends on the scale of the logits. An
    impossible class (logit -inf) is clipped like any other and gets a small probability.

    ``|t|`` near 0 makes ``z / T`` very large and its gradient vanish. In the fit rest(beta) is
    tabulated for T in [0.001, 1000] and constant outside; the output is exact.

    ``fit_history``: ``loss`` (mean over the batches of each epoch), ``epochs``, and
    ``temperature_min``, ``_mean``, ``_max`` over the validation samples.

    Parameters
    ----------
    seed : seed of the initial weights and the order of the samples.
    learning_rate, batch_size, steps : options of Adam.
    """

    maps_impossible = True
    tabulated = (1e-3, 1e3)
    floor, ceiling = T_BOUNDS

    seed: int = 0
    learning_rate: float = 5e-5
    batch_size: int = 1000
    steps: int = 100_000

    def _scaled(self, logits: Array) -> Array:
        xp = namespace(logits)
        clipped = xp.clip(centred(logits), -BOUND, BOUND)
        return clipped - xp.amax(clipped, axis=1, keepdims=True)

    def _link(self, output: Array) -> tuple[Array, Array]:
        xp = namespace(output)
        value = xp.abs(output)
        temperature = xp.clip(value, *T_BOUNDS)
        return temperature, xp.sign(output) * (temperature == value)

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        values = self._inputs(logits)
        # mean 0, deviation 1: no standardisation
        self._scaling = np.array([[0.0], [1.0], [-BOUND], [BOUND]]) * np.ones(len(values))
        problem = self._problem(logits, labels, values, SquaredLoss(per_class=True))
        generator = np.random.default_rng(self.seed)
        self._parameters = self.network.glorot(generator)
        adam = Adam(self._parameters.size, self.learning_rate, EPSILON)
        losses: list[float] = []
        done = 0
        while done < self.steps:
            order = generator.permutation(len(labels))
            begins = range(0, len(order), self.batch_size)[: self.steps - done]
            total = 0.0
            for begin in begins:
                batch = problem.rows(order[begin : begin + self.batch_size])
                loss, gradient = batch(self._parameters)
                total += float(loss)
                adam.step(self._parameters, gradient)
            losses.append(total / len(begins))
            done += len(begins)
        identity = np.zeros_like(self._parameters)
        identity[-1] = 1.0
        kept = []
        if problem(identity)[0] < problem(self._parameters)[0]:
            self._parameters, kept = identity, [KEPT]
        found = temperature_range(self._temperature(values), T_BOUNDS, kept)
        return {"loss": losses, "epochs": len(losses), **found}
