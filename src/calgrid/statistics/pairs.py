"""Tests of pairs of recipes (a method with a calibrator), each pair once, by the rule of
:mod:`calgrid.statistics.verdicts`.

A p-value depends on its pair and on the study, not on the other tests. The prior variance over
seeds of two methods comes from the differences to the baseline with the same calibrator; for two
calibrators with each other's methods it is the mean of both priors. Calibrators of the same
networks have no prior: nearly equal ones are not independent.

Each pair is in one family, the first of: questions of the study; against the baseline; calibrators
against none; the best against the others; without questions, each two of a few methods.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from calgrid.components.metrics import find_metric
from calgrid.metrics.intervals import tails_of
from calgrid.statistics.checks import WORDS, check_metrics, groups, keys_without
from calgrid.statistics.paired import (
    Draws,
    paired_tests,
    run_draws,
    student_reach,
)
from calgrid.statistics.verdicts import BETTER, WORSE, judge_all, of_metric, seed_prior
from calgrid.storage.schema import INTERVAL, NUMBER_KEY, SEEDS, TEST_COLUMNS

METHOD, CALIBRATOR = "method", "calibrator"
UNCALIBRATED = "none"
#: start of the name of the families of questions
QUESTIONS = "questions about"
#: metric by which recipes are compared across methods and calibrators
RECIPES_BY = "nll"
#: keys of a table column, within which rows are ranked
RANKED = keys_without("method", "calibrator", "fit_on")
#: keys of the tests against the baseline that share a prior
PRIOR = [*RANKED, "calibrator"]
#: metrics by which each two methods are compared in a study without questions, and of how many
TOLD = (RECIPES_BY, "brier", "squared_ce", "accuracy")
FEW_METHODS = 12
#: recipes are ranked if their accuracy may be at most this far below the best: one percentage point
KEPT_ACCURACY = 0.01
#: tests whose resamples are in memory at once
CHUNK = 2**13


class Numbers(NamedTuple):
    """Numbers of a study, their values in each run and their resamples.

    Attributes
    ----------
    cells : ``NUMBER_KEY``, words as categories; the index counts from 0.
    runs : one row a number and seed: cell, seed, value (mean over the seeds of the calibrator),
        ci_low, ci_high, n_samples, std_fit, n_fits.
    draws : resamples of the runs.
    """

    cells: pd.DataFrame
    runs: pd.DataFrame
    draws: Draws


def numbers(metrics: pd.DataFrame, resamples: pd.DataFrame | None = None) -> Numbers:
    """Numbers of a tidy metrics frame, see :func:`calgrid.statistics.summarise`."""
    rows = check_metrics(metrics)
    rows = rows.assign(cell=groups(rows, NUMBER_KEY)).sort_values(["cell", *SEEDS])
    cells = rows.drop_duplicates("cell")[list(NUMBER_KEY)].reset_index(drop=True)
    runs = rows[["cell", *SEEDS, "value", *INTERVAL, "n_samples"]]
    if runs.duplicated(["cell", "seed"]).any():
        # seeds of calibrators are no independent runs
        runs = runs.groupby(["cell", "seed"], as_index=False).agg(
            value=("value", "mean"),
            ci_low=("ci_low", "mean"),
            ci_high=("ci_high", "mean"),
            n_samples=("n_samples", "min"),
            std_fit=("value", "std"),
            n_fits=("value", "count"),
        )
    else:
        runs = runs.assign(std_fit=np.nan, n_fits=runs["value"].notna().astype(int))
    places = runs[["cell", "seed"]].join(cells, on="cell")
    return Numbers(cells, runs, run_draws(places, resamples, (*NUMBER_KEY, "seed")))


def compare(
    metrics: pd.DataFrame,
    comparisons: Sequence[Mapping[str, object]],
    level: float = 0.95,
    resamples: pd.DataFrame | None = None,
    baseline: str = "",
) -> pd.DataFrame:
    """Paired difference of two methods or calibrators for each question, with test and verdict.

    A question about methods is answered for each protocol, data set, backbone, checkpoint,
    calibrator, split, shift and metric in which both share a seed; one about calibrators for each
    method instead of each calibrator.

    Parameters
    ----------
    metrics : tidy metrics frame, see :func:`calgrid.statistics.summarise`.
    comparisons : questions, each {"question": text, "method": id, "against": id} or {"question":
        text, "calibrator": id, "against": id}, the latter optionally with the only "method".
    level : nominal coverage of the intervals, in (0, 1); 1 - level is the significance level.
    resamples : as in :func:`calgrid.statistics.summarise`.
    baseline : method whose differences to the others in ``metrics`` give the prior variance.

    Returns
    -------
    Frame with the column ``question`` and those of :func:`tests_of_pairs`, in the order of
    ``comparisons``. A family has all answers about methods with the same metric and calibrator in
    one setting, or all about calibrators with the same metric.

    Raises
    ------
    DataError : as in :func:`calgrid.statistics.summarise`.
    ConfigError : ``level`` outside (0, 1).
    """
    found = numbers(metrics, resamples)
    tests = tests_of_pairs(
        found, question_pairs(found.cells, comparisons, baseline), baseline, level
    )
    return answers(tests, comparisons)


def answers(tests: pd.DataFrame, comparisons: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Tests that answer each question, with its text in the column ``question`` in front."""
    both, parts = both_ways(tests), [tests.iloc[:0].assign(question="")]
    for asked in comparisons:
        compared, fixed = (METHOD, CALIBRATOR)
        if CALIBRATOR in asked:
            compared, fixed = fixed, compared
        rows = (both[compared] == asked[compared]) & (both[_against(compared)] == asked["against"])
        rows &= both[fixed] == both[_against(fixed)]
        if compared == CALIBRATOR and METHOD in asked:
            rows &= both[METHOD] == asked[METHOD]
        parts.append(both[rows].assign(question=asked["question"]))
    found = pd.concat(parts, ignore_index=True)
    return found[["question", *TEST_COLUMNS]]


def _against(compared: str) -> str:
    return "against" if compared == METHOD else "against_calibrator"


def both_ways(tests: pd.DataFrame) -> pd.DataFrame:
    """Tests of each pair in both directions."""
    swapped = {
        "method": "against",
        "against": "method",
        "calibrator": "against_calibrator",
        "against_calibrator": "calibrator",
        "ci_low": "ci_high",
        "ci_high": "ci_low",
    }
    turned = tests.rename(columns=swapped)
    ends = ["difference", *INTERVAL]
    word = turned["verdict"].replace({BETTER: WORSE, WORSE: BETTER})
    turned = turned.assign(**{name: -turned[name] for name in ends}, verdict=word)
    return pd.concat([tests, turned], ignore_index=True)[list(tests.columns)]


def tests_of_pairs(
    found: Numbers,
    pairs: pd.DataFrame,
    baseline: str = "",
    level: float = 0.95,
    priors: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Test of each pair of numbers over common seeds and test samples.

    Parameters
    ----------
    pairs : cell and against, rows of ``found.cells`` with the same metric and test set, and family.
        Of a pair that is there twice the first row counts, in any direction.
    baseline : method whose differences to the others give the prior variance.
    level : nominal coverage of the intervals, in (0, 1).
    priors : of the study, see :func:`study_priors`; by default of ``found``.

    Returns
    -------
    One row a pair with a common seed: ``TEST_COLUMNS``, which are the key of the number, and
    against, against_calibrator : the other side;
    family : within which Holm's correction applies, at the same place and metric;
    n_seeds : number of common seeds;
    difference : mean over common seeds of the number minus the other side's;
    std_seed : standard deviation of the difference over seeds (ddof 1);
    std_test : standard deviation of the mean difference over test samples; NaN without resamples;
    prior : variance over seeds towards which ``std_seed`` squared is moderated; NaN: it is not;
    ci_low, ci_high : interval of the difference, over seeds and test samples; for metrics that do
        not decide themselves, the Student t interval over seeds;
    p_seeds, p_value, p_holm, detectable, decided_by, verdict : see
        :func:`calgrid.statistics.verdicts.judge_all`. With one seed two calibrators of a method
        have a verdict, on its network.

    The index of the frame is the row of ``found.cells``.
    """
    tails_of(level)  # refuses one outside (0, 1)
    cells = found.cells
    ordered = pd.DataFrame(np.sort(pairs[["cell", "against"]].to_numpy(), axis=1))
    pairs = pairs[~ordered.duplicated().to_numpy()].reset_index(drop=True)
    tests = pairs.join(_differences(found, pairs))
    tests = tests[tests["n_seeds"] > 0]
    mine, other = tests["cell"].to_numpy(), tests["against"].to_numpy()
    names = cells.astype(dict.fromkeys(WORDS, "str"))
    own, against = names.iloc[mine].set_axis(tests.index), names.iloc[other]
    same_method = own["method"].to_numpy() == against["method"].to_numpy()
    keys = cells[PRIOR].astype(dict.fromkeys({*PRIOR} & {*WORDS}, "str"))
    known = study_priors(found, baseline) if priors is None else priors
    of_cells = keys.merge(known, on=PRIOR, how="left")["prior"].to_numpy(float)
    reach = student_reach(tests["std_seed"], tests["n_seeds"], level)
    tests = tests.assign(
        **own,
        against=against["method"].to_numpy(),
        against_calibrator=against["calibrator"].to_numpy(),
        prior=np.where(same_method, np.nan, (of_cells[mine] + of_cells[other]) / 2),
        ci_low=tests["difference"] - reach,
        ci_high=tests["difference"] + reach,
    )
    place = groups(cells, keys_without("metric"))
    sides = place[mine] * len(cells) + place[other]
    ranked = groups(cells, RANKED)[mine]
    families = groups(tests.assign(place=ranked), ["place", "family"])
    tests = judge_all(tests, sides, families, level, same_method)
    return tests.set_index("cell")[list(TEST_COLUMNS)]


def _differences(found: Numbers, pairs: pd.DataFrame) -> pd.DataFrame:
    """Inputs of :func:`judge` for each pair, by its row."""
    own = found.runs[["cell", "seed"]].assign(run=np.arange(len(found.runs)))
    other = own.rename(columns={"cell": "against"})
    parts = []
    for start in range(0, max(len(pairs), 1), CHUNK):
        part = pairs.iloc[start : start + CHUNK].reset_index(names="pair")
        runs = part.merge(own, on="cell").merge(
            other, on=["against", "seed"], suffixes=("", "_against")
        )
        parts.append(paired_tests(runs, ["pair"], found.runs, found.draws))
    return pd.concat(parts).set_index("pair")


def study_priors(found: Numbers, baseline: str) -> pd.DataFrame:
    """Prior variance over seeds of methods: ``prior`` of each combination of the columns ``PRIOR``
    with enough differences to the baseline.
    """
    reference = baseline_pairs(found.cells, baseline)
    over_seeds = found._replace(draws=run_draws(found.runs, None, ()))
    tests = reference.join(_differences(over_seeds, reference))
    keys = found.cells.loc[tests["cell"], PRIOR].astype(dict.fromkeys({*PRIOR} & {*WORDS}, "str"))
    keys["prior"] = seed_prior(tests, groups(keys, PRIOR)).to_numpy()
    return keys.dropna(subset="prior").drop_duplicates()


def baseline_pairs(cells: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Each number of another method, paired with the baseline's under the same other keys."""
    is_baseline = (cells["method"] == baseline).to_numpy()
    place = groups(cells, keys_without("method"))
    rows = pd.Series(range(len(cells))).where(is_baseline, -1)
    against = rows.groupby(place).transform("max").to_numpy()
    (mine,) = np.nonzero((against >= 0) & ~is_baseline)
    return _pairs(cells, mine, against[mine], f"against {baseline}", True)


def question_pairs(
    cells: pd.DataFrame, comparisons: Iterable[Mapping[str, object]], baseline: str = ""
) -> pd.DataFrame:
    """Pairs that questions compare (see :func:`compare`), the baseline last."""
    ids, parts = np.arange(len(cells)), [_pairs(cells, [], [], "", False)]
    for asked in comparisons:
        compared = CALIBRATOR if CALIBRATOR in asked else METHOD
        place = pd.Series(groups(cells, keys_without(compared)), name="place")
        mine = cells[compared] == asked[compared]
        if METHOD in asked and compared == CALIBRATOR:
            mine &= cells[METHOD] == asked[METHOD]
        sides = []
        for side in (mine, cells[compared] == asked["against"]):
            sides.append(pd.DataFrame({"place": place[side], "cell": ids[side]}))
        both = sides[0].merge(sides[1], on="place", suffixes=("", "_against"))
        first, second = both["cell"].to_numpy(), both["cell_against"].to_numpy()
        if compared == METHOD and asked[compared] == baseline:
            first, second = second, first
        parts.append(_pairs(cells, first, second, f"{QUESTIONS} {compared}s", compared == METHOD))
    return pd.concat(parts, ignore_index=True)


def study_pairs(
    cells: pd.DataFrame,
    estimates: pd.DataFrame,
    baseline: str,
    comparisons: Sequence[Mapping[str, object]] = (),
) -> pd.DataFrame:
    """All pairs in the tables and sentences of a study, by their families.

    ``estimates`` has the mean of ``cells`` over seeds and its interval, by which the best is found.
    """
    found = _clean_pairs(cells, estimates, FEW_METHODS if not comparisons else 0)
    clean = pd.DataFrame(found, columns=["cell", "against", "family"])
    asked = question_pairs(cells, comparisons, baseline)
    parts = [asked, baseline_pairs(cells, baseline), clean.astype(asked.dtypes)]
    return pd.concat(parts, ignore_index=True)


def _clean_pairs(
    cells: pd.DataFrame, estimates: pd.DataFrame, few: int
) -> Iterator[tuple[int, int, str]]:
    """Pairs on the clean test split of metrics with a verdict of their own: each calibrator with
    none, the best of each calibrator, of each method and of all with the others, and each two of up
    to ``few`` methods.
    """
    decides = of_metric(cells["metric"], "decided_by").astype(str) == cells["metric"].astype(str)
    clean = (cells["split"] == "test") & (cells["shift"] == "") & (cells["fit_on"] == "val")
    rows = cells[clean & decides].astype(dict.fromkeys(WORDS, "str")).join(estimates)
    for _, part in rows.groupby(["protocol", "dataset", "backbone", "checkpoint"]):
        recipes = part.reset_index(names="id").pivot(
            index=[METHOD, CALIBRATOR], columns="metric", values=["id", *estimates]
        )
        ids, table = recipes["id"], recipes["mean"].add_suffix("_mean")
        for end in INTERVAL:
            table = table.join(recipes[end].add_suffix(f"_{end}"))
        table = table.reset_index()
        compared = []
        for method, own in table.groupby(METHOD):
            none = own.index[own[CALIBRATOR] == UNCALIBRATED]
            others = own.index.difference(none)
            compared += [
                (metric, one, others, f"calibrators of {method}") for metric in ids for one in none
            ]
        for within, words in {CALIBRATOR: "best with", METHOD: "best of"}.items():
            for name, own in table.groupby(within):
                compared += [(metric, *best_of(own, metric), f"{words} {name}") for metric in ids]
        if RECIPES_BY in ids:
            compared.append((RECIPES_BY, *best_of(table, RECIPES_BY), "best of all"))
        for name, own in table.groupby(CALIBRATOR):
            for place, one in enumerate(own.index if len(own) <= few else ()):
                others = own.index[place + 1 :]
                told = [metric for metric in TOLD if metric in ids]
                compared += [(metric, one, others, f"methods with {name}") for metric in told]
        for metric, one, others, family in compared:
            known = ids[metric]
            for other in known.iloc[others].dropna():
                if known.iloc[one] >= 0:  # NaN: not scored
                    yield int(other), int(known.iloc[one]), family


def _pairs(
    cells: pd.DataFrame, mine: ArrayLike, against: ArrayLike, family: str, of_calibrator: bool
) -> pd.DataFrame:
    """Frame of pairs; a family ``of_calibrator`` is named after the first side's, too."""
    pairs = pd.DataFrame({"cell": mine, "against": against}).astype(int).assign(family=family)
    if of_calibrator:
        pairs["family"] += ", " + cells["calibrator"].iloc[pairs["cell"]].astype(str).to_numpy()
    return pairs


def best_of(rows: pd.DataFrame, metric: str) -> tuple[int | None, pd.Index]:
    """Index labels of the recipe with the best mean of a metric (None without any) and of the
    others, all among the wide rows that keep accuracy.
    """
    kept = rows[keeps_accuracy(rows)].sort_values([METHOD, CALIBRATOR], kind="stable")
    means = kept[f"{metric}_mean"].astype(float).dropna()
    losses = find_metric(metric).sign * means
    if losses.empty:
        return None, losses.index
    best = losses.idxmin()
    return best, losses.index.drop(best)


def keeps_accuracy(rows: pd.DataFrame) -> pd.Series:
    """Whether the accuracy of each wide row may be within a point of the best: whether the
    intervals of both are no further apart, or the accuracies where there is no interval; all True
    without accuracies.
    """
    if "accuracy_mean" not in rows:
        return pd.Series(True, index=rows.index)
    accuracy = rows["accuracy_mean"]
    low, high = (rows.get(f"accuracy_{end}", accuracy).fillna(accuracy) for end in INTERVAL)
    lowest = low[accuracy == accuracy.max()].min()
    return high >= lowest - KEPT_ACCURACY - 1e-12  # a loss of exactly one point is kept
