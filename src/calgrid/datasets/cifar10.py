"""CIFAR-10: 60,000 photographs of 32x32 pixels in ten classes."""

from calgrid.datasets._cifar import Cifar
from calgrid.registry import register


@register(
    source="Krizhevsky, Learning Multiple Layers of Features from Tiny Images, technical report, 2009",
    role="dataset",
    label="CIFAR-10",
    n_classes=10,
    image_shape=(3, 32, 32),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    sizes={"train": 45_000, "val": 5_000, "test": 10_000},
    drawn_val={"split": "shuffled", "val_size": 5_000, "split_seed": 1},
    duplicates="count",
    families=("cifar10_c", "ood/svhn", "ood/cifar100"),
    download=True,
    files=(
        {
            "name": "cifar-10-python.tar.gz",
            "url": "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "size": 170_498_071,
            "sha256": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        },
    ),
)
class Cifar10(Cifar):
    """Photographs of ten kinds of animals and vehicles."""

    train_members = tuple(f"cifar-10-batches-py/data_batch_{number}" for number in range(1, 6))
    test_member = "cifar-10-batches-py/test_batch"
    label_key = "labels"
