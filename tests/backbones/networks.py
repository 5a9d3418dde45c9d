"""Small networks of each kind, of the code of the registered ones."""

import torchvision

from calgrid.backbones._resnet import FourLevelResNet, ThreeLevelResNet
from calgrid.backbones.small_images import ResNet8, SmallImageDenseNet


def small(kind, **numbers):
    """The class of a kind of networks with other numbers."""
    return type("Small", (kind,), numbers)


RESNET = small(FourLevelResNet, blocks=(1, 2, 1, 2))
TINY = small(FourLevelResNet, blocks=(1, 1, 1, 2), quarters=True)
WIDE = small(ThreeLevelResNet, blocks_per_level=2, width=2)
#: one block has layers of two digits
DENSENET = small(SmallImageDenseNet, growth=4, layers=(2, 11, 1, 2))
OURS = {"resnet8": ResNet8, "resnet": RESNET, "densenet": DENSENET}
#: a network of each family of torchvision
FAMILIES = {
    "resnet": lambda: torchvision.models.resnet18(num_classes=5),
    "densenet": lambda: torchvision.models.DenseNet(4, (2, 2, 2, 2), 8, num_classes=5),
    "swin": lambda: torchvision.models.SwinTransformer(
        [4, 4], 8, [1, 1, 2, 1], [1, 2, 2, 4], [7, 7], num_classes=5
    ),
    "vit": lambda: torchvision.models.VisionTransformer(64, 16, 12, 2, 16, 32, num_classes=5),
}
