"""Ensemble temperature scaling: a mixture of the tempered softmax, the plain softmax and the
uniform distribution.
"""

from itertools import combinations
from typing import Literal

import numpy as np
from scipy.optimize import minimize

from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    logit_scale,
    namespace,
    rescaled,
    softmax,
)
from calgrid.calibrators._temperature import KEPT, Objective, fit_temperature, lowest_beta
from calgrid.calibrators._validation import IMPOSSIBLE
from calgrid.calibrators.base import Calibrator
from calgrid.components.registry import register
from calgrid.metrics.moments import LEAST_EXPONENT, row_blocks

#: minimum weight of the plain softmax, so that the uniform distribution alone does not make all
#: classes equal
TIE_BREAK = 1e-6
#: lower bound of probabilities in logarithms
LEAST = 1e-300


def uniform(logits: Array) -> Array:
    """Return the uniform distribution over classes with a finite logit, ``(N, K)``, or ``(N, 1)``
    if all are finite.
    """
    xp = namespace(logits)
    if xp is np and logits.min() > -np.inf:
        return np.full((len(logits), 1), 1.0 / logits.shape[1])
    possible = xp.where(logits > -np.inf, xp.ones_like(logits), 0.0)
    return possible / possible.sum(axis=1, keepdims=True)


def squared_error(logits: Array, labels: Labels) -> Objective:
    """Return the mean of ``sum_k (p_k - y_k)^2`` of ``softmax(beta z)`` as a function of beta,
    which is not convex.
    """
    true_logits = np.maximum(logits[np.arange(len(labels)), labels], -IMPOSSIBLE)

    def objective(beta: float, rows: slice) -> tuple[float, float]:
        used, true = logits[rows], true_logits[rows]
        total, first, square, square_first = np.empty((4, len(used)))
        ones = np.ones(logits.shape[1])
        for block in row_blocks(*used.shape):
            # half, because the weights are squared
            finite = np.maximum(used[block], 0.5 * LEAST_EXPONENT / beta)
            weights = np.exp(beta * finite)
            np.matmul(weights, ones, out=total[block])
            np.vecdot(weights, weights, out=square[block])
            finite *= weights
            np.matmul(finite, ones, out=first[block])
            np.vecdot(weights, finite, out=square_first[block])
        mean, p_true = first / total, np.exp(beta * true) / total
        square, square_first = square / total**2, square_first / total**2
        slope = 2.0 * (square_first - mean * square) - 2.0 * p_true * (true - mean)
        return float((square - 2.0 * p_true).mean()) + 1.0, float(slope.mean())

    return objective


def quadratic_on_simplex(matrix: Array, vector: Array) -> Array:
    """Return the w ``(n,)`` on the simplex that minimises ``w^T A w - 2 b^T w``, A ``(n, n)``
    positive semidefinite.

    For each face of the simplex (n is small) the minimum over its plane solves a linear system; the
    best minimum that lies in the simplex is returned.
    """
    n = len(vector)
    best, lowest = np.eye(n)[0], np.inf
    for size in range(1, n + 1):
        for face in map(list, combinations(range(n), size)):
            system = np.ones((size + 1, size + 1))
            system[:size, :size], system[size, size] = matrix[np.ix_(face, face)], 0.0
            # least squares, because equal members make the system singular
            solution = np.linalg.lstsq(system, np.append(vector[face], 1.0), rcond=None)[0][:size]
            weights = np.zeros(n)
            weights[face] = np.maximum(solution, 0.0)
            weights /= weights.sum()
            value = float(weights @ matrix @ weights - 2.0 * vector @ weights)
            # rounding must not replace a vertex by a mixture of equal value
            if value < lowest - 1e-14:
                best, lowest = weights, value
    return best


def likelihood_on_simplex(members: Array) -> Array:
    """Return the w ``(n,)`` on the simplex of highest mean ``ln sum_j w_j p_j[y]``; ``members`` is
    ``(N, n)``.

    Over all w >= 0, ``mean ln(P w) - sum w`` is concave and has its maximum at the same point,
    where ``sum w = 1``.
    """

    def objective(weights: Array) -> tuple[float, Array]:
        mixture = np.maximum(members @ weights, LEAST)
        slope = 1.0 - (1.0 / mixture) @ members / len(members)
        return float(weights.sum() - np.log(mixture).mean()), slope

    n_members = members.shape[1]
    options = {"ftol": 0.0, "gtol": 1e-10, "maxiter": 1000}
    start = np.full(n_members, 1.0 / n_members)
    result = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * n_members,
        options=options,
    )
    return result.x / result.x.sum()


@register(
    source="Zhang, Kailkhura, Han, Mix-n-Match, ICML 2020; official code Mix-n-Match-Calibration",
    keeps_argmax=True,
    parameters="3",
)
class EnsembleTemperatureScaling(Calibrator):
    """Ensemble temperature scaling, ``w_0 softmax(z / T) + w_1 softmax(z) + w_2 / K`` with w on the
    simplex.

    T is fitted first, then w, both by the same loss on the validation samples. The official code
    minimises the mean squared error over N K entries by L-BFGS-B over T in [0.05, 5], then by SLSQP
    from w = (1, 0, 0), where the factor 1/K in the loss makes it stop early for large K. Here T in
    [0.05, 100], in units of the logits' spread, is found by a scan and a root search, and w is
    exact: the squared error is a
    quadratic form of w, solved on each face of the simplex. The map depends on the scale of the
    logits, because the plain softmax is that of the unscaled logits.

    Ours: if all weight goes to the uniform distribution, because the predictions are unrelated to
    the labels, the plain softmax gets a weight of 1e-6, which keeps the predicted class. Where some
    logits are -inf, K counts the other classes.

    ``fit_history``: ``temperature``, ``beta``, ``w_tempered``, ``w_plain``, ``w_uniform``, ``loss``
    (of the mixture; squared errors are sums over classes, likelihoods in nats),
    ``temperature_loss`` (of T alone).

    Parameters
    ----------
    objective : ``"mse"``, as published, or ``"nll"``, where T is that of ``ts`` and w has the
        highest likelihood.
    """

    objective: Literal["mse", "nll"] = "mse"

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        scale = logit_scale(logits)
        scaled = rescaled(logits, scale)
        if self.objective == "mse":
            fit = lowest_beta(squared_error(scaled, labels), len(labels), scale)
        else:
            fit = fit_temperature(scaled, labels, scale)
        self.beta, warnings = fit.beta / scale, fit.warnings
        matrix, members = self._inner_products(logits, labels)
        vector = members.mean(axis=0)

        if self.objective == "mse":
            self.weights = quadratic_on_simplex(matrix, vector)
        else:
            self.weights = likelihood_on_simplex(members)
        if self.weights[2] > 1.0 - TIE_BREAK:
            self.weights = np.array([0.0, TIE_BREAK, 1.0 - TIE_BREAK])
            warnings.append(
                "All weight is on the uniform distribution: the predictions are unrelated to the "
                "labels."
            )

        def loss(weights: Array) -> float:
            if self.objective == "mse":
                return float(weights @ matrix @ weights - 2.0 * vector @ weights + 1.0)
            return float(-np.log(np.maximum(members @ weights, LEAST)).mean())

        unchanged = np.array([0.0, 1.0, 0.0])
        if loss(unchanged) < loss(self.weights):
            self.weights, warnings = unchanged, [KEPT]
        tempered, plain, equal = self.weights.tolist()
        return {
            "temperature": 1.0 / self.beta,
            "beta": self.beta,
            "w_tempered": tempered,
            "w_plain": plain,
            "w_uniform": equal,
            "loss": loss(self.weights),
            "temperature_loss": loss(np.array([1.0, 0.0, 0.0])),
            "warnings": warnings,
        }

    def _inner_products(self, logits: Array, labels: Labels) -> tuple[Array, Array]:
        """Return the mean inner products ``(3, 3)`` of the members' rows, and their probability of
        the label.
        """
        n_samples, n_classes = logits.shape
        equal = uniform(logits).max(axis=1)
        # all members are 0 for impossible classes, so their products with the uniform one are equal
        matrix = np.full((3, 3), equal.mean())
        members = np.repeat(equal[:, None], 3, axis=1)
        members[logits[np.arange(n_samples), labels] == -np.inf] = 0.0
        products = np.zeros((2, 2))
        for block in row_blocks(n_samples, n_classes):
            pair = (softmax(self.beta * logits[block]), softmax(logits[block]))
            for row in range(2):
                of_label = np.take_along_axis(pair[row], labels[block, None], axis=1)
                members[block, row] = of_label[:, 0]
                for column in range(row, 2):
                    products[row, column] += np.vdot(pair[row], pair[column])
        matrix[:2, :2] = (products + np.triu(products, 1).T) / n_samples
        return matrix, members

    def _transform(self, logits: Array, features: Array | None) -> Array:
        tempered, plain, equal = self.weights
        mixture = tempered * softmax(logits * self.beta)
        mixture += plain * softmax(logits)
        mixture += equal * uniform(logits)
        return mixture
