"""Draw reliability.png, the first picture of README.md and of the site, from reliability.parquet.

python docs/assets/picture.py                      # or with a folder for the picture
python docs/assets/picture.py val.npz test.npz     # first compute the bins from these logits
"""

import sys
from pathlib import Path

import pandas as pd

from calgrid.calibrators import build_calibrator
from calgrid.logits.reading import read_any
from calgrid.metrics import check_probabilities, evaluate
from calgrid.metrics.binning import BinSums, bin_sums
from calgrid.report.figures.reliability import draw_bins

HERE = Path(__file__).parent
BINS = HERE / "reliability.parquet"
SUMS = ["count", "confidence", "correct"]


def compute(val: Path, test: Path) -> None:
    """Sums of the bins of the test rows, before and after temperature scaling on the others."""
    fitted, scored = read_any(val, None), read_any(test, None)
    parts = []
    for name, id in (("before", "none"), ("after ts", "ts")):
        output = build_calibrator(id).fit(fitted.logits, fitted.label).predict_output(scored.logits)
        error = evaluate(output, scored.label, costly=False)["ece_debiased"]
        sums = bin_sums(check_probabilities(output, scored.label), 15)
        columns = pd.DataFrame({column: getattr(sums, column) for column in SUMS})
        parts.append(columns.assign(name=name, line=f"debiased ECE {100 * error:.2f} %"))
    pd.concat(parts).to_parquet(BINS, index=False)


def draw(folder: Path) -> None:
    """Draw the picture."""
    parts = {}
    for name, rows in pd.read_parquet(BINS).groupby("name", sort=False):
        parts[name] = BinSums(*rows[SUMS].to_numpy().T), rows["line"].iloc[0]
    facts = {"dpi": 200, "metadata": {"Software": None}}
    draw_bins(parts).savefig(folder / "reliability.png", **facts)


if __name__ == "__main__":
    given = list(map(Path, sys.argv[1:]))
    if len(given) > 1:
        compute(*given)
    draw(given[0] if len(given) == 1 else HERE)
