"""Published numbers, converted to the units of metrics and matched to rows of a summary."""

import pandas as pd

from calgrid.errors import DataError
from calgrid.statistics.checks import check_columns
from calgrid.storage.schema import PUBLISHED_COLUMNS, PUBLISHED_UNITS

#: note of a standard deviation printed in percent of an unknown quantity
RELATIVE_STD = "std_printed_with_percent_sign"
_KEYS = ["dataset", "backbone", "method", "calibrator", "metric", "shift"]


def printed_numbers(published: pd.DataFrame) -> pd.DataFrame:
    """Published numbers in the units of the metrics: fractions, nats, seconds, ranks.

    Parameters
    ----------
    published : ``PUBLISHED_COLUMNS``, optionally ``std``; as read from CSV files, where an empty
        cell is missing.

    Returns
    -------
    The same rows with strings in ``table``, ``shift`` and ``suspect`` (why a number is doubtful,
    else empty), integers in ``severity``, and converted ``value`` and ``std``; ``std`` is missing
    if a note says that it was printed with a percent sign, because papers do not define this
    percentage.

    Raises
    ------
    DataError : a column is missing or a unit is unknown.
    """
    check_columns(published, PUBLISHED_COLUMNS, "published")
    words = published[["table", "shift", "suspect"]].astype(object).fillna("").astype(str)
    factor = published["unit"].map(PUBLISHED_UNITS)
    if factor.isna().any():
        unit = published["unit"][factor.isna()].iloc[0]
        raise DataError(
            f"published must have a unit of {', '.join(PUBLISHED_UNITS)} in each row, found "
            f"{unit!r}."
        )
    numbers = published[published.columns.intersection(["value", "std"])].apply(pd.to_numeric)
    numbers = numbers.mul(factor, axis="index")
    if "std" in numbers and "note" in published:
        numbers["std"] = numbers["std"].mask(
            published["note"].astype(str).str.contains(RELATIVE_STD, regex=False)
        )
    return published.assign(
        severity=published["severity"].fillna(0).astype(int), **words, **numbers
    )


def match_published(summary: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Published value of each row of a summary, in the unit of its metric, with its source.

    Matched on dataset, backbone, method, calibrator and metric: clean test rows with numbers for
    the test set, out-of-distribution rows with those for the same set. Of several numbers the first
    by paper and table is used, ``suspect`` ones last.

    Parameters
    ----------
    summary : frame with the columns dataset, backbone, method, calibrator, metric, split, shift.
    published : see :func:`printed_numbers`.

    Returns
    -------
    Frame with the index of ``summary`` and the columns ``published`` (NaN if none) and
    ``published_source`` (such as "smart t1"; empty if none).

    Raises
    ------
    DataError : as in :func:`printed_numbers`.
    """
    rows = printed_numbers(published)
    doubted, number = rows["suspect"] != "", pd.to_numeric(rows["table"], errors="coerce")
    rows = rows.assign(doubted=doubted, number=number)
    rows = rows.sort_values(["doubted", "paper", "number"], kind="stable").drop_duplicates(_KEYS)
    source = rows["paper"].astype(str) + " t" + rows["table"]
    source += rows["doubted"].map({True: " (suspect)", False: ""})
    known = rows.assign(source=source)[[*_KEYS, "value", "source"]]
    shift = summary["shift"].astype(str)
    printed = (summary["split"] == "ood") | ((summary["split"] == "test") & (shift == ""))
    shift = shift.where(printed, "(no published counterpart)")
    wanted = summary.assign(shift=shift)[_KEYS].astype(object)
    found = wanted.merge(known, on=_KEYS, how="left").set_axis(summary.index)
    return pd.DataFrame(
        {"published": found["value"], "published_source": found["source"].fillna("").astype(str)}
    )
