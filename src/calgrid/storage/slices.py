"""A large table split into slices on disk that fit into memory; rows that belong together are in
one slice.
"""

import shutil
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from calgrid.storage.tables import PIECE_ROWS, join

#: identifier of a group: any hashable and sortable value
Group: TypeAlias = Any


#: files of a slice, readable from any process while its :class:`Slices` are open
Slice: TypeAlias = tuple[Path, ...]


def read_slice(files: Slice) -> pd.DataFrame:
    """Return the rows of a slice as a data frame; strings are categories."""
    tables = []
    for path in files:
        with pa.OSFile(str(path), "rb") as source:
            tables.append(pa.ipc.open_file(source).read_all())
    return join(tables).to_pandas()


class Slices:
    """Rows of many tables, partitioned by the hash of some columns; use as a context manager.

    Rows of one group with equal values in ``together`` are in one slice, in the order of
    :meth:`add`. Slices have about ``rows`` rows.

    Parameters
    ----------
    folder : for temporary files; cleared at the start (after a killed process) and removed at the
        end.
    together : columns of strings or integers.
    rows : target size of a slice, and number of rows in memory before they are written to disk.
    """

    def __init__(self, folder: Path, together: Sequence[str], rows: int = PIECE_ROWS) -> None:
        self._folder, self._together, self._size = folder, together, rows
        self._counts: dict[Group, int] = {}
        self._waiting: dict[Group, list[pa.Table]] = defaultdict(list)
        self._rows = 0
        self._files: dict[tuple[Group, int], list[Path]] = defaultdict(list)

    def __enter__(self) -> Self:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, group: Group, table: pa.Table, expected: float) -> None:
        """Add rows of a group; the first call sets its number of slices from its approximate number
        of rows.
        """
        self._counts.setdefault(group, max(1, round(expected / self._size)))
        self._waiting[group].append(table)
        self._rows += len(table)
        if self._rows >= self._size:
            self._spill()

    def _spill(self) -> None:
        for group, tables in self._waiting.items():
            table = join(tables)
            places = np.zeros(len(table), dtype=np.uint32)
            for name in self._together:
                places = places * np.uint32(31) + _hashed(table.column(name).combine_chunks())
            places %= np.uint32(self._counts[group])
            for number in np.unique(places).tolist():
                part = table.filter(pa.array(places == number))
                path = self._folder / f"{sum(map(len, self._files.values()))}.arrow"
                with (
                    pa.OSFile(str(path), "wb") as sink,
                    pa.ipc.new_file(sink, part.schema) as writer,
                ):
                    writer.write_table(part)
                self._files[group, number].append(path)
        self._waiting.clear()
        self._rows = 0

    def read(self) -> Iterator[tuple[Group, list[Slice]]]:
        """Yield all groups, sorted, with their non-empty slices."""
        self._spill()
        for group in sorted(self._counts):
            found = (self._files.get((group, number)) for number in range(self._counts[group]))
            yield group, [tuple(files) for files in found if files]


def _hashed(column: pa.Array) -> np.ndarray:
    """Hash (n,) of each value; for strings a checksum that is equal in every process."""
    if not pa.types.is_dictionary(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.uint32)
    words = [zlib.crc32(str(word).encode()) for word in column.dictionary.to_pylist()]
    return np.array(words, dtype=np.uint32)[column.indices.to_numpy()]
