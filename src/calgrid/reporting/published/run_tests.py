"""Claims about cells of a table: paired tests over seeds, verdicts, and the number of seeds needed
for a verdict.
"""

import math
from typing import TypedDict

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from calgrid.reporting.published.means import SECTION
from calgrid.statistics.holm import holm
from calgrid.statistics.paired import check_level, paired_tests

POWER = 0.8
#: maximum reported number of needed seeds
MOST_SEEDS = 10_000
CONFIRMED, REFUTED, OPEN = "confirmed", "not confirmed", "cannot tell"


def claim_tests(
    runs: pd.DataFrame, pairs: pd.DataFrame, margin: float = 0.0, level: float = 0.95
) -> pd.DataFrame:
    """Paired t-test of each cell against each of its rivals, over common seeds.

    Parameters
    ----------
    runs : values of cells in run seeds, from :func:`calgrid.reporting.published.means.cell_runs`.
    pairs : columns setting, cell, rival, and lower_is_better, one row per comparison.
    margin : 0 for the claim that the cell is better; else the claim is that it is worse by less
        than ``margin``.
    level : 1 - level is the significance level.

    Returns
    -------
    One row for each protocol and checkpoint with both cells of a pair, with the columns of
    ``pairs`` and n_seeds; gain, improvement of the cell over its rival, plus the margin; std, over
    seeds (ddof 1); p_value, two-sided, of a zero gain; p_holm, after Holm over the pairs of the
    claim;
    verdict : ``confirmed`` or ``not confirmed`` if p_holm < 1 - level, by the sign of the gain,
        else ``cannot tell``;
    seeds_needed : for an open verdict, see :func:`seeds_needed` (at Holm's level of the smallest
        p-value).

    Raises
    ------
    ConfigError : ``level`` outside (0, 1).
    """
    check_level(level)
    values = runs[[*SECTION, "cell", "seed", "value"]].astype({"cell": int, "value": "float64"})
    mine = pairs.merge(values, on="cell")
    both = mine.merge(
        values.rename(columns={"cell": "rival"}),
        on=["rival", *SECTION, "seed"],
        suffixes=("", "_rival"),
    )
    sign = np.where(both["lower_is_better"], -1.0, 1.0)
    both = both.assign(
        value=sign * both["value"] + margin, value_against=sign * both["value_rival"]
    )
    keys = [*SECTION, *pairs.columns]
    tests = paired_tests(both, keys).rename(columns={"difference": "gain"})
    tests = verdicts(tests, level)
    needed = seeds_needed(tests["gain"], tests["std"], (1 - level) / max(len(pairs), 1))
    tests["seeds_needed"] = np.where(tests["verdict"] == OPEN, needed, math.nan)
    return tests


def verdicts(tests: pd.DataFrame, level: float) -> pd.DataFrame:
    """Tests of the pairs of a claim with ``p_holm`` and ``verdict``; see :func:`claim_tests`."""
    p_holm = holm(tests["p_value"], tests.groupby(list(SECTION)).ngroup())
    found, gain = p_holm < 1 - level, tests["gain"]
    verdict = np.select([found & (gain > 0), found & (gain < 0)], [CONFIRMED, REFUTED], OPEN)
    return tests.assign(p_holm=p_holm, verdict=verdict)


class ClaimVerdict(TypedDict):
    """Verdict on a claim: see :func:`claim_verdict`."""

    verdict: str
    present: int
    confirmed: int
    refuted: int
    seeds_needed: float


def claim_verdict(tests: pd.DataFrame, n_settings: int, at_least: int) -> ClaimVerdict:
    """Verdict on a claim from the tests of one protocol and checkpoint.

    A setting is confirmed if its cell is better than all its rivals, refuted if it is worse than
    one, and open with missing numbers. The claim is confirmed if ``at_least`` settings are, not
    confirmed if that is impossible, else ``cannot tell``.

    Parameters
    ----------
    tests : rows of :func:`claim_tests`, with the column ``n_rivals`` of their setting.
    n_settings : number of settings of the claim, with or without numbers.

    Returns
    -------
    verdict; present, confirmed, refuted: numbers of settings; seeds_needed: maximum over open tests
    (inf for more than 10,000, NaN if no open test has a variance over seeds).
    """
    marked = tests.assign(won=tests["verdict"] == CONFIRMED, lost=tests["verdict"] == REFUTED)
    settings = marked.groupby("setting").agg(
        won=("won", "all"),
        lost=("lost", "any"),
        n=("rival", "count"),
        n_rivals=("n_rivals", "first"),
    )
    complete = settings["n"] == settings["n_rivals"]
    won, lost = int((settings["won"] & complete).sum()), int(settings["lost"].sum())
    verdict = CONFIRMED if won >= at_least else REFUTED if lost > n_settings - at_least else OPEN
    return {
        "verdict": verdict,
        "present": int(complete.sum()),
        "confirmed": won,
        "refuted": lost,
        "seeds_needed": float(tests["seeds_needed"].max()) if verdict == OPEN else math.nan,
    }


def seeds_needed(
    gain: ArrayLike, std: ArrayLike, alpha: float, power: float = POWER
) -> NDArray[np.float64]:
    """Smallest number of seeds at which a paired t-test would detect a mean difference.

    ``n >= (t_{1 - alpha / 2} + t_power)^2 (std / gain)^2`` with n - 1 degrees of freedom, the usual
    approximation of the power of the t-test, at least 2.

    Parameters
    ----------
    gain, std : mean difference and its standard deviation over seeds (ddof 1).
    alpha, power : two-sided significance level; probability to detect the difference.

    Returns
    -------
    Number of seeds; inf above 10,000 or without a difference, NaN without a standard deviation.
    """
    n = np.arange(2, MOST_SEEDS + 1)
    quantiles = special.stdtrit(n - 1, 1 - alpha / 2) + special.stdtrit(n - 1, power)
    reach = n / quantiles**2  # increases with n
    gain, std = np.asarray(gain, dtype=np.float64), np.asarray(std, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(std == 0, 0.0, (std / gain) ** 2)
    place = np.searchsorted(reach, np.where(np.isnan(ratio), 0.0, ratio))
    found = np.where(place < len(n), n[np.minimum(place, len(n) - 1)], math.inf)
    return np.where(np.isnan(std), math.nan, found)
