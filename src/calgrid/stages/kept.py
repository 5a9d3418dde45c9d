"""Intermediate results in the working folder of a stage, from which a killed job continues with identical results."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from calgrid.errors import DataError, StateError
from calgrid.storage.arrays import read_arrays, write_arrays
from calgrid.storage.records import FILES, Record, digest_of, listed, write_record

#: faster results are not stored
KEPT_SECONDS = 1.0
Arrays = dict[str, np.ndarray]


class KeptFile:
    """A file that is computed in blocks: the blocks are stored until the file is complete.

    Damaged blocks and files, and those of other ``inputs``, are computed again.

    Parameters
    ----------
    folder : working folder of the stage.
    name : path of the file in this folder.
    inputs : everything that the file depends on, JSON-like.
    """

    def __init__(self, folder: Path, name: str, inputs: Mapping[str, object]) -> None:
        self._folder, self._name, self._inputs = folder, name, digest_of([name, inputs])
        self._blocks: list[Path] = []
        self._record = f"kept-{name.replace('/', '-')}.json"

    def is_complete(self) -> bool:
        """Whether an earlier attempt completed the file."""
        try:
            record = Record.read(self._folder, self._record)
            record.verified(self._name)
        except (DataError, StateError):
            return False
        return record.content.get("inputs") == self._inputs

    def block(self, number: int, compute: Callable[[], Arrays]) -> Arrays:
        """Return the stored arrays of a block, or compute and store them."""
        path = self._path(number)
        self._blocks.append(path)
        if (found := self.kept(number)) is not None:
            return found
        begin = time.monotonic()
        arrays = compute()
        if time.monotonic() - begin > KEPT_SECONDS:
            write_arrays(path, arrays, {"inputs": self._inputs, "block": number})
        return arrays

    def _path(self, number: int) -> Path:
        return self._folder / f"kept-{self._name.replace('/', '-')}-{number}.safetensors"

    def kept(self, number: int) -> Arrays | None:
        """Return the stored arrays of a block, or None."""
        if not self._path(number).is_file():
            return None
        try:
            arrays, facts = read_arrays(self._path(number), "kept block")
        except StateError:
            return None
        return arrays if facts == {"inputs": self._inputs, "block": number} else None

    @contextmanager
    def completing(self) -> Iterator[Path]:
        """Yield the path of the file; when it is written, its blocks are deleted."""
        path = self._folder / self._name
        begin = time.monotonic()
        yield path
        if time.monotonic() - begin > KEPT_SECONDS:
            files = listed(self._folder, [self._name])
            write_record(self._folder / self._record, {FILES: files, "inputs": self._inputs})
        for block in self._blocks:
            block.unlink(missing_ok=True)
