"""Statistics over runs: summaries, tests against a baseline, comparisons, ranks over settings,
published numbers.
"""

from calgrid.statistics.choices import as_tuned, choose
from calgrid.statistics.claim_tests import claim_tests, claim_verdict, seeds_needed
from calgrid.statistics.comparisons import compare
from calgrid.statistics.fitted_claim_tests import fitted_claim_tests
from calgrid.statistics.holm import holm
from calgrid.statistics.published import match_published, printed_numbers
from calgrid.statistics.ranks import (
    CriticalDifference,
    FriedmanResult,
    critical_difference,
    friedman,
    mean_ranks,
    nemenyi_cd,
    setting_ranks,
    wilcoxon_holm,
)
from calgrid.statistics.sampling import paired_bootstrap
from calgrid.statistics.shifts import mean_over_severities, mean_over_shifts
from calgrid.statistics.summary import summarise
from calgrid.statistics.table_cells import cell_means, cell_runs

__all__ = [
    "CriticalDifference",
    "FriedmanResult",
    "as_tuned",
    "cell_means",
    "cell_runs",
    "choose",
    "claim_tests",
    "claim_verdict",
    "compare",
    "critical_difference",
    "fitted_claim_tests",
    "friedman",
    "holm",
    "match_published",
    "mean_over_severities",
    "mean_over_shifts",
    "mean_ranks",
    "nemenyi_cd",
    "paired_bootstrap",
    "printed_numbers",
    "seeds_needed",
    "setting_ranks",
    "summarise",
    "wilcoxon_holm",
]
