"""ImageNet-LT, test pictures: exactly the validation pictures of ImageNet, drawn by another seed.

The long-tailed list of ImageNet-LT is that of its training pictures; its test list names the 50,000 balanced validation
pictures of ImageNet. Networks trained on ImageNet and evaluated on it, as in SMART, are therefore evaluated on ImageNet
once more: nothing here has a long tail, and results differ from those on ``imagenet`` by the draw of the calibration
pictures alone. A warning goes with such results.
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
    """The test pictures of ImageNet-LT: those of ``imagenet`` under another draw."""

    def __init__(self, *, split_seed: int = 2, **options: Any) -> None:
        super().__init__(split_seed=split_seed, **options)
