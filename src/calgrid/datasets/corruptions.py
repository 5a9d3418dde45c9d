"""Corruptions of the test images of ``digits``, or of any data set of 32x32 pixels or more, computed in preparation.

Mechanisms are those of CIFAR-10-C (``make_cifar_c.py`` of hendrycks/robustness), for other data sets than ``digits``
also strengths. The images differ from the published ones: brightness is added to each channel instead of to the value
in HSV, elastic displacement is one smooth random field, and the noise is drawn again. Results are not comparable with
those on CIFAR-10-C.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calgrid.datasets._corruptions import corrupted_settings
from calgrid.datasets.base import ImageSplit, ShiftFamily, ShiftSetting
from calgrid.registry import register

#: corruption -> its strength at severities 1 to 5 (units: the functions in _corruptions)
STRENGTHS: dict[str, tuple[float, ...]] = {
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "shot_noise": (500, 250, 100, 75, 50),
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1.0),
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "elastic_transform": (0.5, 0.75, 1.0, 1.25, 1.5),
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
    "jpeg_compression": (80, 65, 58, 50, 40),
}
#: those that 8x8 pixels allow
DIGITS_STRENGTHS: dict[str, tuple[float, ...]] = {
    "gaussian_noise": (0.08, 0.16, 0.24, 0.32, 0.40),
    "impulse_noise": (0.03, 0.07, 0.12, 0.18, 0.26),
    "gaussian_blur": (0.5, 0.65, 0.8, 1.0, 1.2),
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": (0.7, 0.5, 0.35, 0.25, 0.15),
    "elastic_transform": (0.3, 0.5, 0.7, 0.9, 1.1),
}
FACTS: dict[str, Any] = {
    "source": "mechanisms of Hendrycks and Dietterich, Benchmarking Neural Network Robustness, ICLR 2019",
    "role": "shift",
    "severities": (1, 2, 3, 4, 5),
    "download": False,
}


@register(
    id="corruptions",
    **FACTS,
    label="Corruptions",
    configurable=True,
    shifts=(*STRENGTHS,),
    limits={"images": "[1, inf)"},
)
class Corruptions(ShiftFamily):
    """Corrupted test images of a data set, under a name that a configuration defines.

    Parameters
    ----------
    of : data set whose test images are corrupted.
    images : number of images, the first ones; all if None.
    """

    def __init__(self, *, of: str = "cifar10", images: int | None = None) -> None:
        self.of, self.images = of, images

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftSetting]:
        """Return the settings, corruption by corruption, severities ascending; see :class:`ShiftFamily`."""
        test = base["test"]
        return corrupted_settings(test.images[: self.images], test.labels[: self.images], STRENGTHS)


@register(
    id="digits_c",
    **FACTS,
    label="Digits-C",
    base="digits",
    shifts=(*DIGITS_STRENGTHS,),
    n_classes=10,
    image_shape=(3, 8, 8),
)
class DigitsC(ShiftFamily):
    """Corrupted test images of ``digits``, in the order of the clean test split.

    The accuracy of a plain ``resnet8`` (protocol ``digits``, mean of five seeds) falls from severity to severity for
    every corruption: on average 89, 84, 74, 62 and 48 %, while ECE rises: 7, 10, 16, 24 and 34 %.
    """

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftSetting]:
        """Return the settings, corruption by corruption, severities ascending; see :class:`ShiftFamily`."""
        return corrupted_settings(base["test"].images[:, 0], base["test"].labels, DIGITS_STRENGTHS)
