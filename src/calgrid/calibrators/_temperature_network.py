"""Calibrators whose temperature is the output of a small network."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._maps import count, make_cuts
from calgrid.calibrators._network import MLP, minimise
from calgrid.calibrators._objectives import LogLoss, Objective, TopLabelInputs, build_objective
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    Places,
    centred,
    inverse_softplus,
    largest,
    namespace,
    sigmoid,
    softplus,
)
from calgrid.calibrators._temperature import KEPT, fit_temperature, temperature_range
from calgrid.calibrators.base import SoftmaxCalibrator

#: maximum temperature in units of the logits, which limits extrapolation
T_MAX = 100.0
#: parameterised temperature scaling: number of largest logits, bound to which they are clipped
TOP, BOUND = 10, 100.0
#: epochs between two entries of a trace, and bins of its ECE
TRACE_INTERVAL, TRACE_BINS = 20, 15
#: ranges of the hyper-parameters of :class:`FullBatchNetwork`
LIMITS = {
    "seed": "[0, 4294967295]",
    "sigma": "(0, inf)",
    "delta": "(0, inf)",
    "alpha": "[0, 1)",
    "learning_rate": "(0, inf)",
    "max_epochs": "[1, inf)",
    "patience": "[1, inf)",
    "min_delta": "[0, inf)",
}


def fit_scaling(values: Array) -> Array:
    """Return mean, population standard deviation, minimum and maximum ``(4, D)`` of the finite
    values in ``(D, N)``.
    """
    scaling = np.zeros((4, len(values)))
    scaling[1] = 1.0
    for place, row in enumerate(values):
        finite = row[np.isfinite(row)]
        if len(finite):
            mean, deviation = finite.mean(), finite.std()
            # one sample, or equal values up to rounding: only subtract the mean
            varies = deviation > 1e-9 * max(1.0, abs(mean))
            scaling[:, place] = mean, deviation if varies else 1.0, finite.min(), finite.max()
    return scaling


def standardise(values: Array, scaling: Array) -> Array:
    """Return ``(values - mean) / deviation`` ``(D, N)`` with a scaling of :func:`fit_scaling`; inf
    becomes the mean.
    """
    mean, deviation = scaling[:2, :, None]
    xp = namespace(values)
    return (xp.where(xp.isfinite(values), values, mean) - mean) / deviation


@dataclass(frozen=True)
class NetworkObjective:
    """An objective as a function of the network's weights, with its gradient.

    Attributes
    ----------
    network, inputs : the network and its input ``(D, N)``.
    link : maps the output ``(N,)`` to temperatures and their derivatives, each ``(N,)``.
    evidence, objective : samples and objective of the fit.
    """

    network: MLP
    inputs: Array
    link: Callable[[Array], tuple[Array, Array]]
    evidence: TopLabelInputs
    objective: Objective

    def __call__(self, parameters: Array) -> tuple[float, Array]:
        """Return the loss and d loss / d parameters ``(P,)``."""
        output, layer_inputs = self.network.forward(parameters, self.inputs)
        temperature, d_output = self.link(output)
        beta = 1.0 / temperature
        loss, d_beta = self.objective(self.evidence, beta)
        d_temperature = -d_beta * beta**2
        return loss, self.network.gradient(parameters, layer_inputs, d_temperature * d_output)

    def traced(self, parameters: Array) -> dict[str, float]:
        """Return NLL, ECE and L2 norm of the gradient, as in Figs. 2 and 3 of the SMART paper."""
        beta = 1.0 / self.link(self.network.forward(parameters, self.inputs)[0])[0]
        probability, _ = self.evidence.confidence(beta)
        cuts = make_cuts(probability, TRACE_BINS, "width")
        sums = count(cuts, probability, self.evidence.correct)
        return {
            "trace_nll": LogLoss()(self.evidence, beta)[0],
            "trace_ece": float(np.abs(sums.confidence - sums.correct).sum()) / len(beta),
            "trace_gradient": float(np.linalg.norm(self(parameters)[1])),
        }

    def rows(self, samples: Places) -> Self:
        """Return the same for some samples."""
        return replace(self, inputs=self.inputs[:, samples], evidence=self.evidence.rows(samples))


class TemperatureNetwork(SoftmaxCalibrator):
    """``softmax(z / T)`` with T from a small network.

    A subclass sets the class attributes and overrides :meth:`_inputs`, :meth:`_link` and
    :meth:`_fit`, which sets :attr:`_scaling` and :attr:`_parameters`.
    """

    #: range of inverse temperatures in the table of the fit; rest(beta) is constant outside
    tabulated: ClassVar[tuple[float, float]]
    #: units of the hidden layers
    hidden: tuple[int, ...]
    #: minimum and maximum temperature, in units of the logits
    floor: ClassVar[float]
    ceiling: ClassVar[float] = T_MAX

    #: mean, deviation, minimum and maximum of the inputs ``(4, D)``
    _scaling: Array
    _parameters: Array

    @abstractmethod
    def _inputs(self, logits: Array) -> Array:
        """Return the network inputs ``(D, N)``, not yet standardised."""

    @abstractmethod
    def _link(self, output: Array) -> tuple[Array, Array]:
        """Return temperatures and their derivatives in the network's output, all ``(N,)``."""

    @property
    def network(self) -> MLP:
        """The network of a fit."""
        return MLP((self._scaling.shape[1], *self.hidden, 1))

    def _scaled(self, logits: Array) -> Array:
        """Return the logits ``(N, K)`` with row maximum 0 that are divided by T."""
        return logits

    @property
    def _input_scale(self) -> float:
        """Scale of the inputs if logits are divided by theirs."""
        return self._scale

    def temperature(self, values: Array) -> Array:
        """Return the temperature ``(N,)`` for inputs ``(D, N)``, or ``(N,)`` if D is 1; inf gets
        the mean's temperature.

        Inputs and temperatures are those of the logits as given to :meth:`predict_proba`.
        """
        return self._scale * self._temperature(np.atleast_2d(values) / self._input_scale)

    def _temperature(self, values: Array) -> Array:
        """Return the temperature ``(N,)`` for inputs ``(D, N)``, both in units of the logits."""
        inputs = standardise(values, self._scaling)
        output, _ = self.network.forward(self._parameters, inputs)
        return self._link(output)[0]

    def _problem(
        self, logits: Array, labels: Labels, values: Array, objective: Objective
    ) -> NetworkObjective:
        """Return the objective for inputs ``(D, N)``, standardised by :attr:`_scaling`."""
        lower, upper = self.tabulated
        evidence = TopLabelInputs.gather(
            self._scaled(logits), labels, lower, objective.reach * upper
        )
        inputs = standardise(values, self._scaling)
        return NetworkObjective(self.network, inputs, self._link, evidence, objective)

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return self._scaled(logits) / self._temperature(self._inputs(logits))[:, None]

    def _state(self) -> dict[str, NDArray[Any]]:
        return {"parameters": self._parameters, "scaling": self._scaling}

    def _load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._parameters = state["parameters"]
        self._scaling = state["scaling"].reshape(4, -1)
        if self._parameters.shape != (self.network.n_parameters,):
            raise ValueError(
                f"{self._parameters.shape} weights, expected ({self.network.n_parameters},)"
            )


class TopLogitsNetwork(TemperatureNetwork):
    """Network of the ten largest logits, clipped to ±100, with two hidden layers of five units."""

    hidden = (5, 5)

    def _inputs(self, logits: Array) -> Array:
        count = min(TOP, logits.shape[1])
        return namespace(logits).clip(largest(centred(logits), count), -BOUND, BOUND)


class FullBatchNetwork(TemperatureNetwork):
    """A network of standardised inputs with ``T = softplus(.) + floor``, fitted by full-batch Adam.

    The weights of the lowest loss are kept. A subclass overrides :meth:`_inputs`, and
    :meth:`_start` if the output bias alone does not make T that of temperature scaling.

    Parameters
    ----------
    seed : seed of the initial weights.
    objective : objective of the fit, as in :mod:`calgrid.calibrators.ts_objective`.
    sigma : width of a soft bin of ``charbonnier``, ``softece`` and ``pointwise``, in units of
        confidence.
    delta : half-width of the smooth part of the penalty of ``charbonnier`` and ``pointwise``.
    alpha : label smoothing of ``ls``.
    learning_rate, max_epochs, patience, min_delta : options of Adam and its early stopping on the
        training loss.
    trace : record NLL, ECE (15 bins) and gradient of the validation samples every 20th epoch.
    """

    scale_free = True

    seed: int = 0
    objective: Literal["nll", "ls", "mse", "brier", "softece", "charbonnier", "pointwise"] = (
        "charbonnier"
    )
    sigma: float = 0.05
    delta: float = 1e-3
    alpha: float = 0.05
    learning_rate: float = 5e-3
    max_epochs: int = 2000
    patience: int = 200
    min_delta: float = 1e-4
    trace: bool = False

    def _start(self, logits: Array, labels: Labels) -> tuple[Array, dict[str, float]]:
        """Return initial weights ``(P,)``, and entries for the history; T is near that of
        temperature scaling.
        """
        parameters = self.network.initial(np.random.default_rng(self.seed))
        temperature = self._single_temperature(logits, labels)
        parameters[-1] = inverse_softplus(temperature - self.floor)
        return parameters, {"start_temperature": temperature}

    def _constant(self, temperature: float) -> Array:
        """Return the weights ``(P,)`` that give every sample one temperature."""
        parameters = np.zeros(self.network.n_parameters)
        parameters[-1] = inverse_softplus(temperature - self.floor)
        return parameters

    def _single_temperature(self, logits: Array, labels: Labels) -> float:
        temperature = fit_temperature(logits, labels, self._scale).temperature
        return float(np.clip(temperature, 2 * self.floor, T_MAX / 10))

    def _link(self, output: Array) -> tuple[Array, Array]:
        value = softplus(output) + self.floor
        return namespace(output).clip(value, None, T_MAX), sigmoid(output) * (value < T_MAX)

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        values = self._inputs(logits)
        self._scaling = fit_scaling(values)
        start, start_history = self._start(logits, labels)
        objective = build_objective(
            self.objective, sigma=self.sigma, delta=self.delta, alpha=self.alpha
        )
        problem = self._problem(logits, labels, values, objective)
        trace: dict[str, list[float]] = {}

        def watch(epoch: int, parameters: Array) -> None:
            if self.trace and epoch % TRACE_INTERVAL == 0:
                for name, value in {"trace_epoch": epoch, **problem.traced(parameters)}.items():
                    trace.setdefault(name, []).append(value)

        self._parameters, history = minimise(
            problem,
            start,
            learning_rate=self.learning_rate,
            max_epochs=self.max_epochs,
            patience=self.patience,
            min_delta=self.min_delta,
            watch=watch,
        )
        history.update(start_history)
        unchanged, kept = self._unchanged_loss(logits, labels, problem), []
        if unchanged < history["best_loss"]:
            history["best_loss"], kept = unchanged, [KEPT]
            # T = 1 may lie outside the range of temperatures in units of the spread
            for name in start_history:
                history[name] *= self._scale
            values, self._scaling = values * self._input_scale, self._scaling * self._input_scale
            self._scale = 1.0
            self._parameters = self._constant(1.0)
        bounds = self.floor, self.ceiling
        found = temperature_range(self._temperature(values), bounds, kept)
        return {**history, **trace, **found}

    def _unchanged_loss(self, logits: Array, labels: Labels, problem: NetworkObjective) -> float:
        """Return the objective of the logits as they are."""
        beta, evidence = np.full(len(labels), self._scale), problem.evidence
        if not self.tabulated[0] <= self._scale <= self.tabulated[1]:
            reach = problem.objective.reach
            evidence = TopLabelInputs.gather(
                logits, labels, self._scale / 2.0, self._scale * 2.0 * reach
            )
        return problem.objective(evidence, beta)[0]
