"""The rule that gives a verdict on a difference of two methods; docs/statistics.md explains it.

A difference of means over n seeds, on common test samples, has two variances: a = s^2 / n, with s
the standard deviation of the paired difference over seeds, and b over test samples, from
resamples that all runs share. The interval of nominal coverage 1 - p is

``difference -+ sqrt(t_a^2 a + t_b^2 b)``

with t_a and t_b the Student quantiles of probability 1 - p / 2 at the degrees of freedom of each
variance, and the p-value of the difference is the p at which an end is 0. With normal differences
it never rejects more often than p (Banerjee, Sankhya 1960); Satterthwaite's degrees of freedom,
the usual choice, have up to 15 % false verdicts with three seeds. ``benchmarks/verdicts.md`` has
level and power.

With a prior variance s0^2 and at least three seeds, s^2 is moderated (empirical Bayes; Smyth,
Statistical Applications in Genetics and Molecular Biology 2004):

``s^2 <- (d0 s0^2 + (n - 1) s^2) / (d0 + n - 1)`` with d0 + n - 1 degrees of freedom, d0 = 2.

s0^2 is the median of s^2 over at least ``LEAST_POOLED`` tests of independent networks, divided by
the median of chi^2 / (n - 1). :mod:`calgrid.statistics.pairs` says which tests these are.

P-values are corrected within a family by Holm's method.
"""

import math

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from calgrid.components.metrics import find_metric, metric_names
from calgrid.errors import DataError
from calgrid.metrics.intervals import DECIDING_RESAMPLES

Floats = NDArray[np.float64]
BETTER, WORSE, EQUIVALENT, TIE, NO_VERDICT = "better", "worse", "equivalent", "tie", "no verdict"
#: what the rule finds
FOUND = (BETTER, WORSE)
#: not significantly worse; the best of a column by a biased error may be worse than others
NOT_WORSE = (BETTER, EQUIVALENT, TIE)
#: weight of the prior variance, in degrees of freedom
PRIOR_DF = 2
LEAST_POOLED = 4
#: probability to find the difference ``detectable``
POWER = 0.8
#: relative size of differences below which they are only rounding
ROUNDING = 1e-12
#: maximum reported number of needed seeds
MOST_SEEDS = 10_000
#: shares of samples; two methods may agree on all samples here, and yet differ on others
SHARES = ("accuracy", "top5", "balanced_accuracy")
#: upper end of a 95 % interval of a Poisson mean, of which no event was seen
UNSEEN = 3.69
#: with fewer test samples no difference of a share would be found
FEWEST_TEST = math.ceil(UNSEEN)
#: p-values below are reported as this one
LEAST_P = 1e-15


def holm(p_values: ArrayLike, groups: ArrayLike | None = None) -> Floats:
    """Holm-adjusted p-values: the i-th smallest of m times (m - i + 1), made monotone, at most 1.

    Parameters
    ----------
    p_values : (n,) in [0, 1]; NaN is a missing comparison: it stays NaN and does not count in m.
    groups : label (n,) of the family of each comparison; one family by default.

    Raises
    ------
    DataError : if a p-value is outside [0, 1].

    Source: Holm, Scandinavian Journal of Statistics 1979.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = pd.Series(np.asarray(p_values, dtype=np.float64))
    outside = (p < 0) | (p > 1)
    if outside.any():
        raise DataError(
            f"p_values must be in [0, 1], got {p[outside.idxmax()]} at position {outside.idxmax()}."
        )
    family = pd.Series(np.zeros(len(p)) if groups is None else np.asarray(groups))
    made = p.sort_values(kind="stable").dropna()
    by_family = made.groupby(family)
    factor = by_family.transform("size") - by_family.cumcount()
    adjusted = (made * factor).groupby(family).cummax().clip(upper=1)
    return adjusted.reindex(p.index).to_numpy()


def decided_by(metrics: pd.Series) -> pd.Series:
    """Metric whose verdict each row has: itself or, for top-label calibration errors,
    ``squared_ce``; empty for metrics without verdicts.
    """
    return of_metric(metrics, "decided_by").astype(object).fillna(metrics).astype(str)


def of_metric(metrics: pd.Series, fact: str) -> pd.Series:
    """A fact of each metric; NaN for names that are no metric, such as seconds."""
    known = {}
    for name in set(metrics) & set(metric_names()):
        known[name] = getattr(find_metric(name), fact)
    return metrics.astype(object).map(known)


def judge(
    tests: pd.DataFrame, families: ArrayLike, level: float = 0.95, of_runs: ArrayLike = False
) -> pd.DataFrame:
    """Verdict of each test by the rule of the module.

    Parameters
    ----------
    tests : one row a comparison: metric; difference; n_seeds; std_seed, over seeds (ddof 1; ignored
        for one seed); std_test, standard deviation of ``difference`` over test samples, NaN if
        unknown. Optional: n_test, number of test samples (NaN: many); df_test, degrees of freedom
        of a std_test not from 200 resamples (NaN: it is); sign, 1 if lower values are
        better, -1 if higher, NaN if neither (default: as the metric); prior, see
        :func:`seed_prior` (NaN, the default: the variance over seeds is not moderated).
    families : label (n,) of the family of each test, within which Holm's correction applies.
    level : nominal coverage of the intervals; 1 - level is the family-wise error.
    of_runs : whether (n,) a verdict is wanted with one seed too, which is about these runs, not
        about methods.

    Returns
    -------
    ``tests`` with
    p_value, p_holm : of a zero difference, without and with Holm's correction; NaN without
        ``std_test``;
    ci_low, ci_high : interval of the difference; with one seed over test samples alone; that of a
        share is wider on the side away from 0, by samples that differ and were not seen;
    detectable : difference that would be found in this family with a probability of 80 %;
    verdict : ``better`` or ``worse`` if p_holm < 1 - level; ``equivalent`` if the interval at level
        1 - (1 - level) / (size of the family) is within the ``margin`` of the metric, or the
        interval within a thousandth of it, but not with so few ``n_test`` samples that
        errors of one method which they do not show could make the margin; ``tie`` otherwise; ``no
        verdict`` without ``std_test``, without variance, without a better side, for methods with
        one seed, or with fewer than ``FEWEST_TEST`` test samples.
    """
    alpha, names = 1 - level, tests["metric"]
    sign = tests["sign"] if "sign" in tests else of_metric(names, "sign").astype(float)
    margin = of_metric(names, "margin").to_numpy(float)
    family = pd.Series(np.asarray(families), index=tests.index)
    seeds, df = _over_seeds(tests)
    difference = tests["difference"].to_numpy(float)
    std_test = tests["std_test"].to_numpy(float)
    # rounding only: a single test sample, or equal differences of all
    images = np.where(std_test <= ROUNDING * np.abs(difference), 0.0, std_test**2)
    facts = tests.reindex(columns=["n_test", "df_test"])
    n_test, given = facts["n_test"].fillna(np.inf).to_numpy(float), facts["df_test"].to_numpy(float)
    df_images = np.where(np.isnan(given), np.clip(n_test - 1, 1, DECIDING_RESAMPLES - 1), given)
    # few samples: the variance of resamples is below the population's
    few = np.isnan(given) & (n_test < DECIDING_RESAMPLES)
    images = images * np.where(few, n_test / df_images, 1.0)
    sources = (seeds, df, images, df_images)
    p_value = pd.Series(_p_values(difference, *sources), index=tests.index)
    enough = (tests["n_seeds"] > 1) | of_runs
    p_value = p_value.where(enough)
    size = p_value.groupby(family).transform("count").clip(lower=1).to_numpy()
    p_holm = holm(p_value, family)
    # a share of samples that may differ, and none of which may have been seen
    unseen = np.where(names.isin(SHARES), UNSEEN / n_test, 0.0)
    half, corrected = _reach(alpha, *sources), _reach(alpha / size, *sources)
    outer = np.where(images > 0, _with_unseen(half, unseen), half)
    wide = np.abs(difference) + _with_unseen(corrected, unseen)
    testable = tests["std_test"].notna() & enough & sign.notna() & (n_test >= FEWEST_TEST)
    equal = np.abs(difference) + half < margin / 1000
    rules = {
        EQUIVALENT: testable.to_numpy() & equal,
        NO_VERDICT: (p_value.isna() | ~testable).to_numpy(),
        BETTER: (p_holm < alpha) & (sign * difference < 0).to_numpy(),
        WORSE: (p_holm < alpha) & (sign * difference > 0).to_numpy(),
    }
    verdict = np.select(list(rules.values()), list(rules), TIE)
    verdict = np.where((verdict == TIE) & (wide < margin), EQUIVALENT, verdict)
    detectable = np.maximum(corrected + _reach(2 * (1 - POWER), *sources), unseen)
    identical = (difference == 0) & (images == 0) & ~names.isin(SHARES)
    unknown = (_hidden(names, n_test) >= margin) & ~identical
    verdict = np.where((verdict == EQUIVALENT) & unknown, TIE, verdict)
    return tests.assign(
        p_value=p_value,
        p_holm=p_holm,
        ci_low=difference - np.where(difference > 0, half, outer),
        ci_high=difference + np.where(difference < 0, half, outer),
        detectable=detectable,
        verdict=verdict,
    )


def _with_unseen(half: Floats, unseen: Floats) -> Floats:
    """Half-width on the side away from 0 of the interval of a share of which ``unseen`` may not be
    seen: that of Wilson's interval, near the exact one for any number of errors.
    """
    return unseen / 2 + np.hypot(half, unseen / 2)


def _hidden(metrics: pd.Series, n_test: Floats) -> Floats:
    """Difference (n,) that errors of one method alone can make, none of them seen among ``n_test``
    samples; 0 for metrics without labels.
    """
    share = np.minimum(UNSEEN / n_test, 1)
    by_unit = {
        "fraction": share,
        "square": share**2,
        "score": 2 * share,
        "nats": special.entr(share),  # an error costs the most where the confidence knows the share
    }
    unit = of_metric(metrics, "unit").where(of_metric(metrics, "kind") == "labelled")
    return np.select([unit == each for each in by_unit], list(by_unit.values()), 0.0)


def judge_all(
    tests: pd.DataFrame,
    places: ArrayLike,
    families: ArrayLike,
    level: float = 0.95,
    of_runs: ArrayLike = False,
) -> pd.DataFrame:
    """Judge tests of all metrics; an error gets the verdict of its deciding metric.

    Parameters
    ----------
    tests : as in :func:`judge`.
    places : label (n,) of what each test is about besides its metric.
    families, level, of_runs : as in :func:`judge`.

    Returns
    -------
    ``tests`` with p_seeds, see :func:`seed_test`; p_value, p_holm and verdict of the test at the
    same place of the metric ``decided_by``; ``no verdict`` if there is none; detectable, NaN of a
    metric that another one decides about. If there are ci_low and ci_high, those of :func:`judge`
    replace them where it gives some.
    """
    by, places = decided_by(tests["metric"]), np.asarray(places)
    own = (by == tests["metric"]).to_numpy()
    of_runs = np.broadcast_to(np.asarray(of_runs), len(tests))[own]
    judged = judge(tests[own], np.asarray(families)[own], level, of_runs)
    found = tests.assign(
        p_seeds=seed_test(tests["difference"], tests["std_seed"], tests["n_seeds"])
    )
    found = found.assign(detectable=judged["detectable"])
    found.update(judged[["ci_low", "ci_high"]])
    judged.index = pd.MultiIndex.from_arrays([places[own], judged["metric"]])
    shared = judged.reindex(pd.MultiIndex.from_arrays([places, by])).set_axis(tests.index)
    return found.assign(
        **shared[["p_value", "p_holm"]],
        decided_by=by,
        verdict=shared["verdict"].fillna(NO_VERDICT),
    )


def seed_prior(tests: pd.DataFrame, pools: ArrayLike) -> pd.Series:
    """Prior variance over seeds of each test from the tests of its pool, which are of independent
    networks; NaN in pools with fewer than ``LEAST_POOLED`` tests of three seeds or more.

    Parameters
    ----------
    tests : n_seeds and std_seed as in :func:`judge`. pools : label (n,) of each test.
    """
    n = tests["n_seeds"].astype(float)
    df = (n - 1).clip(lower=1)
    variance = (tests["std_seed"].astype(float) ** 2).where(n > 2)
    # the median of few squared deviations is below their mean
    pooled = (variance / (special.chdtri(df, 0.5) / df)).groupby(np.asarray(pools))
    return pooled.transform("median").where(pooled.transform("count") >= LEAST_POOLED)


def _over_seeds(tests: pd.DataFrame) -> tuple[Floats, Floats]:
    """Variance over seeds of each difference of means, moderated by the prior, and its degrees of
    freedom; 0 for one seed.
    """
    n = tests["n_seeds"].astype(float)
    variance, df = tests["std_seed"].astype(float) ** 2, (n - 1).clip(lower=1)
    prior = tests.reindex(columns=["prior"])["prior"].astype(float).where(n > 2)
    moderated = (PRIOR_DF * prior + df * variance) / (PRIOR_DF + df)
    has_prior = moderated.notna()
    variance = variance.mask(has_prior, moderated).where(n > 1, 0.0)
    return (variance / n.clip(lower=1)).to_numpy(), (df + PRIOR_DF * has_prior).to_numpy()


def _reach(p: ArrayLike, seeds: Floats, df: Floats, images: Floats, df_images: Floats) -> Floats:
    """Half-width of the interval that excludes with probability ``p``."""
    half = np.asarray(p) / 2
    return np.sqrt(
        special.stdtrit(df, half) ** 2 * seeds + special.stdtrit(df_images, half) ** 2 * images
    )


def _p_values(difference: Floats, *sources: Floats) -> Floats:
    """Probability p at which the half-width is the difference, by bisection of ln p; NaN without
    variance, unless the difference is 0 too.
    """
    size, total = np.abs(difference), sources[0] + sources[2]
    found = np.where((size == 0) & (total == 0), 1.0, np.nan)
    tested = np.flatnonzero(total > 0)
    each = [np.broadcast_to(part, size.shape)[tested] for part in sources]
    low, high = np.full(len(tested), math.log(LEAST_P)), np.zeros(len(tested))
    for _ in range(40):
        middle = (low + high) / 2
        beyond = _reach(np.exp(middle), *each) > size[tested]
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    found[tested] = np.exp((low + high) / 2)
    return found


def seed_test(mean: pd.Series, std: pd.Series, n: pd.Series) -> pd.Series:
    """Two-sided p-value of the t-test of a zero mean over seeds; NaN for one seed or without
    variance, unless the mean is 0 too.
    """
    error = std / np.sqrt(n.clip(lower=1))
    varies = (n > 1) & (error > ROUNDING * mean.abs())
    t = (mean / error).where(varies)
    p_value = pd.Series(2 * special.stdtr(n.clip(lower=2) - 1, -t.abs()), index=mean.index)
    return p_value.mask((n > 1) & (mean == 0) & (error == 0), 1.0)


def seeds_needed(tests: pd.DataFrame, alpha: float) -> Floats:
    """Smallest number of seeds at which the rule would find a difference with a probability of
    80 %, without moderation.

    Parameters
    ----------
    tests : difference, std_seed and std_test as in :func:`judge`.
    alpha : two-sided significance level.

    Returns
    -------
    Number of seeds (n,), at least 2; inf above 10,000, if the variance over test samples alone
    hides the difference, or without a difference; NaN without a standard deviation.
    """
    n = np.arange(2.0, MOST_SEEDS + 1)
    found = np.full(len(tests), math.nan)
    columns = tests[["difference", "std_seed", "std_test"]].to_numpy(float)
    for place, (difference, std_seed, std_test) in enumerate(columns):
        sources = (std_seed**2 / n, n - 1, np.asarray(std_test**2), np.asarray(DECIDING_RESAMPLES))
        reach = _reach(alpha, *sources) + _reach(2 * (1 - POWER), *sources)
        if not np.isnan(reach).any():
            enough = np.flatnonzero(reach < abs(difference))
            found[place] = n[enough[0]] if len(enough) else math.inf
    return found


def detectable_deviations(n_seeds: int, n_tests: int, alpha: float = 0.05) -> float:
    """Difference of two methods that is found with a probability of 80 %, in standard deviations of
    the paired difference over seeds; of the seeds alone, without the variance over test samples.

    Parameters
    ----------
    n_seeds : at least 2. n_tests : size of the family. alpha : family-wise error.
    """
    pooled = PRIOR_DF if n_seeds > 2 and n_tests >= LEAST_POOLED else 0
    df = np.asarray(n_seeds - 1.0 + pooled)
    sources = np.asarray(1 / n_seeds), df, np.asarray(0.0), np.asarray(1.0)
    return float(_reach(alpha / n_tests, *sources) + _reach(2 * (1 - POWER), *sources))
