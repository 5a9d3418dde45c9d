"""Long-tailed training images of CIFAR and of digits: class k of K has ``n_k = int(N r^(k/(K-1)))``
of them, r one over the imbalance factor.

The frequencies are those of Cao et al. (kaidic/LDAM-DRW) and of Zhong et al. (dvlab-research/
MiSLAS): the first class is the most frequent, the last the rarest. They train on N = 5,000 or 500
images of the first class and have no validation images. Here the validation images are drawn first,
as many of each class (for CIFAR other ones than in the balanced data set, where classes do not
count), and N is the rest of a class: nine tenths for CIFAR. So counts do not depend on the draw.
The test images are those of the balanced data set.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from calgrid.components.options import Options
from calgrid.components.registry import register
from calgrid.datasets.base import Dataset, ImageSplit, draw_val
from calgrid.datasets.cifar import Cifar10, Cifar100
from calgrid.datasets.digits import Digits

#: facts that the long-tailed data sets share
FACTS: Options = {
    "source": (
        "Cao et al., Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, "
        "NeurIPS 2019; validation images: ours"
    ),
    "variants": {
        "val_profile=lt": {
            "warning": (
                "calibrators are fitted on validation images with the frequencies of the training "
                "images, and tested on equally frequent classes"
            )
        }
    },
}


class LongTailed(Dataset):
    """Base of long-tailed data sets.

    Parameters
    ----------
    imbalance : training images of the first class over those of the last, at least 1.
    val_profile : ``balanced``, or ``lt``: validation images with the frequencies of the training
        images, at least one of each class.

    Attributes
    ----------
    balanced : data set whose training and validation images are drawn anew.
    most : split -> images of the first class.
    """

    balanced: ClassVar[type[Dataset]]
    most: ClassVar[Mapping[str, int]]

    def __init__(
        self, *, imbalance: float = 100.0, val_profile: Literal["balanced", "lt"] = "balanced"
    ) -> None:
        self.imbalance = imbalance
        self.thinned = ("train", "val") if val_profile == "lt" else ("train",)

    @property
    def sizes(self) -> dict[str, int]:
        """Images of each split with these options."""
        counts = {split: int(self.counts(split).sum()) for split in self.thinned}
        return {**self.registered["sizes"], **counts}

    def counts(self, split: str) -> NDArray[np.int64]:
        """Images of each class in a split with frequencies, (K,)."""
        classes = self.registered["n_classes"]
        shares = self.imbalance ** -(np.arange(classes) / (classes - 1))
        return np.maximum(1, self.most[split] * shares).astype(np.int64)

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return the splits; see :class:`Dataset`.

        Images of a class are kept in the order of one shuffle, so that a larger imbalance keeps a
        subset of the images of a smaller one.
        """
        splits = self.balanced().build(data_root)
        parts = splits["train"], splits["val"]
        images = np.concatenate([part.images for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        rows = np.concatenate([part.rows for part in parts if part.rows is not None])
        order = np.argsort(rows)
        for name, drawn in draw_val(labels[order], self.drawn_val).items():
            chosen = order[drawn]
            if name in self.thinned:
                # NumPy's legacy shuffle, whose stream never changes
                seed = self.drawn_val["split_seed"]
                shuffled = np.random.RandomState(seed).permutation(len(chosen))
                classes = labels[chosen[shuffled]]
                kept = []
                for number, count in enumerate(self.counts(name)):
                    kept.append(shuffled[classes == number][:count])
                chosen = chosen[np.sort(np.concatenate(kept))]
            splits[name] = ImageSplit(images[chosen], labels[chosen], rows[chosen])
        return splits


@register(
    **{
        **Cifar10.registered,
        **FACTS,
        "id": "cifar10_lt",
        "label": "CIFAR-10-LT",
        "like": "cifar10",
        "sizes": {"train": 11_165, "val": 5_000, "test": 10_000},
        "drawn_val": {"split": "stratified", "val_size": 5_000, "split_seed": 1},
        "class_groups": {"head": 3, "medium": 4, "tail": 3},
        "families": ("ood/svhn", "ood/cifar100"),
        "limits": {"imbalance": "[1, 4500]"},
    }
)
class Cifar10Lt(LongTailed):
    """CIFAR-10 with long-tailed training images, 4,500 of the first class."""

    balanced = Cifar10
    most = MappingProxyType({"train": 4_500, "val": 500})


@register(
    **{
        **Cifar100.registered,
        **FACTS,
        "id": "cifar100_lt",
        "label": "CIFAR-100-LT",
        "like": "cifar100",
        "sizes": {"train": 9_754, "val": 5_000, "test": 10_000},
        "drawn_val": {"split": "stratified", "val_size": 5_000, "split_seed": 1},
        "class_groups": {"head": 36, "medium": 35, "tail": 29},
        "families": ("ood/svhn", "ood/cifar10"),
        "limits": {"imbalance": "[1, 450]"},
    }
)
class Cifar100Lt(LongTailed):
    """CIFAR-100 with long-tailed training images, 450 of the first class."""

    balanced = Cifar100
    most = MappingProxyType({"train": 450, "val": 50})


@register(
    **{
        **Digits.registered,
        **FACTS,
        "id": "digits_lt",
        "label": "Digits-LT",
        "like": "digits",
        "sizes": {"train": 156, "val": 197, "test": 1_200},
        "drawn_val": {"split": "stratified", "val_size": 197, "split_seed": 1},
        "class_groups": {"head": 3, "medium": 4, "tail": 3},
        "families": ("ood/photos",),
        "limits": {"imbalance": "[1, 39]"},
    }
)
class DigitsLt(LongTailed):
    """Handwritten digits with long-tailed training images, 39 zeros to 3 nines."""

    balanced = Digits
    most = MappingProxyType({"train": 39, "val": 19})

    def __init__(self, *, imbalance: float = 10.0, **options: Any) -> None:
        super().__init__(imbalance=imbalance, **options)
