"""How the Parquet files behind docs/cifar10.md and docs/cifar10_bank.md are made from a study.

    python benchmarks/cifar10_summary.py results/cifar10 cifar10_cpu docs/cifar10/crops.parquet

One row for each number of a method with a calibrator: mean over seeds, and the difference from
``against`` with its verdict. ``against`` is ``ce``, another method that the study asks about, or
``ts``. The shift ``mean`` is the mean over corruptions, its severity -1 that over severities.
"""

import argparse
from pathlib import Path

import pandas as pd

from calgrid import load_study
from calgrid.report.results import Results
from calgrid.storage.schema import SHIFT_SUMMARY

COLUMNS = [
    *("method", "calibrator", "shift", "severity", "metric"),
    *("mean", "std", "n_seeds", "ci_low", "ci_high"),
    *("against", "difference", "p_holm", "detectable", "decided_by", "verdict"),
]
#: metrics of corrupted and other images, which have many rows
SHIFTED = ("accuracy", "nll", "brier", "ece", "squared_ce", "auroc", "auroc_entropy")
#: metrics of answers to questions
ANSWERED = ("accuracy", "nll", "brier", "squared_ce")


def against_baseline(study: Results, protocol: str) -> pd.DataFrame:
    """Means over seeds, and the verdicts on methods against the baseline."""
    clean = study.summary.query("split != 'val' and severity == 0")
    corrupted = pd.read_parquet(study.folder / SHIFT_SUMMARY)
    frame = pd.concat([clean, corrupted]).query("protocol == @protocol")
    frame = frame[(frame["shift"] == "") | frame["metric"].isin(SHIFTED)]
    return frame.assign(against=study.data.baseline, difference=frame["diff_vs_baseline"])


def answers(study: Results, protocol: str) -> list[pd.DataFrame]:
    """The study's answers to its other questions about methods, and verdicts on calibrators against
    one temperature.
    """
    frames = []
    if study.data.comparisons:
        asked = study.table("comparisons").query("protocol == @protocol and method != against")
        asked = asked[asked["metric"].isin(ANSWERED) & (asked["against"] != study.data.baseline)]
        frames.append(asked.assign(shift="", severity=0))
    for calibrator in study.data.calibrators:
        if calibrator not in ("none", "ts"):
            frame = study.compare_calibrators(calibrator, "ts", None, ANSWERED, protocol=protocol)
            frames.append(frame.assign(against="ts"))
    return frames


def main() -> None:
    """Write the rows of one protocol."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("protocol")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    study = load_study(options.study)
    rows = pd.concat(
        [against_baseline(study, options.protocol), *answers(study, options.protocol)]
    ).reindex(columns=COLUMNS)
    words = rows.select_dtypes(["object", "string", "category"]).columns
    rows = rows.astype(dict.fromkeys(words, "category"))
    rows.to_parquet(options.out, compression="zstd", index=False)
    print(f"{options.out}: {len(rows)} rows")


if __name__ == "__main__":
    main()
