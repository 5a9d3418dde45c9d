"""Statistics over runs: summaries, tests against a baseline, comparisons, ranks over settings,
published numbers.
"""

from calgrid.statistics.choices import as_tuned, choose
from calgrid.statistics.pairs import compare
from calgrid.statistics.published import match_published, printed_numbers
from calgrid.statistics.ranks import (
    CriticalDifference,
    FriedmanResult,
    critical_difference,
    friedman,
    improvements,
    mean_ranks,
    nemenyi_cd,
    setting_ranks,
    wilcoxon_holm,
    win_rates,
)
from calgrid.statistics.sampling import paired_bootstrap
from calgrid.statistics.shifts import mean_over_severities, mean_over_shifts
from calgrid.statistics.summary import summarise
from calgrid.statistics.verdicts import holm

__all__ = [
    "CriticalDifference",
    "FriedmanResult",
    "as_tuned",
    "choose",
    "compare",
    "critical_difference",
    "friedman",
    "holm",
    "improvements",
    "match_published",
    "mean_over_severities",
    "mean_over_shifts",
    "mean_ranks",
    "nemenyi_cd",
    "paired_bootstrap",
    "printed_numbers",
    "setting_ranks",
    "summarise",
    "wilcoxon_holm",
    "win_rates",
]
