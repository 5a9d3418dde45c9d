"""Compare the numbers of two finished studies, bit for bit, without fingerprints and order of rows.

Usage: ``python benchmarks/same_numbers.py results/digits other_results/digits``. The exit code is 1
if ``metrics.parquet``, ``summary.parquet`` or ``shift_summary.parquet`` differ.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

FILES = ("metrics.parquet", "summary.parquet", "shift_summary.parquet")
#: columns that say from what a row was computed
IGNORED = ("fingerprint",)
#: differences of a file that are listed
SHOWN = 10


def read(path: Path) -> pd.DataFrame:
    """Rows of a table by the columns that are no floating-point numbers."""
    table = pd.read_parquet(path).drop(columns=list(IGNORED), errors="ignore")
    numbers = list(table.select_dtypes("float"))
    keys = [name for name in table if name not in (*numbers, "n_samples")]
    words = table[keys].astype(object).astype(str)
    return table.drop(columns=keys).set_index(pd.MultiIndex.from_frame(words)).sort_index()


def differences(one: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """What differs between two tables, one sentence each."""
    if list(one) != list(other) or one.index.names != other.index.names:
        return [f"columns {[*one.index.names, *one]} and {[*other.index.names, *other]}"]
    missing = one.index.symmetric_difference(other.index)
    if len(missing):
        return [f"row {key} is in one table only" for key in missing]
    if not one.index.equals(other.index):
        return ["a row is repeated another number of times"]
    found = []
    for name in one:
        left, right = one[name].to_numpy(float), other[name].to_numpy(float)
        differs = left.view(np.int64) != right.view(np.int64)
        differs &= ~(np.isnan(left) & np.isnan(right))
        for row in np.flatnonzero(differs):
            found.append(f"{name} of {one.index[row]}: {left[row]!r} and {right[row]!r}")
    return found


def main(first: Path, second: Path) -> int:
    """Print the differences of each file; return 1 if there are any."""
    total = 0
    for name in FILES:
        one, other = read(first / name), read(second / name)
        found = differences(one, other)
        total += len(found)
        sys.stdout.write(f"{name}: {len(one)} rows, {len(found) or 'no'} differences\n")
        for difference in found[:SHOWN]:
            sys.stdout.write(f"  {difference}\n")
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
