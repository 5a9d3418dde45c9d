"""ImageNet-1K with its training images, to train networks: 1,281,167 photographs of 1,000 classes.

They must be downloaded by hand. Unpack the archive of the training images, and the archives of the
classes in it, into the folder ``imagenet/train`` or ``train`` below data_root, in one folder per
WordNet id. ``test`` are the 50,000 validation images, from the folder or the archives of the data
set ``imagenet``; ``val`` is drawn from the training images.

The images stay encoded: the prepared data have a copy of the image files, 155 GB with the test
images, where arrays would take 200 GB.
"""

import dataclasses
from pathlib import Path

import numpy as np

from calgrid.components.registry import register
from calgrid.datasets._imagenet import SIZE, TRAINED
from calgrid.datasets.base import ImageSplit, draw_val
from calgrid.datasets.downloads import PublishedFile, published
from calgrid.datasets.imagenet import ARCHIVES, Imagenet, unpacked
from calgrid.errors import DataError

FOLDERS = ("imagenet/train", "train")
ARCHIVE: PublishedFile = {
    "name": "ILSVRC2012_img_train.tar",
    "url": "https://image-net.org",
    "size": 147_897_477_120,
    "md5": "1d675b47d978889d74fa0da5fadfb00e",
}


@register(
    source="Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015",
    **TRAINED,
    label="ImageNet-1K",
    download=False,
    keep_encoded=True,
    sizes={"train": 1_231_167, "val": 50_000, "test": 50_000},
    drawn_val={"split": "stratified", "val_size": 50_000, "split_seed": 1},
    files=(ARCHIVE, *ARCHIVES),
)
class ImagenetTrained(Imagenet):
    """Photographs of one thousand classes, to train networks and test them on the validation set.

    Parameters as of ``imagenet``.
    """

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return ``train``, ``val`` and ``test``; see :class:`Dataset`."""
        train = unpacked(data_root, FOLDERS, self.registered["n_classes"])
        if train is None:
            raise DataError(
                f"The training images of ImageNet require a registration; unpack "
                f"{published(ARCHIVE)} into the folder {FOLDERS[0]} of "
                f"{data_root or 'a data_root'}, in one folder per WordNet id."
            )
        test = self.pictures(data_root)
        ours, theirs = set(train.wnids), set(test.wnids)
        if ours != theirs:
            raise DataError(
                f"The class '{min(ours - theirs)}' of {train.store.place} is not in "
                f"{test.store.place}, which has '{min(theirs - ours)}' instead; correct the names "
                "of the folders."
            )
        seed = self.split_seed if self.val_seed is None else self.val_seed
        rows = draw_val(train.labels, {**self.drawn_val, "split_seed": seed})
        tested = np.arange(len(test.labels))
        splits = {}
        for name, pictures, chosen in (
            ("train", train, rows["train"]),
            ("val", train, rows["val"]),
            ("test", test, tested),
        ):
            splits[name] = pictures.split(
                chosen, self.threads, SIZE, self.resize, self.interpolation, kept=True
            )
        # rows of test images continue those of training images
        splits["test"] = dataclasses.replace(splits["test"], rows=len(train.labels) + tested)
        return splits
