"""Questions of a study about two methods, answered by the rule of :mod:`calgrid.statistics.verdicts`."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from calgrid.statistics.checks import WORDS, check_metrics
from calgrid.statistics.paired import (
    average_fit_seeds,
    check_level,
    paired_tests,
    run_draws,
    student_reach,
)
from calgrid.statistics.summary import FAMILY
from calgrid.statistics.verdicts import NO_VERDICT, decided_by, judge, seed_test
from calgrid.storage.schema import NUMBER_KEY

QUESTION = ("question", "method", "against")
#: columns that both methods of a comparison share
SHARED = tuple(key for key in NUMBER_KEY if key != "method")
NUMBERS = (
    *("n_seeds", "difference", "std_seed", "std_test", "ci_low", "ci_high", "p_seeds", "p_value"),
    *("p_holm", "detectable", "decided_by", "verdict"),
)


def compare(
    metrics: pd.DataFrame,
    comparisons: Sequence[Mapping[str, object]],
    level: float = 0.95,
    resamples: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Paired difference of two methods for each question, with test and verdict.

    Calibrator seeds are averaged within a run first. A question is answered for each protocol, data
    set, backbone, checkpoint, calibrator, split, shift and metric in which both methods share a
    seed.

    Parameters
    ----------
    metrics : tidy metrics frame, see :func:`calgrid.statistics.summarise`.
    comparisons : questions, each {"question": text, "method": id, "against": id}.
    level : nominal coverage of the intervals, in (0, 1); 1 - level is the significance level.
    resamples : as in :func:`calgrid.statistics.summarise`.

    Returns
    -------
    Frame with the columns question, method, against, then the shared columns, in the order of
    ``comparisons``, and
    n_seeds : number of common seeds;
    difference : mean over them of method - against;
    std_seed : standard deviation of the difference over seeds (ddof 1);
    std_test : standard deviation of the mean difference over test samples; NaN without resamples;
    ci_low, ci_high : interval of the difference, over seeds and test samples; for metrics that do
        not decide themselves, the Student t interval over seeds;
    p_seeds, p_value, p_holm, detectable, decided_by, verdict : as in
        :func:`calgrid.statistics.summarise`, with a family of all questions of the same metric and
        calibrator in one setting.

    Raises
    ------
    DataError : as in :func:`calgrid.statistics.summarise`. ConfigError : ``level`` outside (0, 1).
    """
    check_level(level)
    runs = average_fit_seeds(check_metrics(metrics)).astype(dict.fromkeys(WORDS, "str"))
    runs = runs[[*NUMBER_KEY, "seed", "value"]].assign(run=np.arange(len(runs)))
    pairs = [
        _pairs(runs, asked).assign(**{name: asked[name] for name in QUESTION})
        for asked in comparisons
    ]
    columns = [*QUESTION, *SHARED, "seed", "value", "value_against", "run", "run_against"]
    table = pd.concat(pairs)[columns] if pairs else pd.DataFrame(columns=columns)
    kinds = {"value": float, "value_against": float, "run": int, "run_against": int}
    draws = run_draws(runs, resamples, (*NUMBER_KEY, "seed"))
    tests = paired_tests(table.astype(kinds), [*QUESTION, *SHARED], draws)
    tests = tests[tests["n_seeds"] > 0].reset_index(drop=True)
    return _judged(tests, level)[[*QUESTION, *SHARED, *NUMBERS]]


def _judged(tests: pd.DataFrame, level: float) -> pd.DataFrame:
    """Tests with their verdicts, which calibration errors have from the deciding metric."""
    tests = tests.assign(
        decided_by=decided_by(tests["metric"]),
        p_seeds=seed_test(tests["difference"], tests["std_seed"], tests["n_seeds"]),
    )
    own = tests[tests["decided_by"] == tests["metric"]]
    judged = judge(own, own.groupby(FAMILY, sort=False).ngroup(), level)
    place = [*QUESTION, *(key for key in SHARED if key != "metric"), "decided_by"]
    shared = ["p_value", "p_holm", "detectable", "verdict"]
    found = tests.merge(judged[[*place, *shared]], on=place, how="left")
    reach = student_reach(tests["std_seed"], tests["n_seeds"], level)
    ends = judged.set_index(own.index)[["ci_low", "ci_high"]].reindex(tests.index)
    return found.assign(
        ci_low=ends["ci_low"].fillna(tests["difference"] - reach),
        ci_high=ends["ci_high"].fillna(tests["difference"] + reach),
        verdict=found["verdict"].fillna(NO_VERDICT),
    )


def _pairs(runs: pd.DataFrame, asked: Mapping[str, object]) -> pd.DataFrame:
    """Values of both methods at common seeds."""
    method, against = (runs[runs["method"] == asked[role]] for role in ("method", "against"))
    return method.merge(
        against.drop(columns="method"), on=[*SHARED, "seed"], suffixes=("", "_against")
    )
