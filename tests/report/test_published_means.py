"""Cells of a table: seeds of calibrators, places and seeds of runs are averaged in this order."""

import numpy as np
import pandas as pd
import pytest
from tests.statistics.cases import DEFAULTS, frame, over_seeds

from calgrid.errors import ConfigError
from calgrid.papers.cells import AXES, cell_means, cell_runs
from calgrid.statistics import summarise


def places(*changes):
    return pd.DataFrame([{"cell": 7, **DEFAULTS, **change} for change in changes])[["cell", *AXES]]


def runs(metrics, *changes):
    return cell_runs(metrics, places(*changes))


def test_a_single_place_keeps_its_interval():
    found = runs(frame({"value": 0.05, "ci_low": 0.04, "ci_high": 0.06}), {})
    columns = ["cell", "seed", "value", "ci_low", "ci_high"]
    assert found[columns].iloc[0].tolist() == [7, 1, 0.05, 0.04, 0.06]
    means = cell_means(found)
    assert means[["mean", "n_seeds", "ci_low", "ci_high"]].iloc[0].tolist() == [0.05, 1, 0.04, 0.06]


def test_seeds_give_the_interval_of_the_summary():
    metrics = frame(*over_seeds([0.02, 0.04, 0.06]))
    row = cell_means(runs(metrics, {}), level=0.95).iloc[0]
    assert row["mean"] == pytest.approx(0.04)
    assert row["std"] == pytest.approx(0.02)
    summary = summarise(metrics).iloc[0]
    assert (row["ci_low"], row["ci_high"]) == (summary["ci_low"], summary["ci_high"])


def test_a_mean_needs_all_its_places_in_a_seed():
    other = {"backbone": "wrn26_10"}
    metrics = frame(
        {"seed": 1, "value": 0.02}, {"seed": 1, "value": 0.06, **other}, {"seed": 2, "value": 0.5}
    )
    found = runs(metrics, {}, other)
    assert found[["seed", "value"]].to_numpy().tolist() == [[1, pytest.approx(0.04)]]
    assert found[["ci_low", "ci_high"]].isna().all(axis=None)  # no interval of a mean over networks


def test_seeds_of_a_calibrator_weigh_as_much_as_one():
    other = {"backbone": "wrn26_10"}
    fits = [{"fit_seed": seed, "value": value} for seed, value in enumerate((0.01, 0.02, 0.03))]
    found = runs(frame(*fits, {"value": 0.06, **other}), {}, other)
    assert found["value"].tolist() == [pytest.approx(0.04)]


def test_protocols_and_checkpoints_are_kept_apart_and_val_is_left_out():
    last = {"value": 0.2, "checkpoint": "last"}
    metrics = frame({"value": 0.1}, last, {"value": 0.3, "split": "val"})
    means = cell_means(runs(metrics, {}))
    assert means.set_index("checkpoint")["mean"].to_dict() == {"best": 0.1, "last": 0.2}


def test_nothing_there_is_no_row():
    assert cell_means(runs(frame({}), {"method": "ls"})).empty
    assert cell_means(runs(frame({"value": np.nan}), {})).empty
    with pytest.raises(ConfigError, match="level must be between 0 and 1"):
        cell_means(runs(frame({}), {}), level=1.0)


def test_seeds_of_the_calibrator_are_the_spread_of_a_cell():
    fits = [{"fit_seed": seed, "value": value} for seed, value in enumerate((0.01, 0.02, 0.03), 1)]
    runs = cell_runs(frame(*fits), places({}), "fit_seed")
    assert runs[["seed", "value"]].to_numpy().tolist() == [[1, 0.01], [2, 0.02], [3, 0.03]]
    row = cell_means(runs).iloc[0]
    assert row[["mean", "std", "n_seeds"]].tolist() == pytest.approx([0.02, 0.01, 3])
    twice = frame(*fits, *({**fit, "seed": 2, "value": fit["value"] + 0.02} for fit in fits))
    found = cell_runs(twice, places({}), "fit_seed")["value"]
    assert found.tolist() == pytest.approx([0.02, 0.03, 0.04])
