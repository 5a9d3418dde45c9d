"""ImageNet-Sketch: some 50,000 drawings of the 1,000 classes of ImageNet, to evaluate networks
trained elsewhere.

The documentation gives 50 drawings per class, but other sources 50,889 in total, so the number is
not checked. The archive (7.8 GB) is downloaded from the copy of its second author to data_root; the
folder ``imagenet_sketch`` with one folder of images per WordNet id can replace it. There is no
published checksum: the first download is trusted and recorded; size and SHA-256 of the archive are
in the manifest.
"""

from pathlib import Path

from calgrid.components.registry import register
from calgrid.datasets._archives import open_archive
from calgrid.datasets._imagenet import FACTS, Evaluated, Pictures, by_class
from calgrid.datasets.downloads import unpacked_or_download
from calgrid.storage.sources import SourceRecord, record

FOLDER = "imagenet_sketch"


@register(
    source=(
        "Wang et al., Learning Robust Global Representations by Penalizing Local Predictive "
        "Power, NeurIPS 2019"
    ),
    **FACTS,
    label="ImageNet-Sketch",
    download=True,
    files=(
        {
            "name": "ImageNet-Sketch.zip",
            "url": "https://huggingface.co/datasets/songweig/imagenet_sketch/resolve/main/data/ImageNet-Sketch.zip",
        },
    ),
)
class ImagenetSketch(Evaluated):
    """Drawings of one thousand classes, a fifth of them for calibration."""

    def pictures(self, data_root: Path | None) -> Pictures:
        """Return all drawings; see :class:`Evaluated`."""
        (file,) = self.registered["files"]
        store = open_archive(unpacked_or_download(file, data_root, FOLDER))
        pictures = Pictures(store, by_class(store), self.registered["n_classes"])
        source: SourceRecord = {"path": FOLDER, "files": len(pictures.members)}
        if not store.place.is_dir():
            source = record(store.place, file["name"])
        self.facts = {"sources": [source]}
        return pictures
