"""Logits files: Parquet with ``index``, ``label`` and ``logits``.

Files of shift families also have ``shift`` and ``severity``, and may have several row groups, each
with all rows of some conditions, so that a family need not fit into memory. Optional columns: see
:class:`Logits`.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calgrid.errors import DataError, row_at
from calgrid.storage.atomic import parse_json, replacing, require_file
from calgrid.storage.records import MEND, Facts, check_fingerprint

#: Parquet files up to this size are read with one read call
SMALL_BYTES = 2**20
METADATA_KEY = b"calgrid"
#: label of out-of-distribution samples
NO_LABEL = -1
#: columns of a logits file with a list of numbers per row
MATRICES = ("logits", "features", "distribution")
COLUMNS = ("label", "index", "shift", "severity", *MATRICES)
#: arrays of :class:`Logits`
ARRAYS = (*COLUMNS, "probabilities")
#: tolerance for the row sums of ``distribution``
SUM_TOLERANCE = 1e-4


@dataclass
class Logits:
    """Logits of one split or of one shift family.

    Parameters
    ----------
    index : (N,) int32, position in the split.
    label : (N,) int32, class, or -1 for out-of-distribution samples.
    logits : (N, K) float32.
    shift, severity : (N,) names and int8, only in family files.
    features : (N, d) float32, penultimate features, optional.
    distribution : (N, K) float32, probability of each class given the image, optional.
    probabilities : (N, K) floats, exact predicted probabilities if the logits are their logarithms
        in float32. Written as float64; jobs read the logits.
    metadata : protocol, dataset, backbone, method, seed, split, n_classes, fingerprint.
    """

    index: np.ndarray
    label: np.ndarray
    logits: np.ndarray
    shift: np.ndarray | None = None
    severity: np.ndarray | None = None
    features: np.ndarray | None = None
    distribution: np.ndarray | None = None
    probabilities: np.ndarray | None = None
    metadata: Facts = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, index: np.ndarray) -> "Logits":
        """Return the rows ``index``, without metadata."""
        chosen = replace(self, metadata={})
        for name in ARRAYS:
            if (values := getattr(self, name)) is not None:
                setattr(chosen, name, values[index])
        return chosen

    def of_classes(self, classes: np.ndarray) -> "Logits":
        """Return the rows of some ascending classes, only their columns of logits, and labels as
        positions in ``classes``, without distribution, probabilities and metadata.
        """
        chosen = self.rows(np.flatnonzero(np.isin(self.label, classes)))
        return replace(
            chosen,
            label=np.searchsorted(classes, chosen.label).astype(np.int32),
            logits=chosen.logits[:, classes],
            distribution=None,
            probabilities=None,
        )

    def identity(self) -> str:
        """Return :func:`identity_of_rows` in the order of ``index``."""
        order = np.argsort(self.index, kind="stable")
        return identity_of_rows(self.index[order], self.label[order])

    def in_order(self) -> "Logits":
        """Return the rows in the order of ``index``, without metadata."""
        return self.rows(np.argsort(self.index, kind="stable"))

    def joined(self, other: "Logits") -> "Logits":
        """Return the rows of both in turn, with the columns that both have, without metadata."""
        joined = replace(self, metadata={})
        for name in ARRAYS:
            mine, further = getattr(self, name), getattr(other, name)
            both = mine is not None and further is not None
            setattr(joined, name, np.concatenate([mine, further]) if both else None)
        return joined

    def conditions(self) -> list[tuple[str, int, np.ndarray]]:
        """Return shift name, severity and row numbers of each condition of a family file, in
        order of appearance.
        """
        if self.shift is None or self.severity is None:
            return [("", 0, np.arange(len(self)))]
        keys = np.char.add(np.char.add(self.shift.astype(str), "/"), self.severity.astype(str))
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return [
            (str(self.shift[first[k]]), int(self.severity[first[k]]), np.flatnonzero(inverse == k))
            for k in order
        ]


def identity_of_rows(index: np.ndarray, label: np.ndarray) -> str:
    """SHA-256 of positions (N,) and labels (N,) of the rows of a split: equal for equal splits."""
    columns = [np.ascontiguousarray(values, dtype="<i4") for values in (index, label)]
    return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()


def _fixed_size_list(values: np.ndarray, dtype: type) -> pa.FixedSizeListArray:
    flat: np.ndarray = np.ascontiguousarray(values, dtype=dtype).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), values.shape[1])


def write_logits(path: Path, data: Logits | Iterable[Logits]) -> None:
    """Write a logits file atomically (zstd, byte-stream split for floats); equal data give equal
    bytes.

    Parts of an iterable must have the same columns; they become row groups, with the metadata of
    the first. Only one part is in memory at a time.
    """
    parts = [data] if isinstance(data, Logits) else data
    with replacing(path) as temporary, contextlib.ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for part in parts:
            validate_logits(part, str(path))
            table = _as_table(part)
            if writer is None:
                lists = {*MATRICES, "probabilities"} & {*table.column_names}
                split = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in lists}
                # only names of shifts repeat; row numbers are stored as differences
                writer = pq.ParquetWriter(
                    temporary,
                    table.schema,
                    compression="zstd",
                    write_page_checksum=True,
                    use_dictionary=["shift"] if "shift" in table.column_names else False,
                    column_encoding={"index": "DELTA_BINARY_PACKED", **split},
                )
                stack.enter_context(writer)
            writer.write_table(table, row_group_size=len(table))


def _as_table(data: Logits) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "index": pa.array(data.index.astype(np.int32)),
        "label": pa.array(data.label.astype(np.int32)),
        "logits": _fixed_size_list(data.logits, np.float32),
    }
    if data.shift is not None and data.severity is not None:
        columns["shift"] = pa.array(data.shift.astype(str)).dictionary_encode()
        columns["severity"] = pa.array(data.severity.astype(np.int8))
    for name in ("features", "distribution", "probabilities"):
        if (values := getattr(data, name)) is not None:
            kind = np.float64 if name == "probabilities" else np.float32
            columns[name] = _fixed_size_list(values, kind)
    metadata = json.dumps(dict(data.metadata), sort_keys=True)
    return pa.table(columns, metadata={METADATA_KEY: metadata})


def count_groups(path: Path, what: str = "logits file") -> int:
    """Number of row groups of a Parquet file; errors as in :func:`read_table`."""
    with _reading(path, what, MEND):
        return pq.read_metadata(path).num_row_groups


def read_logits(path: Path, group: int | None = None, fingerprint: str | None = None) -> Logits:
    """Read and check a logits file, or one of its row groups.

    Raises
    ------
    DataError : the file is missing, truncated, empty, lacks a column, or holds NaN, labels out of
        range, ...
    StateError : it has another fingerprint than ``fingerprint``.
    """
    table, columns = read_table(path, "logits file", group=group), {}
    for name in COLUMNS:
        if name in table.column_names:
            refuse_repeated(table, name, path)
            if name in MATRICES:
                columns[name] = read_matrix(table, name, path)
            else:
                columns[name] = _plain(table, name, path)
    if "shift" in columns:
        columns["shift"] = columns["shift"].astype(str)
    for column in ("label", "logits"):
        if column not in columns:
            raise DataError(
                f"The logits file {path} has no column '{column}' (it has "
                f"{', '.join(table.column_names)})."
            )
    columns.setdefault("index", np.arange(table.num_rows, dtype=np.int32))
    data = Logits(**columns, metadata=read_metadata(table))
    validate_logits(data, str(path))
    check_fingerprint(data.metadata, fingerprint, f"logits file {path}")
    return data


def read_table(
    path: Path,
    what: str = "Parquet file",
    mend: str = MEND,
    group: int | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Read a Parquet file or one of its row groups: all columns, or existing ones of ``columns``.

    A missing or damaged file raises DataError with its name ``what`` and the fix ``mend``.
    """
    with _reading(path, what, mend):
        # for the many small files, one read call without threads takes half the time
        large = Path(path).stat().st_size > SMALL_BYTES
        source = path if large else pa.BufferReader(Path(path).read_bytes())
        # a third of the time of pq.read_table, which supports partitioned data sets
        with pq.ParquetFile(source, pre_buffer=large, page_checksum_verification=True) as file:
            if group is None:
                return file.read(columns, use_threads=large)
            return file.read_row_group(group, columns, use_threads=large)


@contextlib.contextmanager
def _reading(path: Path, what: str, mend: str) -> Iterator[None]:
    """Raise DataError without a file, and in the place of Arrow's read errors."""
    require_file(Path(path), what)
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        # "Could not open Parquet input source '...': the reason. Details."
        reason = str(error).splitlines()[0].rpartition("': ")[2].split(". ")[0]
        raise DataError(
            f"The {what} {path} is damaged or no Parquet file ({reason}); {mend}."
        ) from None


def read_metadata(table: pa.Table) -> Facts:
    """Return the ``calgrid`` metadata of a table, {} if it has none."""
    raw = (table.schema.metadata or {}).get(METADATA_KEY)
    try:
        found = parse_json(raw) if raw else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def read_column(table: pa.Table, name: str, path: Path) -> np.ndarray:
    """Return a column with its stored dtype: (N, width) if it has lists of numbers, else (N,).

    Raises
    ------
    DataError : it has empty rows, or lists of different length.
    """
    nested = pa.types.is_nested(table.field(name).type)
    return read_matrix(table, name, path, dtype=None) if nested else _plain(table, name, path)


def refuse_repeated(table: pa.Table, name: str, path: Path) -> None:
    """Raise DataError if a table has several columns of one name."""
    if (count := table.column_names.count(name)) > 1:
        raise DataError(f"{path} has {count} columns named '{name}'; keep one.")


def _plain(table: pa.Table, column: str, path: Path) -> np.ndarray:
    if pa.types.is_nested(kind := table.column(column).type):
        raise DataError(f"Column '{column}' of {path} must hold one value a row, it holds {kind}.")
    _refuse_empty_rows(table, column, path)
    return table.column(column).combine_chunks().to_numpy(zero_copy_only=False)


def _refuse_empty_rows(table: pa.Table, column: str, path: Path) -> None:
    if count := table.column(column).null_count:
        first = row_at(table.column(column).is_null().index(True).as_py())
        raise DataError(
            f"Column '{column}' of {path} has no value in {count} of {len(table)} rows, the first "
            f"is {first}; fill or remove them."
        )


def read_matrix(
    table: pa.Table, column: str, path: Path, dtype: type | None = np.float32
) -> np.ndarray:
    """Return a column of equally long lists of numbers as (N, width) of ``dtype`` (None: the stored
    dtype).

    Raises
    ------
    DataError : the column has another type.
    """
    chunked = table.column(column)
    kind = chunked.type
    is_list = isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType)
    if not is_list or not (
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    ):
        raise DataError(
            f"Column '{column}' of {path} must hold a list of numbers a row, it holds {kind}."
        )
    _refuse_empty_rows(table, column, path)
    values = chunked.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    lengths = np.zeros(1, int)
    if len(values):
        lengths = np.unique(values.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1:
        raise DataError(
            f"Column '{column}' of {path} has rows of different length ({lengths.min()} to "
            f"{lengths.max()})."
        )
    flat = values.flatten().to_numpy(zero_copy_only=False)
    # overflow of float32 becomes infinite, which the validation reports
    with np.errstate(over="ignore"):
        return flat.reshape(len(values), int(lengths[0])).astype(dtype or flat.dtype, copy=False)


def validate_logits(data: Logits, where: str, n_classes: int | None = None) -> None:
    """Check shapes, NaN and label range; raise DataError that names the source ``where``."""
    if data.logits.ndim != 2 or len(data.logits) == 0:
        raise DataError(
            f"{where}: logits must have shape (N, K) with N >= 1, got {data.logits.shape}."
        )
    rows, width = data.logits.shape
    if width < 2 or (n_classes is not None and width != n_classes):
        expected = f"{n_classes} as in the other files" if n_classes else "at least 2"
        raise DataError(f"{where}: logits have {width} columns, expected {expected}.")
    for name in ARRAYS:
        values = getattr(data, name)
        if values is None:
            continue
        if values.ndim != (2 if name in (*MATRICES, "probabilities") else 1):
            raise DataError(
                f"{where}: '{name}' has the wrong shape {values.shape} for {rows} rows of logits."
            )
        if len(values) != rows:
            raise DataError(
                f"{where}: {len(values)} values of '{name}' for {rows} rows of logits; give one "
                "for each row."
            )
    bad = ~np.isfinite(data.logits.max(axis=1))
    if bad.any():
        first = int(bad.argmax())
        raise DataError(
            f"{where}: {int(bad.sum())} rows of logits hold NaN or infinity, the first is "
            f"{row_at(first)}; -inf is allowed only beside a finite logit."
        )
    if data.distribution is not None:
        validate_distribution(data.distribution, data.logits.shape, where)
    _validate_labels(data.label, width, where)
    _validate_integers(data.index, "index", np.int32, where)
    if data.severity is not None:
        _validate_integers(data.severity, "severity", np.int8, where)


def _validate_labels(labels: np.ndarray, width: int, where: str) -> None:
    if labels.dtype.kind not in "iu":
        raise DataError(
            f"{where}: labels must be integers, got {labels.dtype}; give the class of each row, "
            f"from 0 to {width - 1}."
        )
    low, high = int(labels.min()), int(labels.max())
    if low < NO_LABEL or high >= width:
        wrong = low if low < NO_LABEL else high
        first = row_at(int((labels == wrong).argmax()))
        mend = "correct the labels"
        if (low, high) == (1, width):
            mend = "they seem to count from 1, so subtract 1"
        raise DataError(
            f"{where}: label {wrong} in {first} is outside 0..{width - 1} (or {NO_LABEL} for "
            f"none); {mend}."
        )


def _validate_integers(values: np.ndarray, name: str, dtype: type, where: str) -> None:
    """Raise DataError unless the values are integers within the range of ``dtype``."""
    are_integers, limits = values.dtype.kind in "iu", np.iinfo(dtype)
    if not are_integers or values.min() < limits.min or values.max() > limits.max:
        content = f"{values.min()} to {values.max()}" if are_integers else values.dtype
        raise DataError(
            f"{where}: '{name}' must hold integers of {limits.bits} bits, got {content}; correct "
            f"or omit '{name}'."
        )


def validate_distribution(values: np.ndarray, shape: tuple[int, int], where: str) -> None:
    """Raise DataError unless ``values`` are probabilities of the given shape (N, K), each row
    summing to 1.
    """
    if values.shape != shape:
        raise DataError(
            f"{where}: 'distribution' must have the shape {shape}, one column a class, got "
            f"{values.shape}."
        )
    off = np.abs(values.sum(axis=1, dtype=np.float64) - 1)
    bad = (values < 0).any(axis=1) | ~(off <= SUM_TOLERANCE)
    if bad.any():
        raise DataError(
            f"{where}: {int(bad.sum())} rows of 'distribution' are negative somewhere or do not "
            f"sum to 1, the first is {row_at(int(bad.argmax()))}."
        )
