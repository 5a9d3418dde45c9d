"""Wide residual networks for small images: three levels of basic blocks, ``width`` times the channels of ResNet.

Zagoruyko & Komodakis (BMVC 2016) in the variant of torrvision/focal_calibration, ``Net/wide_resnet.py``: activations
after the convolutions as in He et al. 2016, and 6n + 2 layers counted, so that its 26 layers are the blocks of the
paper's WRN-28. Convolutions are drawn as He et al. propose.
"""

from calgrid.backbones._resnet import WIDTHS, BasicBlock, global_pool, stem_and_levels
from calgrid.backbones.base import Backbone, he_normal_


class WideResNet(Backbone):
    """Three levels of ``blocks_per_level`` basic blocks with ``width`` times 16, 32 and 64 channels."""

    def __init__(self, num_classes: int, blocks_per_level: int, width: int) -> None:
        widths = [width * channels for channels in WIDTHS]
        stages = stem_and_levels(BasicBlock, WIDTHS[0], widths, [blocks_per_level] * len(widths))
        super().__init__(stages, global_pool(), widths[-1], num_classes)
        he_normal_(self)
