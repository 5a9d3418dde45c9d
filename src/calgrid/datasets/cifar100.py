"""CIFAR-100: 60,000 photographs of 32x32 pixels in 100 classes (the fine labels).

Images are normalised by the constants of CIFAR-10, as the official code of focal_calibration and FeDLaS does in
training. That code tests CIFAR-100 with the constants of ImageNet; here all splits have the same ones, unless the
protocol says otherwise (``test_normalisation``).
"""

from calgrid.datasets._cifar import Cifar
from calgrid.registry import register


@register(
    source="Krizhevsky, Learning Multiple Layers of Features from Tiny Images, technical report, 2009",
    role="dataset",
    label="CIFAR-100",
    n_classes=100,
    image_shape=(3, 32, 32),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    sizes={"train": 45_000, "val": 5_000, "test": 10_000},
    drawn_val={"split": "shuffled", "val_size": 5_000, "split_seed": 1},
    duplicates="count",
    families=("cifar100_c", "ood/svhn", "ood/cifar10"),
    download=True,
    files=(
        {
            "name": "cifar-100-python.tar.gz",
            "url": "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "size": 169_001_437,
            "sha256": "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        },
    ),
)
class Cifar100(Cifar):
    """Photographs of one hundred kinds of things, by their fine labels."""

    train_members = ("cifar-100-python/train",)
    test_member = "cifar-100-python/test"
    label_key = "fine_labels"
