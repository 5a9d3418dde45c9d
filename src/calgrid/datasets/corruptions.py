"""Corruptions of the test images of any data set of 32x32 pixels or more, computed in preparation.

Mechanisms and strengths are those of CIFAR-10-C (``make_cifar_c.py`` of hendrycks/robustness), but the images
differ from the published ones: brightness is added to each channel instead of to the value in HSV, elastic displacement
is one smooth random field, and the noise is drawn again. Results are not comparable with those on CIFAR-10-C.
"""

from collections.abc import Mapping
from pathlib import Path

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


@register(
    source="mechanisms of Hendrycks and Dietterich, Benchmarking Neural Network Robustness, ICLR 2019",
    role="shift",
    label="Corruptions",
    configurable=True,
    shifts=(*STRENGTHS,),
    severities=(1, 2, 3, 4, 5),
    download=False,
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
