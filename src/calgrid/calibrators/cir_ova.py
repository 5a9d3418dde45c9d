"""Centred isotonic regression of each class's probability, one class against the others."""

from calgrid.calibrators.cir import fit_centred
from calgrid.calibrators.iso_ova import IsotonicRegressionOneVsAll
from calgrid.components.registry import register


@register(
    source="Oron & Flournoy, Centered Isotonic Regression: Point and Interval Estimation for "
    "Dose-Response Studies, Statistics in Biopharmaceutical Research 9, 2017",
    keeps_argmax=False,
    parameters="<= K N",
)
class CentredIsotonicRegressionOneVsAll(IsotonicRegressionOneVsAll):
    """One-vs-all centred isotonic regression, as in CalArena: ``iso_ova`` with the maps of ``cir``.

    ``fit_history`` is that of ``iso_ova``.
    """

    fit_map = staticmethod(fit_centred)
