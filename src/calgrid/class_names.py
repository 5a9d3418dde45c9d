"""Names of classes: in messages, in files, and in the order of another source."""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calgrid.errors import DataError, visible
from calgrid.progress import warn

#: names of classes that a message lists
SHOWN_NAMES = 10
#: key of the metadata that the datasets library writes into Parquet files
HUGGING_FACE = b"huggingface"


def shown_names(names: Sequence[str]) -> str:
    """The names of classes for a message, without control characters; many are cut short."""
    shown = visible(", ".join(names[:SHOWN_NAMES]))
    return shown if len(names) <= SHOWN_NAMES else f"{shown}, ..."


def unlike(names: Iterable[str], known: Iterable[str]) -> str:
    """End of a message about ``names`` that are not ``known``, if one looks like a known one."""
    looks = {unicodedata.normalize("NFC", name): name for name in known}
    for name in names:
        other = looks.get(unicodedata.normalize("NFC", name), name)
        if name != other:
            return f" ({name!a} and {other!a} look the same: rename one of them)"
    return ""


def as_names(values: Any) -> list[str] | None:
    """Different texts or whole numbers of a list as names of classes; None for anything else."""
    if not isinstance(values, list) or not all(type(value) in (str, int) for value in values):
        return None
    names = list(map(str, values))
    return names if len(set(names)) == len(names) > 1 else None


def names_of_labels(metadata: Mapping[bytes, bytes] | None, column: str) -> list[str] | None:
    """Names of the classes of a column of labels that the datasets library wrote, by the metadata
    of its table; None without.
    """
    try:
        features = json.loads((metadata or {})[HUGGING_FACE])["info"]["features"]
        return as_names(features[column]["names"])
    except (LookupError, TypeError, ValueError):
        return None


def say_unnamed(what: str, unnamed: object, named: object, names: Sequence[str]) -> None:
    """Warn that labels, columns or outputs without class names are taken in the order of another
    source.
    """
    warn(
        f"{unnamed} does not name its classes: its {what} are taken in the order of "
        f"{named}, {shown_names(names)}."
    )


def check_outputs(
    weights: str,
    named: Sequence[str] | None,
    dataset: str,
    classes: Sequence[str] | None,
    chosen: bool,
) -> None:
    """Raise DataError if a network trained elsewhere has other classes than its test data set, or
    if the order of numbered classes is unknown.

    Parameters
    ----------
    weights : the file of the network, for messages. named : names of its outputs, if known.
    dataset : name of the data set. classes : names of its classes, if known.
    chosen : whether the configuration gives their order.
    """
    if classes is None:
        return
    if named is None:
        numbers = None if chosen else in_order_of_numbers(classes)
        if numbers is not None:
            raise DataError(
                f"the classes of '{dataset}' are in the order of text ({shown_names(classes)}), "
                f"and {weights} does not name its outputs; give the data set their order, such as "
                f"classes: [{shown_names(numbers)}]."
            )
    elif is_other_order(named, classes):
        raise DataError(
            f"{weights} has the classes of '{dataset}' in another order "
            f"({first_difference(named, classes)}); give the data set that of the network, "
            f"classes: [{shown_names(named)}]."
        )
    elif list(named) != list(classes):
        raise DataError(
            f"{weights} has outputs for the classes {shown_names(named)}, but '{dataset}' has "
            f"{shown_names(classes)}; use weights for these classes, or correct the names"
            f"{unlike(named, classes)}."
        )


def is_other_order(names: Sequence[str], others: Sequence[str]) -> bool:
    """Whether the same names are in another order."""
    return list(names) != list(others) and sorted(names) == sorted(others)


def first_difference(names: Sequence[str], others: Sequence[str]) -> str:
    """Words for the first place at which the same names in another order differ."""
    pairs = enumerate(zip(names, others, strict=True))
    place, (name, other) = next(each for each in pairs if each[1][0] != each[1][1])
    return f"class {place} is '{visible(name)}' instead of '{visible(other)}'"


def in_order_of_numbers(names: Sequence[str]) -> list[str] | None:
    """Names in the order of the numbers in them (``1_cat``, ``2_dog``, ``10_fox``), if they are
    sorted as text in another order; else None.
    """

    def pieces(name: str) -> list[str | int]:
        return [int(piece) if piece.isdecimal() else piece for piece in re.split(r"(\d+)", name)]

    ordered = sorted(names, key=pieces)  # text and numbers in turn
    return ordered if list(names) == sorted(names) != ordered else None
