"""Centred isotonic regression of correctness on confidence, applied to the predicted class."""

import numpy as np

from calgrid.calibrators._probabilities import Array, Mask, never_certain
from calgrid.calibrators.iso import TopLabelIsotonic, pool
from calgrid.components.registry import register


def fit_centred(scores: Array, correct: Mask) -> tuple[Array, Array]:
    """Fit a map that is strictly increasing where values lie strictly between 0 and 1.

    A block of equal values becomes one point at the mean of its scores; blocks of value 0 or 1 keep
    both ends. Arguments and result are those of :func:`calgrid.calibrators.iso.fit_isotonic`.
    """
    points, number, values = pool(scores, correct)
    first = np.flatnonzero(np.diff(values, prepend=-1.0))
    last = np.append(first[1:], len(values)) - 1
    centres = np.add.reduceat(points * number, first) / np.add.reduceat(number, first)
    rates = values[first]
    certain = (rates == 0.0) | (rates == 1.0)
    flat = certain & (first < last)
    left = np.where(certain, points[first], centres)
    # a flat block has a second point at its right end
    places, after = np.concatenate([left, points[last[flat]]]), np.append(rates, rates[flat])
    order = np.argsort(places, kind="stable")
    return places[order], never_certain(after[order], len(correct))


@register(
    source="Oron & Flournoy, Centered Isotonic Regression: Point and Interval Estimation for "
    "Dose-Response Studies, Statistics in Biopharmaceutical Research 9, 2017",
    keeps_argmax=False,
    parameters="<= N",
)
class CentredIsotonicRegression(TopLabelIsotonic):
    """Centred isotonic regression (CIR) from top-label confidence to accuracy.

    As ``iso``, but each block of equal values is one point at its mean confidence, so that the map
    rises instead of jumping; blocks of only correct or only wrong samples stay flat, and so do both
    ends. ``cir_ova`` is the form of CalArena.

    ``fit_history`` is that of ``iso``.
    """

    fit_map = staticmethod(fit_centred)
