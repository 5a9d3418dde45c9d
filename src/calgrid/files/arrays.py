"""Arrays and columns of the user's files.

Array files are ``.npz``, ``.npy``, ``.safetensors`` and ``.pt``. Tables are Parquet, ``.csv``,
``.arrow`` and folders with ``state.json`` (Hugging Face ``save_to_disk``). A matrix in a table is a
column of lists, or one column per class.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from safetensors.numpy import load_file

from calgrid.errors import DataError
from calgrid.files import STORED, TENSOR_FILES
from calgrid.storage.atomic import read_json, require_file
from calgrid.storage.logits import read_column, read_metadata, read_table, refuse_repeated

ARRAY_FILES = (".npz", ".npy", ".safetensors", *TENSOR_FILES)
TABLES = (".parquet", ".csv", ".arrow")
PICKLES = (".p", ".pkl", ".pickle")
#: name of the array of a file without names
UNNAMED = ""
NUMBER = re.compile(r"-?\d*\.?\d+(e[+-]?\d+)?")


class Columns(Mapping[str, np.ndarray]):
    """Columns of a table as arrays, (N, width) for lists of numbers, else (N,); converted on
    access.

    A repeated name, or access to a column with missing values, raises DataError.
    """

    def __init__(self, table: pa.Table, path: Path) -> None:
        self.table, self.path = table, path
        for name in table.column_names:
            refuse_repeated(table, name, path)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.table.column_names:
            raise KeyError(name)
        return read_column(self.table, name, self.path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.column_names)

    def __len__(self) -> int:
        return self.table.num_columns

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata that calgrid wrote."""
        return read_metadata(self.table)

    def stacked(self, names: Sequence[str]) -> np.ndarray:
        """Return numeric columns as (N, K); other columns raise DataError."""
        found = [self[name] for name in names]
        for name, values in zip(names, found, strict=True):
            if values.dtype.kind not in "fiu" or values.ndim > 1:
                held = self.table.field(name).type
                raise DataError(
                    f"Column '{name}' of {self.path} must contain one number per row, it contains "
                    f"{held}."
                )
        return np.column_stack(found)


def load(path: Path) -> Mapping[str, np.ndarray]:
    """Return the arrays of an array file, or the columns of a table, by name.

    Raises DataError: the file is missing, damaged, of an unknown type, or could execute code.
    """
    suffix = path.suffix.lower()
    if suffix in TABLES:
        return Columns(_load_table(path), path)
    if suffix in TENSOR_FILES:
        return _load_tensors(path)
    if suffix in ARRAY_FILES:
        return _load_arrays(path)
    if (path / STORED).is_file():
        return Columns(_load_data_set(path), path)
    if path.is_dir() and (
        inside := [*sorted(path.glob(f"*/{STORED}")), *sorted(path.glob("*.arrow"))]
    ):
        one = inside[0].parent if inside[0].name == STORED else inside[0]
        raise DataError(
            f"{path} is a folder; give one of its files or data sets, for example {one}."
        )
    known = ", ".join((*TABLES, *ARRAY_FILES))
    if suffix in PICKLES:
        raise DataError(
            f"{path}: pickles are not read, because they can execute code; load it, if you trust "
            f"it, and save the "
            "arrays with numpy.savez('logits.npz', logits=logits, label=labels)."
        )
    raise DataError(f"{path}: unknown file type '{suffix}'; use one of {known}.")


def _load_arrays(path: Path) -> dict[str, np.ndarray]:
    require_file(path)
    suffix = path.suffix.lower()
    try:
        if suffix == ".safetensors":
            return load_file(path)
        if suffix == ".npy":
            return {UNNAMED: np.load(path, allow_pickle=False)}
        if not zipfile.is_zipfile(path):  # the message of NumPy would be about pickles
            raise ValueError("not an .npz archive")
        with np.load(path, allow_pickle=False) as stream:
            names, members = stream.files, {name: stream[name] for name in stream.files}
    except Exception as error:  # damaged files raise many types
        reason = str(error).split(". ")[0]
        raise DataError(f"The file {path} cannot be read ({reason}); write it again.") from None
    if twice := sorted(name for name in members if names.count(name) > 1):
        raise DataError(f"{path} has several arrays named '{twice[0]}'; keep one.")
    return {name: value for name, value in members.items() if isinstance(value, np.ndarray)}


def _load_tensors(path: Path) -> dict[str, np.ndarray]:
    """Tensors of a dictionary, a pair (logits, label), or a single tensor."""
    require_file(path)
    try:
        import torch  # noqa: PLC0415  (it takes seconds, and only these files need it)
    except ImportError:
        raise DataError(
            f"{path}: reading {path.suffix} needs PyTorch; install it, or save .npz."
        ) from None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # damaged files raise many types with long messages
        raise DataError(
            f"The file {path} is damaged, or contains more than tensors and could execute code; "
            f"save two tensors with "
            "torch.save({'logits': logits, 'label': labels}, path)."
        ) from None
    if isinstance(found, torch.Tensor):
        found = {UNNAMED: found}
    elif isinstance(found, list | tuple) and len(found) == 2:
        found = dict(zip(("logits", "label"), found, strict=True))
    arrays = {}
    for name, value in found.items() if isinstance(found, Mapping) else ():
        if isinstance(value, torch.Tensor):
            plain = value.detach().float() if value.dtype is torch.bfloat16 else value.detach()
            arrays[str(name)] = plain.numpy()
        elif isinstance(value, list):  # of names or numbers
            arrays[str(name)] = np.asarray(value)
    return arrays


def _load_table(path: Path) -> pa.Table:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return read_table(path, "logits file", "write it again")
    require_file(path)
    try:
        table = pa.csv.read_csv(path) if suffix == ".csv" else _load_arrow(path)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"The file {path} cannot be read ({reason}); write it again.") from None
    if suffix == ".csv" and all(map(NUMBER.fullmatch, table.column_names)):
        raise DataError(
            f"{path} has no header; add a first line with the names of the columns, one of them "
            f"'label'."
        )
    return table.select(
        [place for place, name in enumerate(table.column_names) if name]
    )  # row numbers of pandas


def _load_arrow(path: Path) -> pa.Table:
    try:  # save_to_disk writes streams
        return pa.ipc.open_stream(path.read_bytes()).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_file(path.read_bytes()).read_all()


def _load_data_set(folder: Path) -> pa.Table:
    """Rows of a data set that ``save_to_disk`` of Hugging Face datasets wrote."""
    state = read_json(folder / STORED, "list of the data set's files", "save the data set again")
    try:
        names = [Path(each["filename"]).name for each in state["_data_files"]]
        return pa.concat_tables(_load_table(folder / name) for name in names)
    except (KeyError, TypeError, pa.ArrowException) as error:
        raise DataError(f"The data set {folder} cannot be read ({error}); save it again.") from None


def class_columns(
    columns: Columns,
    ignored: Sequence[str],
    labels: np.ndarray | None,
    key: str | None = None,
    classes: Sequence[str] | None = None,
) -> tuple[list[str], Sequence[str] | None]:
    """Find the columns of a wide table with one class each, in the order of the classes, and the
    names of the classes.

    The candidates are, in this order: columns that end with the names of ``classes``, columns that
    end with 0 to K-1, and all remaining columns if they are floating-point. An ambiguous choice
    gives no columns.

    Parameters
    ----------
    ignored : names of other columns. labels : (N,), text if the classes have names.
    key : prefix of the names of the columns. classes : names of the classes, in order, if known.
    """
    names = [name for name in columns if name not in ignored and name.startswith(key or "")]
    if classes and (start := _common_start(names, classes)) is not None:
        return [start + name for name in classes], classes
    numbered: dict[str, dict[int, str]] = {}
    for name in names:
        if match := re.fullmatch(r"(.*?)(\d+)", name):
            numbered.setdefault(match[1], {})[int(match[2])] = name
    complete = [
        found for found in numbered.values() if len(found) > 1 and max(found) == len(found) - 1
    ]
    if len(complete) == 1:
        return [name for _, name in sorted(complete[0].items())], classes
    real = all(pa.types.is_floating(columns.table.field(name).type) for name in names)
    if classes or complete or len(names) < 2 or not real:
        return [], classes
    if labels is None or labels.dtype.kind not in "OUS":
        return names, None
    start = _common_start(names, {str(label) for label in labels})
    if start is None or not all(name.startswith(start) for name in names):
        return [], None
    return names, [name.removeprefix(start) for name in names]


def _common_start(names: Sequence[str], classes: Iterable[str]) -> str | None:
    """The unique prefix with which each class is one of the names; None if there is none or
    several.
    """
    wanted = list(classes)
    starts = {name.removesuffix(wanted[0]) for name in names if name.endswith(wanted[0])}
    fitting = [start for start in starts if all(start + name in names for name in wanted)]
    return fitting[0] if len(fitting) == 1 else None
