"""Intermediate results in a stage's working folder, from which a killed job continues to the same bytes."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from calgrid.errors import DataError, StateError
from calgrid.storage.arrays import read_arrays, write_arrays
from calgrid.storage.records import FILES, Record, digest_of, listed, write_record

#: results that took less time are not saved
KEPT_SECONDS = 1.0
Arrays = dict[str, np.ndarray]


class KeptFile:
    """A file that is computed in blocks: blocks are saved until the file is complete, then the file replaces them.

    Damaged blocks, and blocks computed from other ``inputs``, are ignored.

    Parameters
    ----------
    folder : working folder of the stage. name : path of the file below it.
    inputs : everything that the file depends on, JSON-like.
    """

    def __init__(self, folder: Path, name: str, inputs: Mapping[str, object]) -> None:
        self._folder, self._name, self._inputs = folder, name, digest_of([name, inputs])
        self._blocks: list[Path] = []
        self._record = f"kept-{name.replace('/', '-')}.json"

    def is_complete(self) -> bool:
        """Whether an earlier attempt has completed the file."""
        try:
            record = Record.read(self._folder, self._record)
            record.verified(self._name)
        except (DataError, StateError):
            return False
        return record.content.get("inputs") == self._inputs

    def block(self, number: int, compute: Callable[[], Arrays]) -> Arrays:
        """Arrays that an earlier attempt saved under this number, or else those that ``compute`` returns."""
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
        """Arrays that an earlier attempt saved under this number, or None."""
        if not self._path(number).is_file():
            return None
        try:
            arrays, facts = read_arrays(self._path(number), "kept block")
        except StateError:
            return None
        return arrays if facts == {"inputs": self._inputs, "block": number} else None

    @contextmanager
    def completing(self) -> Iterator[Path]:
        """Yield the path of the file; once it is written, it replaces its blocks."""
        path = self._folder / self._name
        begin = time.monotonic()
        yield path
        if time.monotonic() - begin > KEPT_SECONDS:
            files = listed(self._folder, [self._name])
            write_record(self._folder / self._record, {FILES: files, "inputs": self._inputs})
        for block in self._blocks:
            block.unlink(missing_ok=True)
