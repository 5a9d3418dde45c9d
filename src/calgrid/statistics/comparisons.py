"""Questions about two methods or two calibrators, answered by the rule of
:mod:`calgrid.statistics.verdicts`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from calgrid.statistics.checks import WORDS, check_metrics, groups
from calgrid.statistics.paired import (
    average_fit_seeds,
    check_level,
    paired_tests,
    run_draws,
    student_reach,
)
from calgrid.statistics.summary import FAMILY
from calgrid.statistics.verdicts import judge_all
from calgrid.storage.schema import NUMBER_KEY

#: what a question can be about: columns of the metrics
COMPARED = METHOD, CALIBRATOR = ("method", "calibrator")
PLACE = ("question", "compared", "against", *NUMBER_KEY)
#: columns that identify a test
PAIR = (*PLACE, "family")
NUMBERS = (
    *("n_seeds", "difference", "std_seed", "std_test", "ci_low", "ci_high", "p_seeds", "p_value"),
    *("p_holm", "detectable", "decided_by", "verdict"),
)


def compare(
    metrics: pd.DataFrame,
    comparisons: Sequence[Mapping[str, object]],
    level: float = 0.95,
    resamples: pd.DataFrame | None = None,
    of_runs: bool = False,
) -> pd.DataFrame:
    """Paired difference of two methods or calibrators for each question, with test and verdict.

    Calibrator seeds are averaged within a run first. A question about methods is answered for each
    protocol, data set, backbone, checkpoint, calibrator, split, shift and metric in which both
    share a seed; one about calibrators for each method instead of each calibrator.

    Parameters
    ----------
    metrics : tidy metrics frame, see :func:`calgrid.statistics.summarise`.
    comparisons : questions, each {"question": text, "method": id, "against": id} or {"question":
        text, "calibrator": id, "against": id}, the latter optionally with the only "method".
        Questions with different "family" texts are in different families of tests.
    level : nominal coverage of the intervals, in (0, 1); 1 - level is the significance level.
    resamples : as in :func:`calgrid.statistics.summarise`.
    of_runs : as in :func:`calgrid.statistics.verdicts.judge`.

    Returns
    -------
    Frame with the columns question, compared (``method`` or ``calibrator``), against, then the key
    columns of ``metrics``, in the order of ``comparisons``, and
    n_seeds : number of common seeds;
    difference : mean over them of the method or calibrator minus ``against``;
    std_seed : standard deviation of the difference over seeds (ddof 1);
    std_test : standard deviation of the mean difference over test samples; NaN without resamples;
    ci_low, ci_high : interval of the difference, over seeds and test samples; for metrics that do
        not decide themselves, the Student t interval over seeds;
    p_seeds, p_value, p_holm, detectable, decided_by, verdict : as in
        :func:`calgrid.statistics.summarise`. A family has all answers about methods with the same
        metric and calibrator in one setting, or all about calibrators with the same metric.

    Raises
    ------
    DataError : as in :func:`calgrid.statistics.summarise`.
    ConfigError : ``level`` outside (0, 1).
    """
    check_level(level)
    runs = average_fit_seeds(check_metrics(metrics)).astype(dict.fromkeys(WORDS, "str"))
    numbered = runs[[*NUMBER_KEY, "seed"]].assign(run=np.arange(len(runs)))
    found = [_pairs(numbered, asked) for asked in comparisons]
    kinds = {**dict.fromkeys(PAIR, str), "run": int, "run_against": int}
    pairs = pd.concat(found) if found else pd.DataFrame(columns=list(kinds)).astype(kinds)
    draws = run_draws(runs, resamples, (*NUMBER_KEY, "seed"))
    tests = paired_tests(pairs, PAIR, runs, draws)
    tests = tests[tests["n_seeds"] > 0].reset_index(drop=True)
    reach = student_reach(tests["std_seed"], tests["n_seeds"], level)
    tests = tests.assign(ci_low=tests["difference"] - reach, ci_high=tests["difference"] + reach)
    places = groups(tests, [key for key in PAIR if key != "metric"])
    # questions about calibrators are one family, whatever the calibrators
    of_methods = tests["calibrator"].where(tests["compared"] == METHOD, "")
    families = groups(tests.assign(calibrator=of_methods), [*FAMILY, "compared", "family"])
    return judge_all(tests, places, families, level, of_runs)[[*PLACE, *NUMBERS]]


def _pairs(runs: pd.DataFrame, asked: Mapping[str, object]) -> pd.DataFrame:
    """Runs of what is compared at common seeds."""
    compared = CALIBRATOR if CALIBRATOR in asked else METHOD
    if METHOD in asked and compared == CALIBRATOR:
        runs = runs[runs[METHOD] == asked[METHOD]]
    mine = runs[runs[compared] == asked[compared]]
    other = runs[runs[compared] == asked["against"]].drop(columns=compared)
    shared = list(other.columns.drop("run"))
    return mine.merge(other, on=shared, suffixes=("", "_against")).assign(
        question=asked["question"],
        compared=compared,
        against=asked["against"],
        family=asked.get("family", ""),
    )
