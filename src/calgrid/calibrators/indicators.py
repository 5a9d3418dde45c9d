"""Inputs of temperature networks: functions of one row of logits, invariant to added constants."""

from collections.abc import Callable, Mapping

from calgrid.calibrators._probabilities import (
    Array,
    centred,
    columns,
    largest,
    namespace,
    softmax,
    top_label,
    totals,
)


def entropy(logits: Array) -> Array:
    """Return the entropy of the softmax in nats ``(1, N)``."""
    xp, probabilities = namespace(logits), softmax(logits)
    terms = xp.log(xp.where(probabilities > 0.0, probabilities, 1.0))
    return -totals(probabilities * terms).T


#: logits ``(N, K)`` with row maximum 0 -> inputs ``(D, N)``; undefined values, such as the margin
#: if only one class is possible, are infinite; the mean is that of the finite logits
INDICATORS: Mapping[str, Callable[[Array], Array]] = {
    "margin": lambda logits: -largest(logits, 2)[1:],
    "entropy": entropy,
    "confidence": lambda logits: top_label(logits)[1][None, :],
    "max_minus_mean": lambda logits: namespace(logits).amax(centred(logits), axis=1)[None, :],
    "all_logits": lambda logits: columns(centred(logits)),
}
