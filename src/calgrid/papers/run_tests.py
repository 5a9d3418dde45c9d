"""Claims about cells of a table: tests by the rule of :mod:`calgrid.statistics.verdicts`, verdicts,
and the number of seeds needed for a verdict.

The seeds of a claim about training are those of training. Claims about calibrators of one network
are about these networks, and their seeds are those of the calibrator, which are not paired: the
variance of a difference is ``s_a^2 / n_a + s_b^2 / n_b``, 0 for one seed. If each of these seeds
draws a new split into fitted and scored samples (``fit_on`` = ``same_shift`` or
``redrawn``), the variance of J
differences over samples is ``s^2 n_scored / n_fit`` with J - 1 degrees of freedom, the corrected
resampled t-test of Nadeau and Bengio (Machine Learning 52, 2003).
"""

import math
from collections.abc import Collection
from typing import TypedDict

import numpy as np
import pandas as pd

from calgrid.calibrators.base import DRAWN_SHARE
from calgrid.metrics.intervals import tails_of
from calgrid.papers.cells import SECTION
from calgrid.statistics.paired import paired_tests, run_draws
from calgrid.statistics.verdicts import BETTER, WORSE, judge, seed_test, seeds_needed

CONFIRMED, REFUTED, OPEN = "confirmed", "not confirmed", "cannot tell"
CELL = (*SECTION, "cell")
#: images that are scored for each one that a random split fits
SCORED_PER_FITTED = (1 - DRAWN_SHARE) / DRAWN_SHARE
#: columns of a test beside those of its pair
TESTED = (
    *("n_seeds", "std_seed", "std_test", "gain", "p_value", "p_holm", "ci_low", "ci_high"),
    *("detectable", "verdict", "p_seeds", "seeds_needed"),
)
#: metrics that do not depend on test samples
TIMES = ("train_seconds", "runtime_seconds")


def claim_tests(
    runs: pd.DataFrame,
    pairs: pd.DataFrame,
    draws: pd.DataFrame,
    redrawn: Collection[int] | None = None,
    margin: float = 0.0,
    level: float = 0.95,
) -> pd.DataFrame:
    """Test of each cell against each of its rivals.

    Parameters
    ----------
    runs : values of cells in each seed, from :func:`calgrid.papers.cells.cell_runs`, and the
        ``prior`` variance over seeds of each cell, see
        :func:`calgrid.statistics.pairs.study_priors`.
    pairs : columns case, cell, rival, metric, lower_is_better and same_method, one row per
        comparison.
    draws : resamples of ``runs``, with the columns protocol, checkpoint, cell, seed, draws and
        pairs. Cells without resamples get no verdict, except those of times.
    redrawn : for claims about calibrators of one network, cells whose seeds each draw a split; None
        for claims about training.
    margin : 0 for the claim that the cell is better; else the claim is that it is worse by less
        than ``margin``.
    level : 1 - level is the family-wise error of the claim.

    Returns
    -------
    One row for each protocol and checkpoint with both cells of a pair, with the columns of
    ``pairs`` and n_seeds; gain, improvement of the cell over its rival, plus the margin; std_seed,
    std_test, p_value, p_holm, ci_low, ci_high and detectable, see
    :func:`calgrid.statistics.verdicts.judge`; p_seeds, t-test over seeds alone;
    verdict : ``confirmed`` if the cell is better, ``not confirmed`` if worse, else ``cannot tell``;
    seeds_needed : for an open verdict on training, see
        :func:`calgrid.statistics.verdicts.seeds_needed` (at Bonferroni's level).

    Raises
    ------
    ConfigError : ``level`` outside (0, 1).
    """
    tails_of(level)  # refuses one outside (0, 1)
    columns = [*SECTION, *pairs.columns, *TESTED]
    if not pairs[["cell", "rival"]].isin(set(runs["cell"])).all(axis=1).any():
        return pairs.iloc[:0].reindex(columns=columns)
    values = runs.reindex(columns=[*CELL, "seed", "value", "n_samples", "prior"])
    values = values.reset_index(drop=True).astype({"cell": int, "value": "float64"})
    resamples = draws if len(draws) else None
    if redrawn is None:
        tests = _of_training(values, pairs, resamples)
    else:
        tests = _of_fits(values, pairs, resamples, redrawn)
    sign = np.where(tests["lower_is_better"].astype(bool), -1.0, 1.0)
    tests["gain"] = tests["difference"] = sign * tests["difference"] + margin
    tests["std_test"] = tests["std_test"].mask(tests["metric"].isin(TIMES), 0.0)
    section = tests.groupby(list(SECTION)).ngroup()
    # prior variance over seeds of a test, as of the same pair elsewhere in the study
    of_cell = values.drop_duplicates(list(CELL)).set_index(list(CELL))["prior"]
    own, rival = (
        of_cell.reindex(pd.MultiIndex.from_frame(tests[[*SECTION, side]])).to_numpy(float)
        for side in ("cell", "rival")
    )
    prior = pd.Series(own + rival, index=tests.index) / 2
    tests = tests.assign(sign=-1.0, prior=prior.mask(tests["same_method"].astype(bool)))
    tests = judge(tests, section, level, of_runs=redrawn is not None)
    tests["p_seeds"] = seed_test(tests["gain"], tests["std_seed"], tests["n_seeds"])
    told = {BETTER: CONFIRMED, WORSE: REFUTED}
    tests["verdict"] = tests["verdict"].map(told).fillna(OPEN)
    needed = seeds_needed(tests, (1 - level) / max(len(pairs), 1))
    asked = (tests["verdict"] == OPEN) & (redrawn is None)
    tests["seeds_needed"] = np.where(asked, needed, math.nan)
    return tests[columns]


def _of_training(
    values: pd.DataFrame, pairs: pd.DataFrame, resamples: pd.DataFrame | None
) -> pd.DataFrame:
    """Paired differences over common seeds of training."""
    draws = run_draws(values, resamples, (*CELL, "seed"))
    return paired_tests(_rivals(pairs, values, "seed"), [*SECTION, *pairs.columns], values, draws)


def _rivals(pairs: pd.DataFrame, runs: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Numbers of both runs of each pair of cells, at equal protocol, checkpoint and ``keys``."""
    own = runs[[*CELL, *keys]].assign(run=np.arange(len(runs)))
    rivals = own.rename(columns={"cell": "rival"})
    shared = ["rival", *SECTION, *keys]
    return pairs.merge(own, on="cell").merge(rivals, on=shared, suffixes=("", "_against"))


def _of_fits(
    values: pd.DataFrame,
    pairs: pd.DataFrame,
    resamples: pd.DataFrame | None,
    redrawn: Collection[int],
) -> pd.DataFrame:
    """Differences of calibrators of the same networks."""
    means = values.groupby(list(CELL), as_index=False).agg(
        value=("value", "mean"),
        var=("value", "var"),
        n=("value", "size"),
        n_samples=("n_samples", "min"),
    )
    if resamples is not None:  # means over seeds
        resamples = resamples.drop(columns="seed")
    both = _rivals(pairs, means)
    tests = paired_tests(both, [*SECTION, *pairs.columns], means, run_draws(means, resamples, CELL))
    own, rival = (means.iloc[both[name]].reset_index() for name in ("run", "run_against"))
    n = np.maximum(own["n"], rival["n"])
    error = own["var"].fillna(0) / own["n"] + rival["var"].fillna(0) / rival["n"]
    tests = tests.assign(n_seeds=n, std_seed=np.sqrt(error * n))
    if not redrawn:
        return tests
    split = _of_training(values, pairs, None)
    split = split[split["cell"].isin(redrawn)]
    split = split.assign(
        std_test=math.sqrt(SCORED_PER_FITTED) * split["std_seed"],
        df_test=(split["n_seeds"] - 1).clip(lower=1),
    )
    tests = tests.assign(df_test=math.nan)
    parts = [tests[~tests["cell"].isin(redrawn)], split]
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


class ClaimVerdict(TypedDict):
    """Verdict on a claim: see :func:`claim_verdict`."""

    verdict: str
    present: int
    confirmed: int
    refuted: int
    seeds_needed: float


def claim_verdict(tests: pd.DataFrame, n_cases: int, at_least: int) -> ClaimVerdict:
    """Verdict on a claim from the tests of one protocol and checkpoint.

    A case is confirmed if its cell is better than all its rivals, refuted if it is worse than
    one, and open with missing numbers. The claim is confirmed if ``at_least`` cases are, not
    confirmed if that is impossible, else ``cannot tell``.

    Parameters
    ----------
    tests : rows of :func:`claim_tests`, with the column ``n_rivals`` of their case.
    n_cases : number of cases of the claim, with or without numbers.

    Returns
    -------
    verdict; present, confirmed, refuted: numbers of cases; seeds_needed: maximum over open tests
    (inf if no number of seeds is enough, NaN if no open test has both variances).
    """
    marked = tests.assign(won=tests["verdict"] == CONFIRMED, lost=tests["verdict"] == REFUTED)
    cases = marked.groupby("case").agg(
        won=("won", "all"),
        lost=("lost", "any"),
        n=("rival", "count"),
        n_rivals=("n_rivals", "first"),
    )
    complete = cases["n"] == cases["n_rivals"]
    won, lost = int((cases["won"] & complete).sum()), int(cases["lost"].sum())
    verdict = CONFIRMED if won >= at_least else REFUTED if lost > n_cases - at_least else OPEN
    return {
        "verdict": verdict,
        "present": int(complete.sum()),
        "confirmed": won,
        "refuted": lost,
        "seeds_needed": float(tests["seeds_needed"].max()) if verdict == OPEN else math.nan,
    }
