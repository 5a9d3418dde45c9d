"""A ranking of calibrators as text."""

from collections.abc import Mapping, Sequence

import numpy as np

from calgrid.selection import Ranked

#: metrics of the ranking, beside the difference in NLL that orders it
SHOWN = ("nll", "brier", "ece_debiased", "ece", "ece_null", "accuracy")


def ranking_text(ranking: Sequence[Ranked], refused: Mapping[str, str], rows: int, folds: int) -> str:
    """Return the ranked table, the best first, with what it means and who refused."""
    tied = [entry.id for entry in ranking[1:] if entry.tied]
    width = max(len(entry.id) for entry in ranking) + 2
    lines = [
        f"Ranked by the NLL of {folds}-fold cross-validation on the {rows} rows of the fit data.",
        f"{'':5s}{'':{width}s}{'NLL - best [interval]':>34s}"
        + "".join(f"{name:>14s}" for name in SHOWN)
        + f"{'moved':>9s}{'s a fit':>10s}",
    ]
    for place, entry in enumerate(ranking, start=1):
        value, low, high = entry.difference
        interval = "" if np.isnan(low) else f"[{low:+.5f}, {high:+.5f}]"
        shown = f"{value:+.5f} {interval:>23s}" if place > 1 else "best"
        scores = "".join(f"{entry.scores[name][0]:>14.5f}" for name in SHOWN)
        lines.append(
            f"{place:>3d}  {entry.id:{width}s}{shown:>34s}{scores}{100 * entry.changed:>8.2f}%{entry.seconds:>10.3f}"
        )
    best = ranking[0]
    low, high = best.scores["ece_debiased"][1:]
    if not np.isnan(low):
        value = best.scores["ece_debiased"][0]
        lines.append(f"Debiased ECE of {best.id}: {value:.5f}, interval [{low:.5f}, {high:.5f}].")
    if tied:
        lines.append(f"These rows cannot tell {best.id} from: {', '.join(tied)}.")
    lines += [f"Left out: {id} ({reason})" for id, reason in refused.items()]
    return "\n".join(lines) + "\n\n"
