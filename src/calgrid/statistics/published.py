"""Numbers that papers printed, matched to the rows of a summary."""

import pandas as pd

from calgrid.statistics._frames import check_columns

COLUMNS = ("paper", "table", "dataset", "backbone", "method", "calibrator", "metric", "value", "note")
_KEYS = ["dataset", "backbone", "method", "calibrator", "metric", "ood"]
#: notes of rows that vary a setting on purpose and so are not the method as published
_VARIANTS = r"(?:^|;)(?:objective|indicator|lambda|delta)="


def match_published(summary: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Published value of each row of a summary, as a fraction (NLL in nats), with where it was printed.

    Matched on dataset, backbone, method, calibrator and metric: clean test rows with numbers about the test set,
    out-of-distribution rows with those whose note names the same set (``ood=svhn``). Of several numbers the first by
    paper and table counts, those marked ``suspect`` last. Rows that vary a setting (notes ``objective=``,
    ``indicator=``, ``lambda=``, ``delta=``) are left out; of the cumulative rows ``component=`` only the last is the
    full method. ``maccal`` as calibrator is the second stage ``maccal+<method>`` without calibrator.

    Parameters
    ----------
    summary : frame with the columns dataset, backbone, method, calibrator, metric, split, shift.
    published : columns paper, table, dataset, backbone, method, calibrator, metric, value (percent), note.

    Returns
    -------
    Frame with the index of ``summary`` and the columns ``published`` (NaN where there is none) and
    ``published_source`` (such as "smart t1"; empty where there is none).

    Raises
    ------
    DataError : if ``published`` lacks a column.
    """
    check_columns(published, COLUMNS, "published")
    known = _one_per_cell(_as_methods(published.assign(note=published["note"].astype(object).fillna("").astype(str))))
    wanted = summary.assign(ood=_ood_set(summary))[_KEYS].astype(object)
    found = wanted.merge(known, on=_KEYS, how="left").set_axis(summary.index)
    return pd.DataFrame({"published": found["value"] / 100, "published_source": found["source"].fillna("").astype(str)})


def _as_methods(published: pd.DataFrame) -> pd.DataFrame:
    """Write MaC-Cal on top of another method as the second-stage method that it is."""
    stacked = published["calibrator"] == "maccal"
    method = "maccal+" + published["method"].astype(str)
    return published.assign(
        method=published["method"].mask(stacked, method.replace("maccal+ce", "maccal")),
        calibrator=published["calibrator"].mask(stacked, "none"),
    )


def _one_per_cell(published: pd.DataFrame) -> pd.DataFrame:
    """Keep one number a cell, with the columns _KEYS, value and source."""
    note = published["note"]
    rows = published.assign(
        ood=note.str.extract(r"(?:^|;)ood=([^;]*)", expand=False).fillna(""),
        suspect=note.str.contains(r"(?:^|;)suspect(?:;|$)"),
    )[~note.str.contains(_VARIANTS)]
    is_step = rows["note"].str.contains(r"(?:^|;)component=")
    full = rows[is_step].drop_duplicates(["paper", "table", *_KEYS], keep="last")
    rows = pd.concat([rows[~is_step], full]).assign(number=lambda frame: pd.to_numeric(frame["table"], errors="coerce"))
    rows = rows.sort_values(["suspect", "paper", "number"], kind="stable").drop_duplicates(_KEYS)
    place = rows["paper"].astype(str) + " t" + rows["table"].astype(str)
    return rows.assign(source=place + rows["suspect"].map({True: " (suspect)", False: ""}))[[*_KEYS, "value", "source"]]


def _ood_set(summary: pd.DataFrame) -> pd.Series:
    """Out-of-distribution set of each row: empty for clean test rows, and no set at all for rows that match nothing."""
    name = summary["shift"].astype(str).str.removeprefix("ood/")
    clean = (summary["split"] == "test") & (name == "")
    return name.where(clean | (summary["split"] == "ood"), "(no published counterpart)")
