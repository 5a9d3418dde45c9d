"""The choice among candidates, by hand, and that test values take no part in it."""

import pandas as pd
import pytest
from tests.statistics.cases import frame, over_seeds

from calgrid.errors import ConfigError, DataError
from calgrid.statistics import as_tuned, choose

SHORT = {"protocol": "short"}
LISTS = {
    "smooth": [("short", "ls"), ("short", "ls_big")],
    "plain": [("short", "ce"), ("decayed", "ce")],
}
VAL = {"split": "val", "metric": "nll"}
TEST = {"split": "test", "metric": "nll"}


@pytest.fixture
def metrics():
    """Validation prefers ls, then ls_big; ce under both protocols ties at seed 1, then decayed."""
    return frame(
        *over_seeds([0.3, 0.5], method="ls", **VAL),
        *over_seeds([0.4, 0.2], method="ls_big", **VAL),
        *over_seeds([0.6, 0.7], method="ce", **VAL),
        *over_seeds([0.6, 0.1], method="ce", **VAL | {"protocol": "decayed"}),
        *over_seeds([1.0, 2.0], method="ls", **TEST),
        *over_seeds([0.5, 3.0], method="ls_big", **TEST),
        *over_seeds([4.0, 5.0], method="ce", **TEST),
        *over_seeds([6.0, 7.0], method="ce", **TEST | {"protocol": "decayed"}),
    )


def test_each_seed_chooses_by_its_own_validation_value(metrics):
    columns = ["tuned", "seed", "protocol", "method", "place", "value", "n_candidates"]
    assert choose(metrics, LISTS)[columns].values.tolist() == [
        ["smooth", 1, "short", "ls", 0, 0.3, 2],
        ["smooth", 2, "short", "ls_big", 1, 0.2, 2],
        ["plain", 1, "short", "ce", 0, 0.6, 2],
        ["plain", 2, "decayed", "ce", 1, 0.1, 2],
    ]


def test_chosen_runs_are_scored_under_the_name_of_the_method(metrics):
    test = metrics[metrics["split"] == "test"]
    rows = as_tuned(test, choose(metrics, LISTS), "short")
    assert list(rows.columns) == list(metrics.columns)
    assert set(rows["protocol"]) == {"short"}
    values = rows.set_index(["method", "seed"])["value"].to_dict()
    assert values == {("smooth", 1): 1.0, ("smooth", 2): 3.0, ("plain", 1): 4.0, ("plain", 2): 7.0}


def test_test_values_and_calibrated_values_take_no_part_in_the_choice(metrics):
    flipped = metrics.assign(
        value=metrics["value"].where(metrics["split"] == "val", -metrics["value"])
    )
    calibrated = metrics.assign(calibrator="ts", value=-metrics["value"])
    assert choose(pd.concat([flipped, calibrated]), LISTS).equals(choose(metrics, LISTS))


def test_accuracy_is_better_when_it_is_higher():
    rows = over_seeds([0.9], method="ls", split="val", metric="accuracy")
    rows += over_seeds([0.8], method="ls_big", split="val", metric="accuracy")
    chosen = choose(frame(*rows), {"smooth": LISTS["smooth"]}, "accuracy")
    assert chosen["method"].tolist() == ["ls"]


def test_a_run_may_be_a_candidate_of_two_methods(metrics):
    choices = choose(metrics, {"a": [("short", "ls")], "b": [("short", "ls")]})
    rows = as_tuned(metrics[metrics["split"] == "test"], choices, "short")
    assert sorted(rows["method"]) == ["a", "a", "b", "b"]


def test_a_missing_candidate_is_refused(metrics, refuses):
    rows = metrics[~((metrics["method"] == "ls_big") & (metrics["seed"] == 2))]
    with refuses(
        DataError,
        "only 1 of 2 candidates of 'smooth' have a validation nll",
        "cifar10, resnet50, best, 2",
    ):
        choose(rows, LISTS)


def test_a_metric_that_ranks_nobody_is_refused(metrics, refuses):
    with refuses(ConfigError, "Unknown metric that ranks 'ece_null'"):
        choose(metrics, LISTS, "ece_null")
