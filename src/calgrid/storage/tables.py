"""Tidy result tables as Parquet: dictionary-encoded strings, zstd, the same rows give the same bytes."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from calgrid.errors import DataError, StateError
from calgrid.storage.atomic import replacing
from calgrid.storage.logits import METADATA_KEY, read_metadata, read_table

#: values of the metrics in resamples of the test split, beside the metrics of a run
RESAMPLES = "resamples.parquet"


def write_frame(path: Path, frame: pd.DataFrame, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a data frame atomically; strings are dictionary-encoded, the index is dropped.

    ``metadata`` (JSON-like) goes into the file's footer under the key ``calgrid``.
    """
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for position, column in enumerate(table.schema):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            encoded = table.column(position).cast(pa.string()).dictionary_encode()
            table = table.set_column(position, column.name, encoded)
    footer = {METADATA_KEY: json.dumps(dict(metadata), sort_keys=True)} if metadata else None
    with replacing(path) as temporary:
        pq.write_table(table.replace_schema_metadata(footer), temporary, compression="zstd")


def read_frame(path: Path, what: str = "table", fingerprint: str | None = None) -> pd.DataFrame:
    """Read a table; dictionary columns come back as plain strings.

    Raises
    ------
    StateError : its footer carries another fingerprint than ``fingerprint``.
    """
    table = read_table(path, what)
    found = read_metadata(table).get("fingerprint")
    if fingerprint is not None and found != fingerprint:
        raise StateError(
            f"The {what} {path} was made with another configuration or code version (fingerprint {found}, expected "
            f"{fingerprint}): delete it and run again."
        )
    for position, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(position, column.name, table.column(position).cast(column.type.value_type))
    return table.to_pandas()


def read_published(paths: Iterable[str | Path]) -> pd.DataFrame:
    """Read CSV files with published numbers into one frame.

    Raises
    ------
    DataError : a file is missing or no table.
    """
    try:
        return pd.concat([pd.read_csv(path, dtype={"table": str}) for path in paths], ignore_index=True)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise DataError(f"The published numbers cannot be read ({reason}): correct the file or leave it out.") from None
