"""Images in Parquet files, in the format of dataset hubs.

Each row has an encoded image, in a column of structs ``{bytes, path}`` or of plain bytes, and an
integer label from 0. Nothing is unpickled. The columns are found by their usual names unless the
options name them. Where the datasets library has written the names of the classes, labels go by
them.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from calgrid.class_names import names_of_labels, shown_names, unlike
from calgrid.components.registry import register
from calgrid.datasets._image_files import LIMITS, ImageFiles, NamedImage, Rows, Source
from calgrid.errors import DataError, row_at, visible
from calgrid.storage.sources import SourceRecord, record

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
        self.image_column, self.label_column = image_column, label_column

    def open(self, data_root: Path | None, names: Sequence[str], train: Source | None) -> Source:
        """Open the Parquet files of one split; see :class:`ImageFiles`."""
        columns = self.image_column, self.label_column
        return ParquetSource(data_root, names, *columns, self.known_classes(train), self.groups)


class ParquetSource(Source):
    """Images of one or more Parquet files.

    Parameters
    ----------
    data_root, names : the files are ``data_root/name``.
    image_column, label_column : names of the columns; the usual ones if None.
    classes : names of the classes in their order; None: from the first file with names.
    group_column : name of the column of groups, if there is one.

    Raises
    ------
    DataError : a file cannot be read, or has not the columns, or other classes.
    """

    def __init__(
        self,
        data_root: Path | None,
        names: Sequence[str],
        image_column: str | None,
        label_column: str | None,
        classes: tuple[str, ...] | None = None,
        group_column: str | None = None,
    ) -> None:
        self.image_column = image_column
        self.paths = {name: Path(data_root or "", name) for name in names}
        self.labels_of: dict[str, Rows] = {}
        for name, path in self.paths.items():
            labels, named = _labels(path, label_column)
            if named is None:
                self.unnamed += (path,)
            else:
                classes = classes or tuple(named)
                labels = _by_name(labels, named, classes, path)
            self.labels_of[name] = labels
        self.classes = classes
        self.labels = np.concatenate(list(self.labels_of.values()))
        if group_column is not None:
            groups = [_groups(path, group_column) for path in self.paths.values()]
            self.groups = np.concatenate(groups)

    def read(self, rows: Rows) -> Iterator[NamedImage]:
        """Yield the encoded images at ascending rows."""
        start = 0
        for name, path in self.paths.items():
            stop = start + len(self.labels_of[name])
            inside = rows[(start <= rows) & (rows < stop)] - start
            yield from _pictures(path, self.image_column, inside)
            start = stop

    def files(self) -> list[SourceRecord]:
        """Sizes and SHA-256 of the files."""
        return [record(path, name) for name, path in self.paths.items()]


def _labels(path: Path, column: str | None) -> tuple[Rows, list[str] | None]:
    """Labels of a file, and the names of their classes if the file has some."""
    with _opened(path) as file:
        name = _column(file, path, column, LABEL_COLUMNS, "label_column")
        named = names_of_labels(file.schema_arrow.metadata, name)
        labels = file.read(columns=[name]).column(name)
    if not pa.types.is_integer(labels.type) or labels.null_count:
        raise DataError(
            f"The column '{name}' of {path} must have an integer label in every row, but is "
            f"{labels.type}."
        )
    try:
        return labels.cast(pa.int64()).to_numpy(), named
    except pa.ArrowInvalid as error:
        raise DataError(
            f"The column '{name}' of {path} must have labels from 0 to K - 1 ({error}); correct "
            "them."
        ) from None


def _groups(path: Path, column: str) -> NDArray[np.str_]:
    """Groups of the rows of a file, as text."""
    with _opened(path) as file:
        name = _column(file, path, column, (), "groups")
        groups = file.read(columns=[name]).column(name)
        if groups.null_count:
            raise DataError(f"The column '{name}' of {path} must have a group in every row.")
        return np.array([str(group) for group in groups.to_pylist()])


def _by_name(labels: Rows, named: Sequence[str], classes: Sequence[str], path: Path) -> Rows:
    """Convert labels from places in ``named`` to places in ``classes``."""
    unknown = [name for name in named if name not in classes]
    if unknown:
        raise DataError(
            f"{path} has the class '{visible(unknown[0])}', which is none of the data set's "
            f"({shown_names(classes)}); correct its names, or 'classes' of the data set"
            f"{unlike(unknown, classes)}."
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= len(named)))
    if len(wrong):
        raise DataError(
            f"{path}: {row_at(wrong[0])} has the label {labels[wrong[0]]}, but the file has "
            f"names of {len(named)} classes, 0..{len(named) - 1}; correct it."
        )
    return np.array([classes.index(name) for name in named])[labels]


def _pictures(path: Path, column: str | None, rows: Rows) -> Iterator[NamedImage]:
    """Encoded images at ascending rows of one file; row groups without such rows are not read."""
    with _opened(path) as file:
        name = _column(file, path, column, IMAGE_COLUMNS, "image_column")
        kind = file.schema_arrow.field(name).type
        leaf = name
        if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            leaf = f"{name}.bytes"
        elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise DataError(
                f"The column '{name}' of {path} must have bytes or structs with a field 'bytes', "
                f"but is {kind}."
            )
        start = 0
        for group in range(file.num_row_groups):
            stop = start + file.metadata.row_group(group).num_rows
            batches: Iterable[pa.RecordBatch] = ()
            if ((start <= rows) & (rows < stop)).any():
                batches = file.iter_batches(BATCH, row_groups=[group], columns=[leaf])
            for batch in batches:
                values = batch.column(0)
                if leaf != name:
                    values = values.field("bytes")
                for row in rows[(start <= rows) & (rows < start + len(values))]:
                    content = values[int(row) - start].as_py()
                    if content is None:
                        raise DataError(
                            f"{path}: {row_at(row)} has no image bytes in '{name}'; write the "
                            "images into the file."
                        )
                    yield f"{path}: {row_at(row)}", content
                start += len(values)
            start = stop


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, and turn errors of its content into a DataError."""
    if path.is_dir():
        raise DataError(
            f"{path} is a folder, not a Parquet file; if save_to_disk wrote it, convert it: "
            f"datasets.load_from_disk('{path}').to_parquet('{path}.parquet')."
        )
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} is not a readable Parquet file ({reason}); replace it.") from None


def _column(
    file: pq.ParquetFile, path: Path, name: str | None, usual: Sequence[str], option: str
) -> str:
    """Name of the only column called ``name``, by default one of the usual names."""
    names = usual if name is None else (name,)
    columns = file.schema_arrow.names
    present = [name for name in names if name in columns]
    if len(present) == 1:
        return present[0]
    problem = "has several of the columns" if present else "has no column"
    wanted = " or ".join(f"'{name}'" for name in names)
    raise DataError(
        f"{path} {problem} {wanted} (it has {', '.join(columns)}); give its name as {option}."
    )
