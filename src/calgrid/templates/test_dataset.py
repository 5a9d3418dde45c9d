"""my_component: prepared splits have the registered sizes, and images say what their labels do."""

from pathlib import Path

import numpy as np

from calgrid.components import plugins
from calgrid.datasets import open_prepared, prepare

plugins.use([Path(__file__).parents[1]])

HINT = "replace this number: it is that of the template"


def test_splits_have_their_sizes_and_classes_differ(tmp_path: Path) -> None:
    prepare("my_component", tmp_path)
    splits = open_prepared(tmp_path).splits
    sizes = {name: len(split) for name, split in splits.items()}
    assert sizes == {"train": 256, "val": 64, "test": 64}, HINT
    images, labels = np.asarray(splits["test"].images), np.asarray(splits["test"].labels)
    assert images[labels == 1].mean() - images[labels == 0].mean() > 90, HINT
