"""Two methods on the same test samples: what is due to the samples, and what to the seeds."""

import itertools

import numpy as np
import pytest
from scipy import special, stats
from tests.metrics.cases import calibrated, softmax
from tests.statistics.cases import one

from calgrid import metrics
from calgrid.errors import ConfigError, DataError
from calgrid.metrics.intervals import resampled
from calgrid.statistics import paired_bootstrap
from calgrid.statistics.paired import wilson_interval

N = 200


def runs_of(factor, seeds=3, spread=1e-9):
    """Runs of one model whose logits are multiplied by a factor that varies over seeds."""
    probs, _ = calibrated(N)
    factors = factor * (1 + spread * np.linspace(-1, 1, seeds))
    return [softmax(f * np.log(probs)) for f in factors]


LABELS = calibrated(N)[1]


def row(table, metric="nll", method=None):
    return one(table, metric=metric, method=method or table["method"].iloc[0])


def compared(n_resamples=200, of_runs=False, **runs):
    return paired_bootstrap(runs, LABELS, n_resamples=n_resamples, of_runs=of_runs)


def test_one_run_each_is_the_bootstrap_of_a_difference():
    first, second = runs_of(1.0, seeds=1), runs_of(1.5, seeds=1)
    table = paired_bootstrap({"a": first, "b": second}, LABELS, n_resamples=200, seed=3)
    expected = metrics.bootstrap_difference(first[0], second[0], LABELS, n_resamples=200, seed=3)
    for name in ("accuracy", "nll", "brier"):  # Student's intervals, close to the percentiles
        found = row(table, name)
        width = expected[name][1] - expected[name][0]
        assert found["ci_high"] - found["ci_low"] == pytest.approx(width, rel=0.1)
    # with the same 200 resamples, to the last digit
    found = row(table, "squared_ce")
    assert (found["ci_low"], found["ci_high"]) == pytest.approx(expected["squared_ce"])
    difference = metrics.nll(first[0], LABELS) - metrics.nll(second[0], LABELS)
    assert row(table)["difference"] == pytest.approx(difference)
    assert np.isnan(row(table)["std_seed"])
    assert set(table["verdict"]) == {"no verdict"}  # as in a study
    assert row(compared(a=first, b=second, of_runs=True))["verdict"] == "better"


def test_sources_of_variance_are_told_apart():
    steady = row(compared(a=runs_of(1.0), b=runs_of(1.5)))
    spread = row(compared(a=runs_of(1.0), b=runs_of(1.5, spread=0.2)))
    assert steady["std_seed"] == pytest.approx(0, abs=1e-8)
    assert spread["std_seed"] > 0.05
    assert spread["std_test"] == pytest.approx(steady["std_test"], rel=0.2)
    assert steady["n_seeds"] == 3


def test_the_verdict_holds_the_variance_over_seeds():
    """Two seeds for a, two against: the runs differ for certain, the methods do not."""
    a, b = [softmax(f * np.log(calibrated(N)[0])) for f in (1.0, 3.0)], runs_of(1.6, seeds=2)
    last = row(compared(a=a[1:], b=b[1:], of_runs=True))
    both = row(compared(a=a, b=b))
    assert (last["verdict"], both["verdict"]) == ("worse", "tie")
    student = stats.t.ppf(0.975, 1) * both["std_seed"] / np.sqrt(2)
    assert both["ci_high"] - both["difference"] > student > 0


def sharp_and_flat(n, seed=0):
    """Two calibrated models, one of which knows more, and labels."""
    rng, grid = np.random.default_rng(seed), np.linspace(-5, 5, 201)
    u, weight = 1.5 * rng.normal(size=n), np.exp(-(grid**2) / 2)
    sharp = special.expit(u + 10 * rng.normal(size=n))
    flat = special.expit(u[:, None] + 10 * grid) @ (weight / weight.sum())
    runs = {name: [np.c_[p, 1 - p]] for name, p in (("sharp", sharp), ("flat", flat))}
    return runs, (rng.random(n) > sharp).astype(int)


def test_no_error_tells_a_sharp_calibrated_model_from_a_flat_one():
    """Bins of a flat model hold more noise: percentiles find its plain errors larger."""
    runs, labels = sharp_and_flat(500)
    errors = [name for name, each in metrics.METRICS.items() if each.decided_by == "squared_ce"]
    table = paired_bootstrap(runs, labels, metrics=errors, n_resamples=100, of_runs=True)
    assert set(table["decided_by"]) == {"squared_ce"}
    assert set(table["verdict"]) == {"tie"}
    drawn = [resampled(*each, labels, n_resamples=100).drawn["aece"] for each in runs.values()]
    assert np.quantile(drawn[0] - drawn[1], 0.975) < 0


def test_a_model_does_not_differ_from_itself():
    runs = runs_of(1.3, seeds=1)
    table = paired_bootstrap(
        {"a": runs, "same": runs}, LABELS, metrics=["ece", "squared_ce", "nll"], of_runs=True
    )
    assert set(table["verdict"]) == {"equivalent"}
    assert (table[["ci_low", "ci_high"]] == 0).all(axis=None)


def test_metrics_without_a_fit_interval_get_no_verdict():
    runs, parts = {"a": runs_of(1.0), "b": runs_of(2.5)}, ["brier_calibration", "brier_refinement"]
    metrics = [*parts, "cece", "mce"]
    table = paired_bootstrap(runs, LABELS, metrics=metrics, n_resamples=20)
    assert {row(table, part)["verdict"] for part in parts} == {"no verdict"}
    assert row(table, "cece")["verdict"] == "better"
    assert row(table, "mce")["verdict"] == "better"  # by squared_ce
    assert row(table, "mce")[["ci_low", "ci_high"]].isna().all()


def test_verdicts():
    runs = {"calibrated": runs_of(1.0), "nearly": runs_of(1.01), "sharp": runs_of(2.5)}
    table = paired_bootstrap(runs, LABELS, metrics=("accuracy", "nll"), n_resamples=200)
    pairs = table[["method", "against"]].drop_duplicates().itertuples(index=False, name=None)
    assert list(pairs) == list(itertools.combinations(runs, 2))
    nll = table[table["metric"] == "nll"].set_index("against")
    assert nll.loc["sharp", "verdict"].tolist() == ["better", "better"]
    # sharpening keeps the arg max, which so few samples cannot tell
    accuracy = table[table["metric"] == "accuracy"]
    assert set(accuracy["verdict"]) == {"tie"}
    assert accuracy["detectable"].tolist() == pytest.approx([3.69 / N] * 3)
    reverse = compared(sharp=runs["sharp"], calibrated=runs["calibrated"])
    assert row(reverse)["verdict"] == "worse"


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_unequal_numbers_of_seeds_are_no_pairs(refuses, seeds):
    with refuses(DataError, "seed by seed", f"different numbers of runs (a 3, b {seeds})"):
        compared(a=runs_of(1.0), b=runs_of(1.5, seeds=seeds), n_resamples=20)


def test_a_run_is_not_two_seeds(refuses):
    once, twice = runs_of(1.0, seeds=2), runs_of(1.5, seeds=1) * 2
    with refuses(DataError, "Two runs of b have the same numbers"):
        compared(a=once, b=twice, n_resamples=20)


def test_what_is_compared_is_checked():
    runs = {"a": runs_of(1.0, seeds=1), "b": runs_of(1.5, seeds=1)}
    with pytest.raises(ConfigError, match="Unknown metric 'nul' in metrics: did you mean 'nll'"):
        paired_bootstrap(runs, LABELS, metrics=["nul"])
    for name, why in {"auroc": "is not one of predictions", "l1_ts": "does not rank"}.items():
        with pytest.raises(ConfigError, match=f"The metric '{name}' in metrics {why}"):
            paired_bootstrap(runs, LABELS, metrics=[name])
    with pytest.raises(DataError, match="at least two methods"):
        paired_bootstrap({"a": runs["a"]}, LABELS)
    with pytest.raises(ConfigError, match="level"):
        paired_bootstrap(runs, LABELS, level=1)


def test_interval_of_a_share_of_one_has_a_length():
    low, high = wilson_interval(1.0, 100, 0.95)
    assert (low, high) == pytest.approx((0.963, 1.0), abs=1e-3)
    assert wilson_interval(0.5, 10_000, 0.95) == pytest.approx([0.4902, 0.5098], abs=1e-4)
