"""Digits-C: the test split of ``digits`` under six corruptions at five severities each.

Names and mechanisms are those of CIFAR-10-C where 8x8 pixels allow them; at these strengths the accuracy
of a plain ``resnet8`` (protocol ``digits``, mean of five seeds) falls from severity to severity for every corruption:
on average 89, 84, 74, 62 and 48 %, while ECE rises: 7, 10, 16, 24 and 34 %.
"""

from collections.abc import Mapping
from pathlib import Path

from calgrid.datasets._corruptions import corrupted_settings
from calgrid.datasets.base import ImageSplit, ShiftFamily, ShiftSetting
from calgrid.registry import register

#: corruption -> its strength at severities 1 to 5 (units: the functions in _corruptions)
STRENGTHS: dict[str, tuple[float, ...]] = {
    "gaussian_noise": (0.08, 0.16, 0.24, 0.32, 0.40),
    "impulse_noise": (0.03, 0.07, 0.12, 0.18, 0.26),
    "gaussian_blur": (0.5, 0.65, 0.8, 1.0, 1.2),
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": (0.7, 0.5, 0.35, 0.25, 0.15),
    "elastic_transform": (0.3, 0.5, 0.7, 0.9, 1.1),
}


@register(
    source="mechanisms of Hendrycks and Dietterich, Benchmarking Neural Network Robustness, ICLR 2019",
    role="shift",
    label="Digits-C",
    base="digits",
    shifts=(*STRENGTHS,),
    severities=(1, 2, 3, 4, 5),
    n_classes=10,
    image_shape=(3, 8, 8),
    download=False,
)
class DigitsC(ShiftFamily):
    """Corrupted test images of ``digits``, in the order of the clean test split."""

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftSetting]:
        """Return the settings, corruption by corruption, severities ascending; see :class:`ShiftFamily`."""
        return corrupted_settings(base["test"].images[:, 0], base["test"].labels, STRENGTHS)
