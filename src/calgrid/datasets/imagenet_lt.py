"""ImageNet-LT test images: exactly the validation images of ImageNet, split with another seed.

Only the training list of ImageNet-LT is long-tailed; its test list has the 50,000 balanced validation images of
ImageNet. Evaluating networks trained on ImageNet on it, as in SMART, repeats the evaluation on ImageNet: there is no
long tail, and results differ from those on ``imagenet`` only by the draw of the calibration images. Results have a
warning.
"""

from typing import Any

from calgrid.datasets._imagenet import FACTS
from calgrid.datasets.imagenet import Imagenet
from calgrid.registry import register


@register(
    source="Liu et al., Large-Scale Long-Tailed Recognition in an Open World, CVPR 2019",
    **FACTS,
    label="ImageNet-LT (test)",
    download=False,
    sizes={"val": 10_000, "test": 40_000},
    warning="the pictures are the balanced validation pictures of ImageNet under another draw: no class is rare",
)
class ImagenetLt(Imagenet):
    """The test images of ImageNet-LT: those of ``imagenet``, split with another seed."""

    def __init__(self, *, split_seed: int = 2, **options: Any) -> None:
        super().__init__(split_seed=split_seed, **options)
