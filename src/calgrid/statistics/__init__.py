"""Statistics over runs: summaries, tests against a baseline, comparisons, ranks over settings, published numbers."""

from calgrid.statistics.comparisons import compare
from calgrid.statistics.holm import holm
from calgrid.statistics.published import match_published
from calgrid.statistics.ranks import FriedmanResult, friedman, mean_ranks, nemenyi_cd, setting_ranks, wilcoxon_holm
from calgrid.statistics.shifts import mean_over_shifts
from calgrid.statistics.summary import summarise

__all__ = [
    "FriedmanResult",
    "compare",
    "friedman",
    "holm",
    "match_published",
    "mean_over_shifts",
    "mean_ranks",
    "nemenyi_cd",
    "setting_ranks",
    "summarise",
    "wilcoxon_holm",
]
