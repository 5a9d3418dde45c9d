"""Questions of a study about two methods, answered by paired tests over seeds."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from calgrid.statistics.checks import WORDS, check_metrics
from calgrid.statistics.holm import holm
from calgrid.statistics.paired import (
    REACH,
    average_fit_seeds,
    beyond_bias,
    check_level,
    paired_tests,
    reaches,
    student_reach,
)
from calgrid.statistics.summary import FAMILY
from calgrid.storage.schema import NUMBER_KEY

QUESTION = ("question", "method", "against")
#: columns that both methods of a comparison share
SHARED = tuple(key for key in NUMBER_KEY if key != "method")
#: differences due to rounding between equal runs; one of 10,000 test images counts 1e-4
NEGLIGIBLE = 1e-5


def compare(
    metrics: pd.DataFrame, comparisons: Sequence[Mapping[str, object]], level: float = 0.95
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

    Returns
    -------
    Frame with the columns question, method, against, then the shared columns, in the order of
    ``comparisons``, and
    n_seeds : number of common seeds;
    difference : mean over them of method - against;
    std : standard deviation of the difference over seeds (ddof 1);
    ci_low, ci_high : Student t interval of the mean difference; NaN for one seed;
    p_value : paired t-test, as in :func:`calgrid.statistics.summarise`;
    p_holm : after Holm over all questions of the same metric and calibrator in one setting;
    verdict : ``lower`` or ``higher`` if p_holm < 1 - level, else ``tie``; ``equal`` if mean and
        standard deviation of the difference are below 1e-5; ``not testable`` with fewer than two
        seeds or a difference without variance. For the scope of verdicts, and for calibration
        errors, see :func:`calgrid.statistics.summarise`.

    Raises
    ------
    DataError : as in :func:`calgrid.statistics.summarise`. ConfigError : ``level`` outside (0, 1).
    """
    check_level(level)
    runs = average_fit_seeds(check_metrics(metrics)).astype(dict.fromkeys(WORDS, "str"))
    runs = reaches(runs)[[*NUMBER_KEY, "seed", "value", "below", "above"]]
    pairs = [
        _pairs(runs, asked).assign(**{name: asked[name] for name in QUESTION})
        for asked in comparisons
    ]
    columns = [*QUESTION, *SHARED, "seed", "value", "value_against", *REACH]
    table = pd.concat(pairs)[columns] if pairs else pd.DataFrame(columns=columns)
    numbers = dict.fromkeys(("value", "value_against", *REACH), float)
    tests = paired_tests(table.astype(numbers), [*QUESTION, *SHARED])
    tests = tests[tests["n_seeds"] > 0].reset_index(drop=True)
    reach = student_reach(tests["std"], tests["n_seeds"], level)
    tests = tests.assign(ci_low=tests["difference"] - reach, ci_high=tests["difference"] + reach)
    tests["p_holm"] = holm(tests["p_value"], tests.groupby(FAMILY, sort=False).ngroup())
    tests["verdict"] = _verdicts(tests, 1 - level)
    order = ["n_seeds", "difference", "std", "ci_low", "ci_high", "p_value", "p_holm", "verdict"]
    return tests[[*QUESTION, *SHARED, *order]]


def _pairs(runs: pd.DataFrame, asked: Mapping[str, object]) -> pd.DataFrame:
    """Values of both methods at common seeds."""
    method, against = (runs[runs["method"] == asked[role]] for role in ("method", "against"))
    return method.merge(
        against.drop(columns="method"), on=[*SHARED, "seed"], suffixes=("", "_against")
    )


def _verdicts(tests: pd.DataFrame, alpha: float) -> np.ndarray:
    """Verdict of each row, by the first rule that applies."""
    found = (tests["p_holm"] < alpha) & beyond_bias(tests, tests["metric"])
    rules = {
        "equal": tests[["difference", "std"]].abs().max(axis=1, skipna=False) < NEGLIGIBLE,
        "not testable": tests["p_value"].isna(),
        "lower": found & (tests["difference"] < 0),
        "higher": found & (tests["difference"] > 0),
    }
    return np.select([on.to_numpy() for on in rules.values()], list(rules), "tie")
