"""WRN-26-10: the wide residual network of the calibration papers on CIFAR."""

from calgrid.backbones._wide import WideResNet
from calgrid.registry import register


@register(
    source="Zagoruyko & Komodakis, Wide Residual Networks, BMVC 2016; torrvision/focal_calibration Net/wide_resnet.py",
    label="WRN-26-10",
    parameters={10: 36_481_434, 100: 36_539_124},
    num_features=640,
    pretrained=False,
    image_size=32,
    min_size=1,
    macs=5_243_328_768,
    activations=4_920_816,
)
class WideResNet2610(WideResNet):
    """Three levels of 4 basic blocks, widths 160-320-640: the size of the original paper's WRN-28-10."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, blocks_per_level=4, width=10)
