"""Parameterised temperature scaling: the temperature of a sample is a function of its ten largest
logits.
"""

from typing import Literal

import numpy as np

from calgrid.calibrators._network import Adam
from calgrid.calibrators._objectives import SquaredLoss
from calgrid.calibrators._probabilities import Array, Head, History, Labels, centred, namespace
from calgrid.calibrators._temperature import KEPT
from calgrid.calibrators._temperature_network import (
    BOUND,
    LIMITS,
    T_MAX,
    FullBatchNetwork,
    TopLogitsNetwork,
)
from calgrid.components.registry import register

#: range of temperatures
T_BOUNDS = (1e-12, 1e12)
#: epsilon of Keras's Adam
EPSILON = 1e-7


@register(
    id="pts",
    source="Tomani, Cremers, Buettner, Parameterized Temperature Scaling, ECCV 2022, arXiv "
    "2102.12182",
    keeps_argmax=True,
    parameters="91",
    limits=LIMITS,
)
class ParameterisedTemperature(TopLogitsNetwork, FullBatchNetwork):
    """Parameterised temperature scaling (PTS), in a form that trains in seconds.

    The ten largest logits of a sample (all of them if K < 10), in descending order, go through
    Linear(10, 5), ReLU, Linear(5, 5), ReLU, Linear(5, 1) to a temperature T; the output is
    ``softmax(z / T)``. The objective is the squared distance of the probabilities from the one-hot
    label, the paper's times K.

    Network and objective are those of the paper. Differences, because the paper's ``T = |t|`` can
    cross zero during the fit and needs 100,000 steps from a random start (``pts_paper`` is
    as published): ``T = softplus(t) + 0.001``, at most 100;
    each input is standardised over the validation samples; the last layer starts at weights 0 and
    the bias of temperature scaling; full-batch Adam of at most 2000 steps, patience 200 on the
    training loss; the weights of the lowest loss are kept. As there, the mean of the row's finite
    logits is subtracted and inputs are clipped to ±100. Logits are in units of their spread
    (``logit_scale``), so that their scale does not matter. The loss may still decrease at the last
    step: few steps limit the overfitting of 91 weights.

    The learning rate is small because 91 weights overfit 5,000 samples. Held-out NLL in nats over
    five folds of the validation rows, of temperature scaling, and with the rates 0.005, 0.001,
    0.0005 and 0.0002:

    - CIFAR-10 ResNet-50: 0.179; 0.262, 0.238, 0.204, 0.178;
    - CIFAR-10 LeNet-5: 1.323; 1.356, 1.357, 1.337, 1.328;
    - CIFAR-10 VGG-16: 0.219; 0.269, 0.245, 0.221, 0.220;
    - CIFAR-100 DenseNet: 0.878; 0.907, 0.895, 0.889, 0.877.

    Inputs without standardisation give slightly better results, but for some seeds all hidden units
    are always 0.

    ``fit_history`` is that of ``smart`` without ``guard``; parameters are those of the base class.
    """

    floor = 1e-3
    #: temperatures below 0.025 occur only for separable data
    tabulated = (1.0 / T_MAX, 40.0)

    objective: Literal["nll", "ls", "mse", "brier", "softece", "charbonnier", "pointwise"] = "brier"
    learning_rate: float = 2e-4

    def _start(self, logits: Array, labels: Labels) -> tuple[Array, dict[str, float]]:
        parameters, history = super()._start(logits, labels)
        self.network.layers(parameters)[-1][0][...] = 0.0
        return parameters, history


@register(
    id="pts_paper",
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
        found = self._temperature_history(values, kept)
        return {"loss": losses, "epochs": len(losses), **found}
