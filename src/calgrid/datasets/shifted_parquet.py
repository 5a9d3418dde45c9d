"""Test images of your own under a shift, in Parquet files as in ``image_parquet.py``.

Labels go by the names of their classes where these and the data set have names.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from calgrid.components.registry import register
from calgrid.datasets._image_files import as_list
from calgrid.datasets.base import ImageSplit, ShiftCondition, ShiftFamily, scratch_array
from calgrid.datasets.encoded import decode
from calgrid.datasets.image_parquet import ParquetSource
from calgrid.errors import DataError
from calgrid.parallel import in_threads

#: of a shift without degrees
SEVERITY = 0


@register(
    source="the Parquet layout of the datasets library: features Image and ClassLabel",
    role="shift",
    label="Shifted images",
    configurable=True,
    shifts=("own",),
    severities=(SEVERITY,),
    download=False,
)
class ShiftedParquet(ShiftFamily):
    """A real shift: other images with the classes of a data set, scored as a shift without degrees.

    Parameters
    ----------
    of : data set whose classes and image size these images have.
    test : files below data_root, one or a list.
    shift : name of the shift in tables.
    image_column, label_column : names of the columns; the usual ones if None.
    """

    def __init__(
        self,
        *,
        of: str = "cifar10",
        test: str | list[str] = "shifted.parquet",
        shift: str = "own",
        image_column: str | None = None,
        label_column: str | None = None,
    ) -> None:
        self.of, self.shift = of, shift
        self.test = as_list(test)
        self.image_column, self.label_column = image_column, label_column

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftCondition]:
        """Return the one condition; see :class:`ShiftFamily`.

        Raises
        ------
        DataError : a file cannot be read, or an image has not the size of the data set, or a class
            is none of it.
        """
        columns = self.image_column, self.label_column
        source = ParquetSource(data_root, self.test, *columns, self.classes)
        source.say_unnamed(self.classes, f"'{self.of}'")
        shape = base["test"].images.shape[1:]
        images = scratch_array((len(source.labels), *shape), self.scratch)
        pictures = in_threads(
            lambda image: (image[0], decode(image[1], None, None, image[0])),
            source.read(np.arange(len(images))),
            self.threads,
        )
        for row, (where, picture) in enumerate(pictures):
            if picture.shape != shape:
                raise DataError(
                    f"{where} has {picture.shape[1]}x{picture.shape[2]} pixels, those of "
                    f"'{self.of}' have {shape[1]}x{shape[2]}; use images of the same size."
                )
            images[row] = picture
        self.facts = {"sources": list(source.files())}
        return [ShiftCondition(self.shift, SEVERITY, ImageSplit(images, source.labels))]
