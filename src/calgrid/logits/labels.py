"""Class numbers from labels of common forms: numbers, names of classes, one-hot rows."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calgrid.calibrators._validation import plain_labels
from calgrid.class_names import SHOWN_NAMES, shown_names, unlike
from calgrid.errors import DataError, row_at, visible
from calgrid.storage.logits import NO_LABEL

#: digits of a class number as text; more do not fit into int64
MOST_DIGITS = 15
INTEGER = re.compile(rf"-?\d{{1,{MOST_DIGITS}}}")


def class_numbers(
    labels: np.ndarray, width: tuple[int, ...], classes: Sequence[str] | None, path: Path
) -> tuple[np.ndarray, Sequence[str] | None]:
    """Convert labels (N,), (N, 1) or one-hot (N, K) to class numbers; return others unchanged. Also
    return the names of the classes, if known now.

    Parameters
    ----------
    labels : class numbers, also as floats or digits, names of classes, or False and True for two
        classes.
    width : (K,), the shape of a row of logits.
    classes : names of the classes, in the order of the columns, if known.
    path : file of the logits, for messages.

    Raises
    ------
    DataError : there are not K names, or a label is none of them, or their order is unknown.
    """
    if classes and width not in ((), (len(classes),)):
        raise DataError(
            f"{path} has {width[0]} columns for the {len(classes)} classes {shown_names(classes)}."
        )
    if labels.shape[1:] == (1,):
        labels = labels.reshape(-1)
    if labels.dtype.kind in "OUST":  # text, or objects that are read as such
        return _numbers_of_text(labels, width, classes, path)
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise DataError(
            f"{path}: {np.isnan(labels).sum()} labels are NaN; give the classes of these rows, or "
            "remove the rows."
        )
    if labels.dtype.kind == "b" and width == (2,) and classes:
        return (labels != (classes[0].casefold() == "true")).astype(np.int64), classes
    return plain_labels(labels, width[0] if width else 0, f"{path}: "), classes


def numbers_of_values(labels: np.ndarray, classes: Sequence[str], path: Path) -> np.ndarray:
    """Convert labels (N,) or (N, 1) to class numbers if the class names are False and True, or
    integers other than 0 to K-1 in order; else return them unchanged.

    Raises
    ------
    DataError : a label is none of these names.
    """
    values = _values_of_names(classes)
    if labels.shape[1:] == (1,):
        labels = labels.reshape(-1)
    if labels.ndim == 1 and labels.dtype.kind == "f":
        labels = plain_labels(labels, len(classes))
    are_numbers = labels.dtype.kind in "biu"
    if values is None or labels.ndim != 1 or not are_numbers:
        return labels
    if NO_LABEL not in values and (labels == NO_LABEL).all():
        return labels
    numbers = np.full(labels.shape, NO_LABEL, np.int64)
    for number, value in enumerate(values):
        numbers[labels == value] = number
    unknown = numbers == NO_LABEL
    if unknown.any():
        row = int(unknown.argmax())
        raise DataError(
            f"{path}: label {int(labels[row])} in {row_at(row)} is not one of the classes "
            f"{shown_names(classes)} that its columns name; correct the labels, or, if they count "
            "the columns from 0, give the whole names of the columns with --classes (in a study, "
            "classes)."
        )
    return numbers


def _values_of_names(names: Sequence[str]) -> list[int] | None:
    """Numbers written in class names: 0 and 1 for False and True, or integers except 0 to K-1; None
    for other names.
    """
    words = [name.casefold() for name in names]
    if sorted(words) == ["false", "true"]:
        return [0, 1] if words[0] == "false" else [1, 0]
    if not all(map(INTEGER.fullmatch, names)):
        return None
    values = list(map(int, names))
    are_places = sorted(values) == list(range(len(values)))
    return None if are_places or len(set(values)) < len(values) else values


def _numbers_of_text(
    labels: np.ndarray, width: tuple[int, ...], classes: Sequence[str] | None, path: Path
) -> tuple[np.ndarray, Sequence[str] | None]:
    """Class numbers from class names, or from numbers written as text; and the names."""
    try:
        words = np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels.astype(str)
    except UnicodeDecodeError:
        raise DataError(f"{path}: labels are not text in UTF-8; save them as such.") from None
    different, place = np.unique(words.ravel(), return_inverse=True)
    names = different.tolist()
    if not classes and all(name.isdecimal() and len(name) <= MOST_DIGITS for name in names):
        return words.astype(np.int64), None
    if not classes:
        is_short = width == (len(names),) and len(names) <= SHOWN_NAMES
        order = visible(",".join(names)) if is_short else "A,B,..."
        raise DataError(
            f"{path}: labels are text, and nothing tells the order of the columns; give their "
            f"classes, such as --classes {order} (in a study, classes) if they are sorted by name."
        )
    number_of = {name: number for number, name in enumerate(classes)}
    for name in names:
        if name not in number_of:
            row = row_at(int((words.ravel() == name).argmax()))
            raise DataError(
                f"{path}: label '{visible(name)}' in {row} is not one of the classes "
                f"{shown_names(classes)}{unlike([name], classes)}."
            )
    numbers = np.array([number_of[name] for name in names], np.int64)
    return numbers[place].reshape(words.shape), classes
