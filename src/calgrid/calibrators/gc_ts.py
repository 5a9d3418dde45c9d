"""Group calibration: a temperature for each group of learned partitions of the features, averaged
over partitions.
"""

from collections import Counter
from dataclasses import dataclass
from typing import cast

import numpy as np

from calgrid.calibrators._lbfgs import minimise_each
from calgrid.calibrators._objectives import TopLabelInputs
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    Mask,
    Places,
    possible_labels,
    softmax,
)
from calgrid.calibrators._temperature import BETA_BOUNDS, KEPT, fit_temperature
from calgrid.calibrators.base import Calibrator
from calgrid.components.registry import register
from calgrid.metrics.moments import row_blocks

SOURCE = (
    "Yang, Zhan, Gan, Beyond Probability Partitions: Calibrating Neural Networks with Semantic "
    "Aware Grouping, NeurIPS 2023; code ThyrixYang/group_calibration, methods/group_calibration.py"
)
LIMITS = {
    "seed": "[0, 4294967295]",
    "n_partitions": "[1, 100000]",
    "n_groups": "[1, 100000]",
    "penalty": "[0, inf)",
    "held_out": "[0, 1)",
    "min_group": "[1, inf)",
}
#: initial temperature of all groups, and maximum number of iterations, of the fit of a partition
START_TEMPERATURE = 1.5
MAX_ITERATIONS = 100


def _softmax_groups(scores: Array) -> tuple[Array, Array]:
    """Return the softmax of ``(V, G, N)`` over G, and the log of its denominator ``(V, 1, N)``."""
    largest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=1, keepdims=True)
    weights /= total
    return weights, largest + np.log(total)


@dataclass(frozen=True)
class PartitionLoss:
    """Loss of :class:`GroupTemperatureScaling` in W and ``beta_g = 1 / tau_g``, for U partitions,
    with gradients.

    Attributes
    ----------
    features : ``(N, d)``.
    evidence : the logits and labels of the N samples.
    weights : ``(U, N)``, the weight of each sample in each partition's mean.
    n_groups : G.
    penalty : weight of the mean square of W.
    """

    features: Array
    evidence: TopLabelInputs
    weights: Array
    n_groups: int
    penalty: float

    def __call__(self, parameters: Array, which: Places) -> tuple[Array, Array]:
        """Return losses ``(V,)`` and gradients for W ``(G, d)`` and ln beta ``(G,)`` of the
        partitions ``which``.
        """
        weight, log_beta = parameters[:, : -self.n_groups], parameters[:, -self.n_groups :]
        stacked = weight.reshape(log_beta.size, -1)
        # (V, G, N): the samples of a group are contiguous
        joint = (stacked @ self.features.T).reshape(*log_beta.shape, -1)
        share, log_sum = _softmax_groups(joint)
        joint -= log_sum
        slope, n_samples = np.empty_like(joint), len(self.features)
        # far outside the bounds the loss is flat, but must stay finite
        for place, beta in np.ndenumerate(np.exp(np.clip(log_beta, -50.0, 50.0))):
            total_beta, d_total = self.evidence.log_sum(np.full(n_samples, beta))
            joint[place] += -beta * self.evidence.label_gap - total_beta
            slope[place] = -beta * (self.evidence.label_gap + d_total)
        posterior, total = _softmax_groups(joint)
        share -= posterior
        share *= self.weights[which, None]
        slope *= posterior
        d_weight = (share.reshape(log_beta.size, -1) @ self.features).reshape(weight.shape)
        d_weight += 2.0 * self.penalty / weight.shape[1] * weight
        d_log_beta = -(slope @ self.weights[which, :, None])[..., 0]
        loss = self.penalty * np.square(weight).mean(axis=1) - np.vecdot(
            total[:, 0], self.weights[which]
        )
        return loss, np.concatenate([d_weight, d_log_beta], axis=1)

    def minimum(self, generator: np.random.Generator) -> tuple[Array, Array, int]:
        """Return W ``(U, G, d)`` at local minima, their losses, and the number of fits that did not
        converge.

        W is initialised as in PyTorch's Linear.
        """
        shape = (len(self.weights), self.n_groups, self.features.shape[1])
        weight = generator.uniform(-1.0, 1.0, shape).reshape(shape[0], -1) / np.sqrt(shape[2])
        log_beta = np.full(shape[:2], -np.log(START_TEMPERATURE))
        start = np.concatenate([weight, log_beta], axis=1)
        parameters, losses, failed = minimise_each(self, start, MAX_ITERATIONS)
        return parameters[:, : -self.n_groups].reshape(shape), losses, failed


@register(
    source=SOURCE,
    needs=("logits", "features"),
    keeps_argmax=True,
    parameters="n_partitions (d n_groups + n_groups)",
    limits=LIMITS,
)
class GroupTemperatureScaling(Calibrator):
    """Group calibration combined with temperature scaling, GC+TS.

    20 partitions of the features into 2 groups, each learned from a random start by minimising the
    NLL of a soft mixture (:class:`PartitionLoss`) by L-BFGS::

        -mean_i ln sum_g softmax(W f_i)_g softmax(z_i / tau_g)[y_i] + 0.1 mean(W^2)

    then a temperature of lowest NLL for each hard group ``argmax(W f)``, and the mean probability
    over partitions.

    Differences from the authors' code: features are standardised; logits are in units of their
    spread (``logit_scale``), in which tau stays within [0.05, 100]; a group with fewer than 50
    samples gets the temperature of all; and the temperatures of the groups are fitted on the half
    of the validation samples, drawn for each partition, that was not used to fit W. The authors
    also use different samples, a part of the test set. With the same samples for both
    (``held_out=0``) the groups overfit. Mean test NLL over three draws of synthetic data (2,000
    validation samples, 128 features, 10 classes): if the true temperature depends on the features
    1.331, with the same samples 1.368, temperature scaling 1.364; if it does not 1.330, 1.389,
    1.330.

    Halves are drawn by position, so another order of the rows is another draw, like another seed
    (probabilities changed by up to 0.03).

    ``fit_history``: ``partition_loss`` (mean over partitions), ``n_groups_fitted``,
    ``n_groups_too_small``.

    Parameters
    ----------
    n_partitions, n_groups : partitions, and groups in each.
    penalty : weight of the mean square of W.
    held_out : share of the samples, drawn for each partition, that calibrate its groups and are not
        used to fit W; with 0 all samples are used for both.
    min_group : minimum number of samples of a group with its own calibrator.
    seed : seed of the initial W and of the draws.
    """

    scale_free = True

    seed: int = 0
    n_partitions: int = 20
    n_groups: int = 2
    penalty: float = 0.1
    held_out: float = 0.5
    min_group: int = 50

    def _fit_group(self, logits: Array, labels: Labels) -> tuple[Array, list[str]]:
        """Return the parameters ``(P,)`` of one group's calibrator, and the warnings of its fit."""
        fit = fit_temperature(logits, labels, self._scale)
        return np.array([fit.beta]), fit.warnings

    def _unchanged(self) -> Array:
        """Return the parameters ``(P,)`` of a group that leave the logits as they are."""
        return np.array([self._scale])

    def _loss(self, probabilities: Array, labels: Labels) -> float:
        """Return the objective of the groups' calibrators at probabilities ``(N, K)``."""
        of_label = np.take_along_axis(probabilities, labels[:, None], axis=1)
        with np.errstate(divide="ignore"):
            return float(-np.log(of_label).mean())

    def _average(self, logits: Array, parameters: Array) -> Array:
        """Return the mean over partitions ``(N, K)`` for each sample's parameters ``(U, N, P)``."""
        total = np.zeros_like(logits)
        for beta in parameters:
            total += softmax(logits * beta)
        return total / len(parameters)

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        possible = np.flatnonzero(possible_labels(logits, labels))
        features = cast(Array, features)
        self.centre, spread = features.mean(axis=0), features.std(axis=0)
        # a feature that is constant up to rounding is set to 0
        self.spread = np.where(spread > 1e-9 * (1.0 + np.abs(self.centre)), spread, np.inf)
        standard = ((features - self.centre) / self.spread)[possible]
        evidence = TopLabelInputs.gather(logits, labels, *BETA_BOUNDS).rows(possible)
        generator = np.random.default_rng(self.seed)
        # which samples (U, N) calibrate the groups of each partition
        held = np.ones((self.n_partitions, len(possible)), dtype=bool)
        if self.held_out > 0.0:
            held[:] = np.arange(len(possible)) < int(self.held_out * len(possible))
            held = generator.permuted(held, axis=1)
        shapes = ~held if self.held_out > 0.0 else held
        weights = shapes / shapes.sum(axis=1, keepdims=True)
        search = PartitionLoss(standard, evidence, weights, self.n_groups, self.penalty)
        self.weight, loss, unfinished = search.minimum(generator)
        groups, used = self._groups(standard), (logits[possible], labels[possible])
        fitted, counts = self._fit_groups(*used, groups, held)
        warnings = [f"In {count} of {fitted} groups: {text}" for text, count in counts.items()]
        averaged = self._transform(used[0], features[possible])
        if self._loss(softmax(used[0] * self._scale), used[1]) < self._loss(averaged, used[1]):
            self.parameters[:] = self._unchanged()
            warnings = [KEPT]
        steps = f"the search for {unfinished} of {len(loss)} partitions took {MAX_ITERATIONS} steps"
        return {
            "unconverged": steps if unfinished else "",
            "partition_loss": float(loss.mean()),
            "n_groups_fitted": fitted,
            "n_groups_too_small": self.n_partitions * self.n_groups - fitted,
            "warnings": warnings,
        }

    def _fit_groups(
        self, logits: Array, labels: Labels, groups: Places, held: Mask
    ) -> tuple[int, Counter[str]]:
        """Set the parameters ``(U, G, P)`` of the groups' calibrators.

        Returns the number of groups with their own calibrator, and their warnings with the number
        of groups of each.
        """
        of_all, _ = self._fit_group(logits, labels)
        self.parameters = np.tile(of_all, (self.n_partitions, self.n_groups, 1))
        fitted, warned = 0, Counter[str]()
        for partition, group in np.ndindex(self.n_partitions, self.n_groups):
            rows = np.flatnonzero(held[partition] & (groups[partition] == group))
            if len(rows) >= self.min_group:
                self.parameters[partition, group], warnings = self._fit_group(
                    logits[rows], labels[rows]
                )
                warned.update(warnings)
                fitted += 1
        return fitted, warned

    def _groups(self, standard: Array) -> Places:
        """Return the group ``(U, N)`` of standardised features ``(N, d)`` in each partition."""
        score = standard @ self.weight.reshape(-1, self.weight.shape[2]).T
        return score.reshape(len(standard), self.n_partitions, self.n_groups).argmax(axis=2).T

    def _transform(self, logits: Array, features: Array | None) -> Array:
        groups = self._groups((features - self.centre) / self.spread)
        partitions = np.arange(self.n_partitions)[:, None]
        result = np.empty_like(logits)
        for block in row_blocks(*logits.shape):
            parameters = self.parameters[partitions, groups[:, block]]
            result[block] = self._average(logits[block], parameters)
        return result
