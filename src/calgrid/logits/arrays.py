"""Arrays and columns of people's files: ``.npz``, ``.pt``, ``.parquet`` and ``.csv``.

A matrix in a table is a column of lists, or one column per class.
"""

import contextlib
import re
import warnings
import zipfile
from collections import Counter, UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from calgrid.class_names import as_names, names_of_labels
from calgrid.errors import CalgridError, DataError, refuse, row_at, visible
from calgrid.logits.formats import FORMATS, check_format
from calgrid.storage.atomic import require_file
from calgrid.storage.logits import read_column, read_metadata, read_table, refuse_repeated
from calgrid.storage.records import Facts

#: name of a tensor that is the whole content of its file
UNNAMED = ""
#: name of an array of text with the names of the classes, in the order of the columns
CLASSES = "classes"
#: name of the column of labels that calgrid writes
LABEL = "label"
NUMBER = re.compile(r"-?\d*\.?\d+(e[+-]?\d+)?")
#: a file is refused if its unpacked bytes exceed both this number and this multiple of its size
UNPACKED_BYTES, UNPACKED_RATIO = 2**30, 100
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
SEPARATOR = re.compile(r"[;\t|]")


class Arrays(UserDict[str, Any]):
    """Arrays of a file by name; each is converted on access, which may raise DataError.

    Parameters
    ----------
    content : name -> an array, or what ``convert(name)`` makes one of.
    """

    def __init__(
        self, content: Mapping[str, Any], convert: Callable[[str], np.ndarray] | None = None
    ) -> None:
        super().__init__(content)
        self._convert = convert or self.data.__getitem__

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self:
            raise KeyError(name)
        return self._convert(name)

    @property
    def metadata(self) -> Facts:
        """Names of the classes, key ``classes``, if an array of text has this name."""
        if CLASSES not in self or self[CLASSES].dtype.kind != "U":
            return {}
        names = as_names(self[CLASSES].tolist())
        return {} if names is None else {CLASSES: names}


class Columns(Arrays):
    """Columns of a table that have a name, as arrays: (N, width) for lists of numbers, else (N,).

    A column ``label`` without any label is left out. A repeated name raises DataError, and so does
    access to a column with missing values.
    """

    def __init__(self, table: pa.Table, path: Path) -> None:
        # columns without a name are row numbers that pandas wrote
        names = list(filter(None, table.column_names))
        for name in names:
            refuse_repeated(table, name, path)
        types = {name: table.field(name).type for name in names}
        if LABEL in types and pa.types.is_null(types[LABEL]):
            del types[LABEL]
        super().__init__(types, self._column)
        self.table, self.path = table, path

    def _column(self, name: str) -> np.ndarray:
        if pa.types.is_binary(self.data[name]) or pa.types.is_large_binary(self.data[name]):
            raise DataError(
                f"Column '{name}' of {self.path} is not text in UTF-8; save it as such."
            )
        with _reading(self.path):  # text may be damaged
            return read_column(self.table, name, self.path)

    @property
    def metadata(self) -> Facts:
        """Metadata that calgrid wrote."""
        return read_metadata(self.table)

    def classes_of_numbers(self, labels: Sequence[str]) -> list[str] | None:
        """Names of the classes of the first label column with names written by the datasets library
        (``ClassLabel``); None without.
        """
        found = [names_of_labels(self.table.schema.metadata, name) for name in labels]
        return next(filter(None, found), None)

    def ordered_categories(self, labels: Sequence[str]) -> list[str] | None:
        """Categories, in order, of the first column of labels with ordered categories of text: an
        ordered categorical of pandas, an ordered dictionary of Arrow, an Enum of polars; None
        without.
        """
        for name in filter(self.__contains__, labels):
            if pa.types.is_dictionary(self.data[name]) and self.data[name].ordered:
                column = self.table[name].unify_dictionaries()
                if column.num_chunks:
                    values = column.chunk(0).dictionary.to_pylist()
                    return values if all(isinstance(value, str) for value in values) else None
        return None

    def floating(self, names: Sequence[str]) -> list[str]:
        """Return the names whose columns have a floating-point type."""
        return [name for name in names if pa.types.is_floating(self.data[name])]

    def stacked(self, names: Sequence[str]) -> np.ndarray:
        """Return numeric columns as (N, K); of others, a DataError names the first text that is no
        number, or their type.
        """
        columns = []
        for name in names:
            columns.append(self[name])
            if columns[-1].dtype.kind in "fiu" and columns[-1].ndim == 1:
                continue
            content = str(self.data[name])
            texts = self.table[name].to_pylist() if pa.types.is_string(self.data[name]) else []
            for row, text in enumerate(texts):
                if not NUMBER.fullmatch(text.strip().lower()):
                    content = f"'{visible(text)}' in {row_at(row)}"
                    break
            raise DataError(
                f"Column '{name}' of {self.path} must contain one number per row, it contains "
                f"{content}."
            )
        return np.column_stack(columns)


def load(path: Path, formats: tuple[str, ...] = FORMATS) -> Arrays:
    """Return the arrays of a file, or the columns of a table, by name.

    Raises
    ------
    DataError : the file is missing, no regular file, damaged, of another format, far larger when
        unpacked, or could execute code.
    """
    check_format(path, formats)
    if path.exists() and not path.is_dir() and not path.is_file():
        raise DataError(f"{path} is a pipe or device; copy its content into a file.")
    require_file(path)
    if path.stat().st_size == 0:  # also the files that a kernel makes up, such as /proc/self/mem
        raise DataError(f"{path} is empty; write it again.")
    return READERS[path.suffix.lower()](path)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise DataError in the place of errors of libraries; damaged files raise many types."""
    try:
        yield
    except CalgridError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        reason = reason.split(". ")[0].rstrip(".")
        raise DataError(f"The file {path} cannot be read ({reason}); write it again.") from None


def _refuse_bomb(path: Path, unpacked: int) -> None:
    """Raise DataError if the content needs far more memory than the file has bytes."""
    if unpacked > max(UNPACKED_BYTES, UNPACKED_RATIO * path.stat().st_size):
        raise DataError(
            f"{path} is not unpacked, because its {path.stat().st_size / 1e6:.1f} MB would become "
            f"{unpacked / 1e9:.1f} GB; if you trust it, save it without compression."
        )


def _members(path: Path) -> list[zipfile.ZipInfo]:
    """Members of a zip archive; refuses one that unpacks to far more bytes than its size."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    _refuse_bomb(path, sum(member.file_size for member in members))
    return members


def _load_npz(path: Path) -> Arrays:
    with _reading(path):
        if not zipfile.is_zipfile(path):  # the message of NumPy would be about pickles
            raise ValueError("not an .npz archive")
        members = _members(path)
    files = [member.filename for member in members if member.filename.endswith(".npy")]
    names = Counter(name.removesuffix(".npy") for name in files)
    for name, count in names.items():
        if count > 1:
            raise DataError(f"{path} has several arrays named '{name}'; keep one.")

    def read(name: str) -> np.ndarray:
        with _reading(path), np.load(path, allow_pickle=False) as stream:
            try:
                return stream[name]
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise
        raise DataError(
            f"'{name}' in {path} contains Python objects, which are not read, because they can "
            f"execute code; save numbers with {name}.astype(float), text with {name}.astype(str)."
        )

    return Arrays(names, read)


def _load_plain(path: Path, read: Callable[[Path], Mapping[str, np.ndarray]]) -> Arrays:
    with _reading(path):
        return Arrays(read(path))


def _load_tensors(path: Path) -> Arrays:
    """Tensors and lists of a dictionary, a pair (logits, label), a list of such pairs, or a single
    tensor.
    """
    try:
        import torch  # noqa: PLC0415  (it takes seconds, and only these files need it)
    except ImportError:
        raise DataError(
            f"{path}: reading {path.suffix} needs PyTorch; install it, or save .npz."
        ) from None
    with _reading(path):
        if zipfile.is_zipfile(path):  # old files of PyTorch are not
            _members(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about types of tensors that are refused below
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # damaged files raise many types with long messages
        raise DataError(
            f"The file {path} is damaged, or contains more than tensors and could execute code; "
            "save two tensors with torch.save({'logits': logits, 'label': labels}, path)."
        ) from None
    if isinstance(content, torch.Tensor):
        content = {UNNAMED: content}
    elif isinstance(content, list) and content and all(map(_is_batch, content)):
        logits, labels = zip(*content, strict=True)
        _refuse_bomb(path, sum(part.numel() * part.element_size() for part in logits + labels))
        with _reading(path):
            content = {"logits": torch.cat(logits), "label": torch.cat(labels)}
    elif isinstance(content, list | tuple) and len(content) == 2:
        content = {"logits": content[0], "label": content[1]}
    elif not isinstance(content, Mapping):
        content = {}
    readable, inner = {}, []
    for name, value in content.items():
        if isinstance(value, torch.Tensor | list):
            readable[str(name)] = value
        elif isinstance(value, Mapping):
            inner.append(str(name))
    if inner and not readable:
        raise DataError(
            f"{path} contains dictionaries ({visible(', '.join(inner))}) in place of tensors; save "
            "one of them as a file of its own with torch.save."
        )
    return Arrays(readable, lambda name: _plain_array(readable[name], name, path))


def _is_batch(value: Any) -> bool:
    """Whether a value is a pair of tensors (logits, label), as a loop over batches collects."""
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    return is_pair and all(hasattr(part, "detach") for part in value)


def _plain_array(values: Any, name: str, path: Path) -> np.ndarray:
    """Values of a dense tensor, or of a list; float32 for types that NumPy lacks (bfloat16,
    float8).
    """
    if isinstance(values, list):
        try:
            return np.asarray(values)
        except (TypeError, ValueError):  # tensors in a list, rows of different length
            raise DataError(
                f"'{name}' in {path} is a list of other things than numbers or text; save it as "
                "one tensor."
            ) from None
    special = values.is_meta or values.is_quantized or values.is_nested
    if special or str(values.layout) != "torch.strided":
        raise DataError(
            f"'{name or 'the tensor'}' in {path} is a sparse, quantised, nested or meta tensor; "
            "save a dense one with its values as float32."
        )
    # a view that repeats its values is small in the file
    _refuse_bomb(path, values.nbytes)
    plain = values.detach().resolve_conj().resolve_neg()
    with _reading(path):
        try:
            return plain.numpy()
        except TypeError:
            return plain.float().numpy()


def _load_parquet(path: Path) -> Columns:
    with _reading(path):
        metadata = pq.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
    # equal numbers need no bytes in the file; the metadata of columns would tell more, but pyarrow
    # ends the process where these are damaged
    row_bytes = sum(_bytes_per_row(field.type) for field in schema)
    _refuse_bomb(path, metadata.num_rows * row_bytes)
    return Columns(read_table(path, "logits file", "write it again"), path)


def _bytes_per_row(content: pa.DataType) -> int:
    """Bytes of a value in memory; 0 if they vary."""
    if pa.types.is_fixed_size_list(content):
        return content.list_size * _bytes_per_row(content.value_type)
    try:
        return content.bit_width // 8
    except ValueError:  # text and lists
        return 0


def _load_csv(path: Path) -> Columns:
    with path.open("rb") as stream:
        first = stream.readline()
    header = first.decode("utf-8-sig", "replace").strip()
    refuse(
        (first[:2] in UTF16_MARKS, f"{path} is encoded in UTF-16; save it in UTF-8."),
        (
            header.startswith("#"),
            f"{path} begins with '#'; its first line must be the names of the columns alone (with "
            "numpy.savetxt, comments='').",
        ),
        # before the table is read: with decimal commas its rows have more columns than the header
        (
            "," not in header and SEPARATOR.search(header),
            f"{path} has one column, '{visible(header)}'; separate the columns by commas, and "
            "write decimal points.",
        ),
        error=DataError,
    )
    with _reading(path):
        table = _read_csv(path)
        names = table.column_names
    refuse(
        (not len(table), f"{path} has a header and no rows; write it again."),
        (
            all(map(NUMBER.fullmatch, names)),
            f"{path} has no header; add a first line with the names of the columns, one of them "
            "'label'.",
        ),
        error=DataError,
    )
    return Columns(table, path)


def _read_csv(path: Path) -> pa.Table:
    try:
        return pa.csv.read_csv(path)
    except pa.ArrowInvalid:
        pass
    # one thread knows the row; its numbers count from 1, with the header
    try:
        return pa.csv.read_csv(path, read_options=pa.csv.ReadOptions(use_threads=False))
    except pa.ArrowInvalid as error:
        raise ValueError(
            re.sub(r"\bRow #(\d+)", lambda match: row_at(int(match[1]) - 2), str(error))
        ) from None


READERS: dict[str, Callable[[Path], Arrays]] = {
    ".npz": _load_npz,
    ".npy": partial(_load_plain, read=lambda path: {UNNAMED: np.load(path, allow_pickle=False)}),
    ".pt": _load_tensors,
    ".pth": _load_tensors,
    ".parquet": _load_parquet,
    ".csv": _load_csv,
    ".safetensors": partial(_load_plain, read=load_file),
}
