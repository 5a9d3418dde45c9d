"""Maps of fitted calibrators as PyTorch modules, from which :meth:`Calibrator.module` composes one.

All take and return float64 ``(N, K)`` and have their numbers as buffers. They use tensor operations
that ``torch.jit``, ``torch.export``, ``torch.compile`` and the ONNX exporter know, without
conditions on values.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calgrid.calibrators._probabilities import ROW_SUM_TOLERANCE

Array = NDArray[np.float64]
#: ``ln (erfc(z) exp(z^2) / t)`` as a polynomial of ``t = 1 / (1 + z / 2)``, highest power first, to
#: 1.2e-7 (Press et al., Numerical Recipes, section 6.2)
ERFC = [
    *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807),
    *(-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223),
]
#: without a type, because TorchScript reads no comments about types
is_tracing: Any = torch.jit.is_tracing  # type: ignore[attr-defined]


def _tensor(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values, dtype=np.float64))


class CalibratorModule(nn.Module):
    """Logits or probabilities, as of the fit, to calibrated probabilities of their dtype.

    Arithmetic and buffers are float64, also for lower precision and after ``half()``. Another
    number of columns is an error. A row that NumPy refuses becomes NaN: one with NaN or +inf,
    without a finite logit, or that is not probabilities where the fit was. Classes whose logit is
    below the row's largest plus ``lowest`` are impossible: their probability is 0, unless
    ``maps_impossible``.
    """

    def __init__(
        self,
        map: nn.Module,
        *,
        n_classes: int,
        unit: float,
        kind: str,
        binary: bool,
        lowest: float,
        maps_impossible: bool,
    ) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.map = map
        self.of_probabilities = kind == "probabilities"
        self.binary = binary
        self.maps_impossible = maps_impossible
        self.least = float(np.finfo(np.float32).tiny)
        self.tolerance = ROW_SUM_TOLERANCE
        self.nan = float("nan")
        self.unit: Tensor
        self.register_buffer("unit", _tensor(unit))
        # a plain number would become float32 in ONNX
        self.lowest: Tensor
        self.register_buffer("lowest", _tensor(lowest), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def moved(tensor: Tensor) -> Tensor:
            result = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, values: Tensor) -> Tensor:
        """Return probabilities ``(N, K)`` of ``(N, K)``; of ``(N,)`` or ``(N, 1)``, the numbers of
        class 1 of two, if the fit was given one column.
        """
        logits = values.to(torch.float64)
        if self.binary:
            is_column = logits.dim() == 1 or (logits.dim() == 2 and logits.shape[1] == 1)
            if not is_tracing() and not is_column:
                raise ValueError("The calibrator was fitted on one column, class 1 of two.")
            # to (rows,) and not (-1,): an error in a traced module, too, if there are more columns
            logits = logits.reshape(logits.shape[0])
            other = 1.0 - logits if self.of_probabilities else torch.zeros_like(logits)
            logits = torch.stack([other, logits], dim=1)
        if not is_tracing() and (logits.dim() != 2 or logits.shape[1] != self.n_classes):
            raise ValueError("The calibrator was fitted on another number of classes.")
        logits = logits.reshape(logits.shape[0], self.n_classes)
        usable = self.usable(logits)
        if self.of_probabilities:
            logits = logits.clamp(min=self.least).log()
        logits = logits - logits.amax(dim=1, keepdim=True)
        impossible = logits < self.lowest
        logits = torch.where(impossible, torch.full_like(logits, -float("inf")), logits)
        probabilities: Tensor = self.map(logits / self.unit)
        if not self.maps_impossible:
            possible = torch.where(impossible, torch.zeros_like(logits), probabilities)
            total = possible.sum(dim=1, keepdim=True)
            probabilities = torch.where(total > 0.0, possible / total, probabilities)
        probabilities = torch.where(usable, probabilities, torch.full_like(probabilities, self.nan))
        return probabilities.to(values.dtype if values.is_floating_point() else torch.float32)

    def usable(self, values: Tensor) -> Tensor:
        """Return whether each row of values ``(N, K)`` is one that NumPy takes, ``(N, 1)``."""
        # comparisons with NaN are false in all runtimes; some pass it over in maxima and sums
        if self.of_probabilities:
            valid = (values >= 0.0) & (values <= 1.0 + self.tolerance)
            total = torch.where(valid, values, torch.zeros_like(values)).sum(dim=1, keepdim=True)
            some = (total - 1.0).abs() <= self.tolerance
        else:
            valid = values < float("inf")
            some = (values > -float("inf")).to(torch.float64).sum(dim=1, keepdim=True) > 0.0
        return some & (valid.to(torch.float64).sum(dim=1, keepdim=True) > self.n_classes - 0.5)


class Mixture(nn.Module):
    """``w_0 softmax(beta z) + w_1 softmax(z) + w_2 / K``; K may count only classes whose logit is
    not -inf.
    """

    def __init__(
        self,
        beta: float = 1.0,
        weights: Sequence[float] = (1.0, 0.0, 0.0),
        among_possible: bool = False,
    ) -> None:
        super().__init__()
        self.among_possible = among_possible
        self.beta: Tensor
        self.weights: Tensor
        self.register_buffer("beta", _tensor(beta))
        self.register_buffer("weights", _tensor(weights))

    def forward(self, logits: Tensor) -> Tensor:
        """Return probabilities ``(N, K)`` of logits ``(N, K)``."""
        tempered = torch.softmax(logits * self.beta, dim=1)
        plain = torch.softmax(logits, dim=1)
        mixture = self.weights[0] * tempered + self.weights[1] * plain
        counted = torch.ones_like(logits)
        if self.among_possible:
            counted = (logits > -float("inf")).to(logits.dtype)
        return mixture + self.weights[2] * counted / counted.sum(dim=1, keepdim=True)


class Log(nn.Module):
    """``ln p`` within bounds."""

    def __init__(self, least: float, most: float = 0.0) -> None:
        super().__init__()
        self.least, self.most = float(least), float(most)

    def forward(self, probabilities: Tensor) -> Tensor:
        """Return logits ``(N, K)`` of probabilities ``(N, K)``."""
        return probabilities.log().clamp(min=self.least, max=self.most)


class Centred(nn.Module):
    """Logits minus the mean of a row's finite ones; -inf becomes the negative of a gap."""

    def __init__(self, gap: float) -> None:
        super().__init__()
        self.gap = float(gap)

    def forward(self, logits: Tensor) -> Tensor:
        """Return finite ``(N, K)`` of logits ``(N, K)`` with row maximum 0."""
        finite = logits > -float("inf")
        values = torch.where(finite, logits, torch.zeros_like(logits))
        mean = values.sum(dim=1, keepdim=True) / finite.to(logits.dtype).sum(dim=1, keepdim=True)
        return torch.where(finite, logits - mean, torch.full_like(logits, -self.gap))


class Affine(nn.Module):
    """``w * x + b`` for a weight ``(K,)``, ``W x + b`` for ``(K, K)``."""

    def __init__(self, weight: Array, bias: Array) -> None:
        super().__init__()
        self.full = weight.ndim == 2
        self.weight: Tensor
        self.bias: Tensor
        self.register_buffer("weight", _tensor(weight))
        self.register_buffer("bias", _tensor(bias))

    def forward(self, values: Tensor) -> Tensor:
        """Return scores ``(N, K)``."""
        if self.full:
            return values @ self.weight.t() + self.bias
        return values * self.weight + self.bias


class Indicator(nn.Module):
    """Inputs ``(N, D)`` of a network of temperatures, by their name in ``smart``; also ``largest``,
    the largest logits, and ``log_entropy``, ``ln(H / ln K)``.
    """

    def __init__(self, name: str, count: int, bound: float, least_entropy: float) -> None:
        super().__init__()
        self.name, self.count, self.bound = name, count, bound
        self.least_entropy = least_entropy
        self.centred = Centred(float("inf"))

    def forward(self, logits: Tensor) -> Tensor:
        """Return the indicators of logits ``(N, K)`` with row maximum 0."""
        probabilities = torch.softmax(logits, dim=1)
        terms = probabilities * probabilities.log()
        terms = torch.where(probabilities > 0.0, terms, torch.zeros_like(terms))
        values = -terms.sum(dim=1, keepdim=True)
        if self.name == "log_entropy":
            classes = torch.full_like(values, logits.shape[1])
            values = (values.clamp(min=self.least_entropy) / classes.log()).log()
        elif self.name == "margin":
            two = logits.topk(2, dim=1).values
            values = two[:, :1] - two[:, 1:]
        elif self.name == "confidence":
            values = probabilities.amax(dim=1, keepdim=True)
        elif self.name == "max_minus_mean":
            values = self.centred(logits).amax(dim=1, keepdim=True)
        elif self.name == "all_logits":
            values = self.centred(logits)
        elif self.name == "largest":
            largest = self.centred(logits).topk(self.count, dim=1).values
            values = largest.clamp(min=-self.bound, max=self.bound)
        return values


class SampleTemperature(nn.Module):
    """``softmax(z / T)`` with T from a network of indicators.

    Parameters
    ----------
    indicator : name of the inputs; ``count`` and ``bound`` are those of ``largest``.
    scaling : mean, deviation, least and greatest ``(4, D)`` of the inputs; ``clamp`` them to these.
    layers : weight ``(fan_out, fan_in)`` and bias ``(fan_out, 1)`` of each.
    floor, least, most : T is ``softplus(.) + floor``, or with ``absolute`` ``|.|``, within the
        other two.
    logit_bound : if positive, z is centred and clipped to it.
    """

    def __init__(
        self,
        indicator: str,
        scaling: Array,
        layers: Sequence[tuple[Array, Array]],
        *,
        floor: float,
        least: float,
        most: float,
        absolute: bool = False,
        clamp: bool = False,
        count: int = 0,
        bound: float = 0.0,
        logit_bound: float = 0.0,
        least_entropy: float = 0.0,
    ) -> None:
        super().__init__()
        self.indicator = Indicator(indicator, count, bound, least_entropy)
        parts: list[nn.Module] = []
        for weight, bias in layers:
            parts += [Affine(weight, bias[:, 0]), nn.ReLU()]
        self.network = nn.Sequential(*parts[:-1])
        self.scaling: Tensor
        self.register_buffer("scaling", _tensor(scaling))
        self.floor, self.least, self.most = float(floor), float(least), float(most)
        self.absolute, self.clamp, self.logit_bound = absolute, clamp, float(logit_bound)
        self.centred = Centred(1e100)

    def forward(self, logits: Tensor) -> Tensor:
        """Return probabilities ``(N, K)`` of logits ``(N, K)`` with row maximum 0."""
        inputs = self.indicator(logits)
        inputs = torch.where(inputs.abs() < float("inf"), inputs, self.scaling[0])
        if self.clamp:
            inputs = torch.minimum(torch.maximum(inputs, self.scaling[2]), self.scaling[3])
        output = self.network((inputs - self.scaling[0]) / self.scaling[1])
        # softplus of float64 is in no ONNX runtime
        positive = output.clamp(min=0.0) + torch.log1p(torch.exp(-output.abs())) + self.floor
        temperature = (output.abs() if self.absolute else positive).clamp(
            min=self.least, max=self.most
        )
        if self.logit_bound > 0.0:
            logits = self.centred(logits).clamp(min=-self.logit_bound, max=self.logit_bound)
        return torch.softmax(logits / temperature, dim=1)


class Piecewise(nn.Module):
    """Piecewise linear functions of C classes, or one of all (C = 1), by binary search.

    Parameters
    ----------
    knots : for each function, ascending ``(P,)``.
    points, values, slopes : for each, ``(P + 1,)``: between two knots, (low, high], the function is
        ``value + slope (x - point)``.
    """

    def __init__(
        self,
        knots: Sequence[Array],
        points: Sequence[Array],
        values: Sequence[Array],
        slopes: Sequence[Array],
    ) -> None:
        super().__init__()
        longest = max(len(one) for one in knots)
        depth = longest.bit_length()
        width = 2**depth
        self.steps = [2**power for power in reversed(range(depth))]
        self.knots: Tensor
        self.points: Tensor
        self.values: Tensor
        self.slopes: Tensor
        self.first: Tensor
        self.width = width
        for name, rows in {"points": points, "values": values, "slopes": slopes}.items():
            self._add(name, rows)
        # unused knots are never passed
        ends = [np.pad(row, (0, width - len(row)), constant_values=np.inf) for row in knots]
        self.register_buffer("knots", _tensor(np.concatenate(ends)))
        self.register_buffer("first", torch.arange(len(knots)) * width)

    def _add(self, name: str, rows: Sequence[Array]) -> None:
        padded = [np.pad(row, (0, self.width - len(row)), mode="edge") for row in rows]
        self.register_buffer(name, _tensor(np.concatenate(padded)))

    def piece(self, scores: Tensor) -> Tensor:
        """Return the place of each score's piece in the buffers."""
        piece = self.first + torch.zeros_like(scores, dtype=torch.int64)
        for step in self.steps:
            further = piece + step
            piece = torch.where(self.knots[further - 1] < scores, further, piece)
        return piece

    def forward(self, scores: Tensor) -> Tensor:
        """Return the functions of scores ``(N, C)``, or ``(N, K)`` if C is 1."""
        piece = self.piece(scores)
        return self.values[piece] + self.slopes[piece] * (scores - self.points[piece])


class Cubic(Piecewise):
    """Piecewise cubic functions: ``squares``, ``cubes`` are further coefficients of each piece."""

    def __init__(
        self,
        knots: Sequence[Array],
        points: Sequence[Array],
        coefficients: Sequence[Sequence[Array]],
    ) -> None:
        values, slopes, squares, cubes = coefficients
        super().__init__(knots, points, values, slopes)
        self.squares: Tensor
        self.cubes: Tensor
        self._add("squares", squares)
        self._add("cubes", cubes)

    def forward(self, scores: Tensor) -> Tensor:
        """Return the functions of scores ``(N, C)``."""
        piece = self.piece(scores)
        x = scores - self.points[piece]
        return self.values[piece] + x * (
            self.slopes[piece] + x * (self.squares[piece] + x * self.cubes[piece])
        )


def steps(cuts: Sequence[Array], rates: Sequence[Array]) -> Piecewise:
    """Step functions with values ``(P + 1,)`` between cuts ``(P,)``."""
    flat = [np.zeros(len(rate)) for rate in rates]
    return Piecewise(cuts, flat, rates, flat)


def lines(scores: Sequence[Array], rates: Sequence[Array]) -> Piecewise:
    """Functions that are linear between scores ``(P,)`` and constant outside, as ``np.interp``."""
    slopes = []
    for score, rate in zip(scores, rates, strict=True):
        slopes.append(np.concatenate([[0.0], np.diff(rate) / np.diff(score), [0.0]]))
    points = [np.concatenate([score[:1], score]) for score in scores]
    values = [np.concatenate([rate[:1], rate]) for rate in rates]
    return Piecewise(scores, points, values, slopes)


class TopLabel(nn.Module):
    """A function of the confidence; other classes share the rest in proportion to the softmax."""

    def __init__(self, function: Piecewise, nothing_left: float) -> None:
        super().__init__()
        self.function, self.nothing_left = function, nothing_left

    def forward(self, logits: Tensor) -> Tensor:
        """Return probabilities ``(N, K)`` of logits ``(N, K)`` with row maximum 0."""
        target = self.function(1.0 / logits.exp().sum(dim=1, keepdim=True))
        return share_rest(logits, target, self.nothing_left)


def is_top(logits: Tensor) -> Tensor:
    """Return whether each class is the predicted one, ``(N, K)``."""
    places = torch.arange(logits.shape[1], device=logits.device)
    return places == logits.argmax(dim=1, keepdim=True)


def share_rest(logits: Tensor, target: Tensor, nothing_left: float) -> Tensor:
    """Return probabilities ``(N, K)``: ``target`` ``(N, 1)`` of the predicted class, and the rest
    of the others in proportion to the softmax.
    """
    top, others = is_top(logits), logits.exp()
    nothing = torch.zeros_like(others)
    others = torch.where(top, nothing, others)
    rest = others.sum(dim=1, keepdim=True)
    others = torch.where(rest < nothing_left, torch.where(top, nothing, 1.0), others)
    shared = others * ((1.0 - target) / others.sum(dim=1, keepdim=True))
    return torch.where(top, target, shared)


def log_probabilities(logits: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """Return ln p and ln (1 - p) ``(N, K)``, at least ``least``, of logits with row maximum 0."""
    weights = logits.exp()
    total = weights.sum(dim=1, keepdim=True)
    top = is_top(logits)
    others = torch.where(top, torch.zeros_like(weights), weights).sum(dim=1, keepdim=True)
    rest = torch.where(top, others, total - weights)
    return (logits - total.log()).clamp(min=least), (rest.log() - total.log()).clamp(min=least)


class TopBeta(nn.Module):
    """``sigmoid(a ln s - b ln (1 - s) + c)`` of the confidence s; the others share the rest."""

    def __init__(self, coefficients: Array, least: float, nothing_left: float) -> None:
        super().__init__()
        self.least, self.nothing_left = least, nothing_left
        self.coefficients: Tensor
        self.register_buffer("coefficients", _tensor(coefficients))

    def forward(self, logits: Tensor) -> Tensor:
        """Return probabilities ``(N, K)`` of logits ``(N, K)`` with row maximum 0."""
        scores, rests = log_probabilities(logits, self.least)
        top = logits.argmax(dim=1, keepdim=True)
        of_top = self.coefficients[0] * scores.gather(1, top)
        of_rest = self.coefficients[1] * rests.gather(1, top)
        target = torch.sigmoid(of_top - of_rest + self.coefficients[2])
        return share_rest(logits, target, self.nothing_left)


class Beta(nn.Module):
    """``a ln p - b ln (1 - p) + c`` with coefficients ``(3, K)``."""

    def __init__(self, coefficients: Array) -> None:
        super().__init__()
        self.coefficients: Tensor
        self.register_buffer("coefficients", _tensor(coefficients))

    def forward(self, scores: Tensor, rests: Tensor) -> Tensor:
        """Return log odds ``(N, K)`` of ln p and ln (1 - p)."""
        return self.coefficients[0] * scores - self.coefficients[1] * rests + self.coefficients[2]


class OfLogOdds(nn.Module):
    """A function of ``ln p - ln (1 - p)``."""

    def __init__(self, function: Cubic) -> None:
        super().__init__()
        self.function = function

    def forward(self, scores: Tensor, rests: Tensor) -> Tensor:
        """Return log odds ``(N, K)`` of ln p and ln (1 - p)."""
        changed: Tensor = self.function(scores - rests)
        return changed


class PerClassOdds(nn.Module):
    """Log odds of each class from ln p and ln (1 - p); rows are divided by their sums.

    ``mapped`` ``(K,)`` says whether a class has a map; others keep their probability.
    """

    def __init__(self, function: nn.Module, mapped: NDArray[np.bool_], least: float) -> None:
        super().__init__()
        self.function, self.least = function, least
        self.mapped: Tensor
        self.register_buffer("mapped", torch.tensor(mapped))

    def forward(self, logits: Tensor) -> Tensor:
        """Return probabilities ``(N, K)`` of logits ``(N, K)`` with row maximum 0."""
        plain = torch.softmax(logits, dim=1)
        scores, rests = log_probabilities(logits, self.least)
        changed = torch.where(self.mapped, torch.sigmoid(self.function(scores, rests)), plain)
        total = changed.sum(dim=1, keepdim=True)
        return torch.where(total > 0.0, changed / total, plain)


class Kernel(nn.Module):
    """Mean label of points weighted by ``exp(ln p . shape + constant)``, and p as one of them."""

    def __init__(self, shape: Array, constant: Array, hits: Array, least: float) -> None:
        super().__init__()
        self.least = least
        self.shape: Tensor
        self.constant: Tensor
        self.hits: Tensor
        for name, value in {"shape": shape, "constant": constant, "hits": hits}.items():
            self.register_buffer(name, _tensor(value))

    def forward(self, logits: Tensor) -> Tensor:
        """Return probabilities ``(N, K)`` of logits ``(N, K)``."""
        plain = torch.softmax(logits, dim=1)
        scores = plain.clamp(min=self.least).log() @ self.shape.t() + self.constant
        number = self.hits.shape[0]
        return (number * (torch.softmax(scores, dim=1) @ self.hits) + plain) / (number + 1.0)


class Consistency(nn.Module):
    """Probability that a class is the largest after normal noise of standard deviation
    ``strength``, summed over ``points`` ``(M,)``, places of the maximum.
    """

    def __init__(self, strength: float, points: Sequence[float]) -> None:
        super().__init__()
        self.tail = ERFC
        self.strength: Tensor
        self.points: Tensor
        self.register_buffer("strength", _tensor(strength))
        self.register_buffer("points", _tensor(points))

    def log_normal(self, values: Tensor) -> Tensor:
        """Return the logarithm of the normal distribution function."""
        # that of PyTorch uses functions that no ONNX runtime has in float64
        z = values.abs() * math.sqrt(0.5)
        t = 1.0 / (1.0 + 0.5 * z)
        exponent = torch.zeros_like(z)
        for coefficient in self.tail:
            exponent = exponent * t + coefficient
        log_tail = exponent - z.square() + (0.5 * t).log()
        return torch.where(values < 0.0, log_tail, torch.log1p(-log_tail.exp()))

    def forward(self, logits: Tensor) -> Tensor:
        """Return probabilities ``(N, K)`` of logits ``(N, K)`` with row maximum 0."""
        # further classes get 0; an infinite gap would give NaN
        gaps = (-logits / self.strength).clamp(max=1e3)
        places = gaps[:, None, :] + self.points[:, None]
        below = self.log_normal(places)
        terms = below.sum(dim=2, keepdim=True) - below - 0.5 * places.square()
        return torch.softmax(torch.logsumexp(terms, dim=1), dim=1)


class PerClass(nn.Module):
    """A function of each class's probability, or one of all; rows are divided by their sums.

    Parameters
    ----------
    mapped : ``(K,)``, whether a class has a function; others keep their probability.
    tie_break : weight of the uncalibrated probability; if positive, the prediction stays.
    """

    def __init__(
        self, function: Piecewise, mapped: NDArray[np.bool_], tie_break: float = 0.0
    ) -> None:
        super().__init__()
        self.function, self.tie_break = function, tie_break
        self.mapped: Tensor
        self.register_buffer("mapped", torch.tensor(mapped))

    def forward(self, logits: Tensor) -> Tensor:
        """Return probabilities ``(N, K)`` of logits ``(N, K)``."""
        plain = torch.softmax(logits, dim=1)
        changed = self.function(plain) + self.tie_break * plain
        if self.tie_break > 0.0:
            top = is_top(logits)
            changed = torch.where(top, changed.amax(dim=1, keepdim=True), changed)
        changed = torch.where(self.mapped, changed, plain)
        total = changed.sum(dim=1, keepdim=True)
        return torch.where(total > 0.0, changed / total, plain)


def per_class(
    functions: Callable[[Sequence[Array], Sequence[Array]], Piecewise],
    classes: NDArray[np.int64],
    n_classes: int,
    first: Sequence[Array],
    second: Sequence[Array],
) -> PerClass:
    """:class:`PerClass` with ``functions`` (:func:`steps`, :func:`lines`) of some classes."""
    # classes without a map have any function
    firsts, seconds = n_classes * [first[0]], n_classes * [second[0]]
    for label, one, other in zip(classes, first, second, strict=True):
        firsts[label], seconds[label] = one, other
    return PerClass(functions(firsts, seconds), np.isin(np.arange(n_classes), classes))
