"""Images in Parquet files, in the format of dataset hubs.

Each row has an encoded image, in a column of structs ``{bytes, path}`` or of plain bytes, and an
integer label from 0. Nothing is unpickled. The columns are found by their usual names unless the
options name them.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calgrid.components.registry import register
from calgrid.datasets._image_files import LIMITS, ImageFiles, Rows, Source
from calgrid.errors import DataError
from calgrid.storage.sources import record

IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label")
#: rows read at once
BATCH = 256


@register(
    source="the Parquet layout of the datasets library: features Image and ClassLabel",
    role="dataset",
    label="Parquet images",
    configurable=True,
    encoded=True,
    download=False,
    limits=LIMITS,
)
class ImageParquet(ImageFiles):
    """Your own images in Parquet files, under a name that a configuration defines.

    Options are those of :class:`ImageFiles`; ``n_classes`` defaults to the largest training label +
    1, and then every class must occur in the training split.

    Parameters
    ----------
    train, test : files below data_root, one or a list each.
    image_column, label_column : names of the columns; the usual ones if None.
    """

    def __init__(
        self,
        *,
        train: str | list[str] = "train.parquet",
        test: str | list[str] = "test.parquet",
        image_column: str | None = None,
        label_column: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(train=train, test=test, **options)
        self.image_columns = IMAGE_COLUMNS if image_column is None else (image_column,)
        self.label_columns = LABEL_COLUMNS if label_column is None else (label_column,)

    def open(self, data_root: Path | None, names: Sequence[str], train: Source | None) -> Source:
        """Open the Parquet files of one split; see :class:`ImageFiles`."""
        paths = [Path(data_root or "", name) for name in names]
        labels = [self._labels(path) for path in paths]

        def read(rows: Rows) -> Iterator[tuple[str, bytes]]:
            start = 0
            for path, own in zip(paths, labels, strict=True):
                inside = rows[(rows >= start) & (rows < start + len(own))] - start
                yield from self._pictures(path, inside)
                start += len(own)

        def files() -> list[dict[str, Any]]:
            return [record(path, name) for path, name in zip(paths, names, strict=True)]

        return Source(np.concatenate(labels), read, files)

    def _labels(self, path: Path) -> Rows:
        with _opened(path) as file:
            name = _column(file, self.label_columns, path)
            with _readable(path):
                column = file.read(columns=[name]).column(name)
        if not pa.types.is_integer(column.type) or column.null_count:
            raise DataError(
                f"The column '{name}' of {path} must have an integer label in every row, but is "
                f"{column.type}."
            )
        try:
            return column.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise DataError(
                f"The column '{name}' of {path} must have labels from 0 to K - 1 ({error}): "
                f"correct them."
            ) from None

    def _pictures(self, path: Path, rows: Rows) -> Iterator[tuple[str, bytes]]:
        """Encoded images at ascending rows of one file; row groups without such rows are not read."""
        with _opened(path) as file:
            name = _column(file, self.image_columns, path)
            leaf = _leaf(file, name, path)
            sizes = [
                file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)
            ]
            starts = np.cumsum([0, *sizes])
            for group in np.flatnonzero(np.diff(np.searchsorted(rows, starts))).tolist():
                begin = int(starts[group])
                for batch in _batches(file, path, leaf, group):
                    column = batch.column(0)
                    values = column.field("bytes") if pa.types.is_struct(column.type) else column
                    first, last = np.searchsorted(rows, (begin, begin + len(values)))
                    for row in rows[first:last]:
                        content = values[int(row) - begin].as_py()
                        if content is None:
                            raise DataError(
                                f"Row {row} of {path} has no image bytes in '{name}': write the "
                                f"images into the file."
                            )
                        yield f"Row {row} of {path}", content
                    begin += len(values)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} is not a readable Parquet file ({reason}): replace it.") from None


def _opened(path: Path) -> pq.ParquetFile:
    if path.is_dir():
        raise DataError(
            f"{path} is a folder, not a Parquet file; if save_to_disk wrote it, convert it: "
            f"datasets.load_from_disk('{path}').to_parquet('{path}.parquet')."
        )
    with _readable(path):
        return pq.ParquetFile(path)


def _batches(file: pq.ParquetFile, path: Path, leaf: str, group: int) -> Iterator[pa.RecordBatch]:
    with _readable(path):
        yield from file.iter_batches(BATCH, row_groups=[group], columns=[leaf])


def _column(file: pq.ParquetFile, names: Sequence[str], path: Path) -> str:
    """Name of the only column of the file that is in ``names``."""
    present = file.schema_arrow.names
    found = [name for name in names if name in present]
    if len(found) == 1:
        return found[0]
    option = "image_column" if set(names) & set(IMAGE_COLUMNS) else "label_column"
    wanted = " or ".join(f"'{name}'" for name in names)
    problem = "has several of the columns" if found else "has no column"
    raise DataError(
        f"{path} {problem} {wanted} (it has {', '.join(present)}): give its name as {option}."
    )


def _leaf(file: pq.ParquetFile, name: str, path: Path) -> str:
    """Column to read: the bytes of the structs of an image column, or the column itself."""
    kind = file.schema_arrow.field(name).type
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        return f"{name}.bytes"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return name
    raise DataError(
        f"The column '{name}' of {path} must have bytes or structs with a field 'bytes', but is "
        f"{kind}."
    )
