"""ImageNet-Sketch: some 50,000 drawings of the 1,000 classes of ImageNet, to evaluate networks trained elsewhere.

Documented are 50 drawings a class; 50,889 are said to be on the disk, so they are counted and no number is demanded.
The archive lies on a file-sharing service without a published checksum, so a person must fetch it. Taken are, below
data_root, the archive as it is or the folder ``imagenet_sketch`` with one folder of pictures a WordNet id somewhere
below it; size and SHA-256 of the archive go into the manifest.
"""

from pathlib import Path

from calgrid.datasets._archive_reader import open_archive
from calgrid.datasets._imagenet import FACTS, Evaluated, Pictures, by_class
from calgrid.errors import DataError
from calgrid.registry import register
from calgrid.storage.sources import record

ARCHIVE, FOLDER = "ImageNet-Sketch.zip", "imagenet_sketch"


@register(
    source="Wang et al., Learning Robust Global Representations by Penalizing Local Predictive Power, NeurIPS 2019",
    **FACTS,
    label="ImageNet-Sketch",
)
class ImagenetSketch(Evaluated):
    """Drawings of one thousand classes, a fifth of them for calibration."""

    def pictures(self, data_root: Path | None) -> Pictures:
        """Return all drawings; see :class:`Evaluated`."""
        root = data_root or Path()
        place = next((root / name for name in (FOLDER, ARCHIVE) if (root / name).exists()), None)
        if data_root is None or place is None:
            raise DataError(
                f"ImageNet-Sketch is not downloaded by calgrid: put {ARCHIVE} from "
                f"https://github.com/HaohanWang/ImageNet-Sketch into {data_root or 'a data_root'}, or its pictures "
                f"into the folder {FOLDER} there, in one folder a WordNet id."
            )
        store = open_archive(place)
        found = Pictures.of(store, by_class(store), self.registered["n_classes"])
        source = record(place, ARCHIVE) if place.is_file() else {"path": FOLDER, "files": len(found.names)}
        self.found = {"sources": [source]}
        return found
