"""A ranking of calibrators as text and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calgrid.selection import Ranked

#: metrics shown in the ranking, in addition to the difference in the ranking metric
SHOWN = ("nll", "brier", "ece_debiased", "ece", "ece_null", "accuracy")


def json_interval(cell: tuple[float, float, float]) -> dict[str, float | None]:
    """Value and interval; NaN, which JSON lacks, becomes null."""
    keys = ("value", "ci_low", "ci_high")
    return {key: None if np.isnan(value) else float(value) for key, value in zip(keys, cell, strict=True)}


def ranking_content(ranking: Sequence[Ranked], refused: Mapping[str, str]) -> dict[str, Any]:
    """Return a ranking for JSON, the best first."""
    entries = [
        {
            "calibrator": entry.id,
            "difference": json_interval(entry.difference),
            "tied_with_best": entry.tied,
            "moved": entry.changed,
            "seconds": entry.seconds,
            "metrics": {name: json_interval(cell) for name, cell in entry.scores.items()},
        }
        for entry in ranking
    ]
    return {"ranking": entries, "left_out": dict(refused)}


def ranking_text(ranking: Sequence[Ranked], refused: Mapping[str, str], rows: int, folds: int, rank_by: str) -> str:
    """Return the ranking as a table, the best first, with ties and calibrators left out."""
    tied = [entry.id for entry in ranking[1:] if entry.tied]
    width = max(len(entry.id) for entry in ranking) + 2
    columns = list(dict.fromkeys([*SHOWN, rank_by]))
    lines = [
        f"Ranked by {rank_by} in {folds}-fold cross-validation on the {rows} rows of the fit data.",
        f"{'':5s}{'':{width}s}{f'{rank_by} - best [interval]':>34s}"
        + "".join(f"{name:>14s}" for name in columns)
        + f"{'moved':>9s}{'s a fit':>10s}",
    ]
    for place, entry in enumerate(ranking, start=1):
        value, low, high = entry.difference
        interval = "" if np.isnan(low) else f"[{low:+.5f}, {high:+.5f}]"
        shown = f"{value:+.5f} {interval:>23s}" if place > 1 else "best"
        scores = "".join(f"{entry.scores[name][0]:>14.5f}" for name in columns)
        lines.append(
            f"{place:>3d}  {entry.id:{width}s}{shown:>34s}{scores}{100 * entry.changed:>8.2f}%{entry.seconds:>10.3f}"
        )
    best = ranking[0]
    low, high = best.scores["ece_debiased"][1:]
    if not np.isnan(low):
        value = best.scores["ece_debiased"][0]
        lines.append(f"Debiased ECE of {best.id}: {value:.5f}, interval [{low:.5f}, {high:.5f}].")
    if tied:
        lines.append(f"No significant difference from {best.id}: {', '.join(tied)}.")
    lines += [f"Left out: {id} ({reason})" for id, reason in refused.items()]
    return "\n".join(lines) + "\n\n"
