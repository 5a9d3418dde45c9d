"""Parameterised temperature scaling: the temperature of a sample is a function of its ten largest
logits.
"""

from typing import Literal

from calgrid.calibrators._probabilities import Array, Labels
from calgrid.calibrators._temperature_network import (
    LIMITS,
    T_MAX,
    FullBatchNetwork,
    TopLogitsNetwork,
)
from calgrid.components.registry import register


@register(
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
    cross zero during the fit and needs 100,000 steps from a random start (:mod:`pts_paper
    <calgrid.calibrators.pts_paper>` is as published): ``T = softplus(t) + 0.001``, at most 100;
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
