"""Result tables as Parquet: dictionary-encoded strings, zstd; equal rows give equal bytes."""

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from calgrid.errors import DataError, StateError
from calgrid.storage.atomic import replacing
from calgrid.storage.logits import METADATA_KEY, count_groups, read_metadata, read_table
from calgrid.storage.records import Facts, check_fingerprint
from calgrid.storage.schema import Row

Table: TypeAlias = pa.Table
#: stored types of columns, by their pandas names
KINDS = {
    "str": pa.dictionary(pa.int32(), pa.string()),
    "int64": pa.int64(),
    "int32": pa.int32(),
    "int8": pa.int8(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "floats": pa.list_(pa.float32()),
}
#: rows or bytes of a row group, and in memory while a table is written in chunks
PIECE_ROWS, PIECE_BYTES = 2**17, 2**25


def write_frame(
    path: Path,
    frame: pd.DataFrame,
    metadata: Facts | None = None,
    columns: Mapping[str, str] | None = None,
) -> None:
    """Write a data frame atomically; strings are dictionary-encoded, the index is dropped.

    ``metadata`` (JSON-like) is stored in the file's footer under the key ``calgrid``. ``columns``
    are those to write with their types (``KINDS``); by default all, with their own types.
    """
    with writing(path, metadata) as writer:
        writer.add(to_table(frame) if columns is None else as_table(frame, columns))


def to_table(frame: pd.DataFrame) -> pa.Table:
    """Return a data frame as a table with dictionary-encoded strings; the index is dropped."""
    table = with_words(pa.Table.from_pandas(frame, preserve_index=False), encoded=True)
    return table.replace_schema_metadata(None)


class TableWriter:
    """Write a table in chunks with equal columns, as row groups of at least ``PIECE_ROWS`` rows or
    ``PIECE_BYTES`` bytes; floats, which rarely repeat, have no dictionaries.
    """

    def __init__(self, path: Path, metadata: Facts | None = None) -> None:
        self._path, self._footer = path, None
        if metadata:
            self._footer = {METADATA_KEY: json.dumps(dict(metadata), sort_keys=True)}
        self._pieces: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, piece: pa.Table) -> int:
        """Add a chunk, without its metadata; return its number of rows."""
        self._pieces.append(piece.replace_schema_metadata(self._footer))
        rows = sum(table.num_rows for table in self._pieces)
        size = sum(table.nbytes for table in self._pieces)
        if rows >= PIECE_ROWS or size >= PIECE_BYTES:
            self._flush()
        return len(piece)

    def _flush(self) -> None:
        table = join(self._pieces)
        if self._writer is None:
            repeated = [each.name for each in table.schema if not pa.types.is_floating(each.type)]
            self._writer = pq.ParquetWriter(
                self._path,
                table.schema,
                compression="zstd",
                write_page_checksum=True,
                use_dictionary=repeated,
            )
        self._writer.write_table(table, row_group_size=max(len(table), 1))
        self._pieces = []

    def close(self) -> None:
        """Write the remaining rows."""
        if self._pieces:
            self._flush()
        if self._writer is not None:
            self._writer.close()


@contextlib.contextmanager
def writing(path: Path, metadata: Facts | None = None) -> Iterator[TableWriter]:
    """Write a table in chunks, atomically; ``metadata`` as of :func:`write_frame`."""
    with replacing(path) as temporary:
        writer = TableWriter(temporary, metadata)
        try:
            yield writer
        finally:
            writer.close()


def join(pieces: Iterable[pa.Table]) -> pa.Table:
    """Concatenate tables; dictionaries are in the order of first appearance."""
    return pa.concat_tables(pieces).unify_dictionaries().combine_chunks()


def join_any(pieces: Iterable[pa.Table]) -> pa.Table:
    """Concatenate tables whose columns may differ; absent columns become missing values."""
    plain = [with_words(piece, encoded=False).replace_schema_metadata(None) for piece in pieces]
    joined = pa.concat_tables(plain, promote_options="permissive")
    return with_words(joined, encoded=True).combine_chunks()


def with_columns(table: pa.Table, constants: Mapping[str, object]) -> pa.Table:
    """Prepend constant columns to a table."""
    columns = {name: pa.repeat(pa.scalar(value), len(table)) for name, value in constants.items()}
    for name in table.column_names:
        columns.setdefault(name, table[name])
    return pa.table(columns)


def as_table(frame: pd.DataFrame, columns: Mapping[str, str]) -> pa.Table:
    """Return a data frame as a table with the given columns and types (``KINDS``)."""
    if frame.empty:  # whose columns may have any type
        return _schema(columns).empty_table()
    return to_table(frame[list(columns)]).cast(_schema(columns))


def with_words(table: pa.Table, encoded: bool) -> pa.Table:
    """Return a table with all string columns dictionary-encoded, or all of them plain."""
    for position, column in enumerate(table.schema):
        values, kind = table.column(position), column.type
        if not encoded and pa.types.is_dictionary(kind):
            table = table.set_column(position, column.name, values.cast(kind.value_type))
        elif encoded and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            words = values.cast(pa.string()).dictionary_encode()
            table = table.set_column(position, column.name, words)
    return table


def read_frame(path: Path, what: str = "table", fingerprint: str | None = None) -> pd.DataFrame:
    """Read a table; dictionary columns become plain strings.

    Raises
    ------
    StateError : its footer carries another fingerprint than ``fingerprint``.
    """
    return with_words(read_result(path, what, fingerprint), encoded=False).to_pandas()


def read_rows(
    path: Path,
    what: str,
    where: Mapping[str, Collection[Any]],
    columns: Sequence[str] | None = None,
    distinct: bool = False,
) -> pd.DataFrame:
    """Read selected rows of a table, one row group at a time; dictionary columns become plain
    strings.

    Parameters
    ----------
    where : column -> allowed values. columns : to return, in this order; all by default.
    distinct : return equal rows once, in the order in which they first appear.

    Raises
    ------
    DataError : the file is missing or damaged.
    StateError : it lacks a column.
    """
    needed = None if columns is None else [*dict.fromkeys([*columns, *where])]
    parts = []
    for group in range(count_groups(path, what)) or (None,):
        table = read_table(path, what, group=group, columns=needed)
        if missing := {*where, *(columns or ())} - {*table.column_names}:
            raise StateError(
                f"The {what} {path} lacks the column {min(missing)}; delete it and run again."
            )
        for name, values in where.items():
            table = table.filter(_is_in(table.column(name), values))
        table = table.select(columns or table.column_names)
        if distinct:
            table = pa.Table.from_pandas(table.to_pandas().drop_duplicates(), preserve_index=False)
        parts.append(table.replace_schema_metadata(None))
    frame = pa.concat_tables(with_words(part, encoded=False) for part in parts).to_pandas()
    return frame.drop_duplicates(ignore_index=True) if distinct else frame


def _is_in(column: pa.ChunkedArray, values: Collection[Any]) -> pa.ChunkedArray:
    """Whether the value of each row is in ``values``; strings are compared once per dictionary
    entry.
    """
    if pa.types.is_null(column.type):  # a column without values was stored without a type
        return pc.is_valid(column)
    column = column.unify_dictionaries()
    if not pa.types.is_dictionary(column.type):
        return pc.is_in(column, pa.array(list(values), column.type))
    wanted = pa.array(list(values), column.type.value_type)
    chunks = [pc.take(pc.is_in(each.dictionary, wanted), each.indices) for each in column.chunks]
    return pa.chunked_array(chunks, pa.bool_())


def read_result(
    path: Path,
    what: str = "table",
    fingerprint: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Table:
    """Read a table without conversion.

    Parameters
    ----------
    columns : the columns to return, in order, and their types (``KINDS``); None returns all
        unchanged.

    Raises
    ------
    StateError : a column is missing or of another type, or as in :func:`read_frame`.
    """
    table = read_table(path, what)
    check_fingerprint(read_metadata(table), fingerprint, f"{what} {path}")
    try:
        if columns is None or table.schema.equals(_schema(columns)):
            return table
        return table.select(list(columns)).cast(_schema(columns))
    except (KeyError, pa.ArrowException):
        raise StateError(
            f"The {what} {path} has not the columns that it should; delete it and run again."
        ) from None


def table_of_rows(rows: Sequence[Row], columns: Mapping[str, str]) -> Table:
    """Return rows as a table with the given columns and types (``KINDS``); absent keys become
    missing values.
    """
    return pa.Table.from_pylist(list(rows), schema=_schema(columns))


def _schema(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([(name, KINDS[kind]) for name, kind in columns.items()])


def read_published(paths: Iterable[str | Path]) -> pd.DataFrame:
    """Read CSV files with published numbers into one frame.

    Raises
    ------
    DataError : a file is missing or no table.
    """
    try:
        frames = [pd.read_csv(path, dtype={"table": str}) for path in paths]
        return pd.concat(frames, ignore_index=True)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise DataError(
            f"The published numbers cannot be read ({reason}); correct the file or leave it out."
        ) from None
