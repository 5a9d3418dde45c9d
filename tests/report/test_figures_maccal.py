"""Scores against a hyper-parameter, and the masks of MaC-Cal over the epochs."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from tests.report.conftest import CLEAN, PAIR

from calgrid.report.figure import FigureData
from calgrid.report.figures import sensitivity
from calgrid.report.figures.sensitivity import calibrator_sweeps, method_sweeps
from calgrid.report.index import read_index
from calgrid.report.plotting import lines
from calgrid.report.study import Group, StudyData
from calgrid.storage.schema import RUN_KEY

FACTORS = {
    "maccal_l09": {"base": "maccal", "lambda_": 0.9},
    "maccal_l10": {"base": "maccal", "lambda_": 1.0},
}
ALPHAS = {
    "mixup_a01": {"base": "mixup", "alpha": 0.1},
    "mixup_a05": {"base": "mixup", "alpha": 0.5},
}
SIGMAS = (("a", 0.01), ("b", 0.05), ("c", 0.2))
MEMBERS = ["maccal", "maccal_l09", "maccal_l10"]


@pytest.fixture(scope="module")
def factors(make):
    methods = ("ce", "maccal_l10", "maccal", "maccal_l09")
    return make(methods=methods, seeds=(0, 1), **CLEAN, configuration={"methods": FACTORS})


def test_members_of_a_sweep_differ_in_one_option_and_include_the_default(factors):
    (sweep,) = method_sweeps(*factors.opened())
    assert (sweep.option, sweep.label) == ("maccal lambda_", "maccal")
    assert list(sweep.members.items()) == [
        (0.7, "maccal"),
        (0.9, "maccal_l09"),
        (1.0, "maccal_l10"),
    ]


def planned(names, /, **configuration):
    """A study of which there is the manifest alone, and its group."""
    group = Group("quick", "digits", "resnet8", "last")
    runs = [
        {"key": {**dict(zip(RUN_KEY, group, strict=False)), "method": name, "seed": 0}}
        | {"external": False}
        for name in names
    ]
    statistics = {"baseline": "ce", "level": 0.95, "bins": 15}
    configured = {"statistics": statistics, **configuration}
    return StudyData("", {"configuration": configured, "runs": runs}), group


def test_a_sweep_in_the_first_stage_is_one_of_its_own():
    names = ("mixup_a01", "mixup_a05", "mixup")
    methods = ("ce", *names, *(f"maccal+{name}" for name in names))
    first, second = method_sweeps(*planned(methods, methods=ALPHAS))
    assert [first.option, second.option] == ["mixup alpha"] * 2
    assert [first.label, second.label] == ["mixup", "maccal+mixup"]
    assert list(second.members) == list(first.members)
    assert second.members[0.1] == "maccal+mixup_a01"


def test_overrides_count_and_two_values_are_no_course():
    # the override gives one of the three another width as well: what is left has two values
    overrides = [{"match": {"method": "maccal_l10"}, "set": {"bottleneck": 16}}]
    # data sets of the configuration may be named as registered ones are
    overrides.append({"match": {"dataset": "mine"}, "set": {"bottleneck": 8}})
    files = {"base": "image_parquet", "train": "a.parquet", "test": "b.parquet", "val_size": 9}
    configured = {"methods": FACTORS, "overrides": overrides, "datasets": {"mine": files}}
    assert method_sweeps(*planned(("ce", *MEMBERS), **configured)) == []


def test_points_of_sensitivity_are_the_means_of_the_summary_with_deviation_and_null(factors):
    data, group = factors.opened()
    found = sensitivity.METHODS.collect(data, group)
    expected = data.test(group).set_index(["calibrator", "method"])
    assert list(found["said"].unique()) == ["uncalibrated", "calibrated by ts"]
    for calibrator, rows in found.groupby("calibrator"):
        assert list(rows["value"]) == [0.7, 0.9, 1.0]
        assert list(rows["method"]) == MEMBERS
        for column in ("accuracy_mean", "ece_mean", "ece_std", "nll_mean", "ece_null_mean"):
            wanted = expected.loc[[(calibrator, name) for name in MEMBERS], column]
            assert rows[column].to_numpy() == pytest.approx(wanted.to_numpy())


def test_calibrators_are_varied_on_the_baseline(make):
    variants = {
        f"ts_{place}": {"base": "ts", "objective": "charbonnier", "sigma": sigma}
        for place, sigma in SIGMAS
    }
    configured = {"calibrators": ("none", *variants), "configuration": {"calibrators": variants}}
    data, group = make(**{**PAIR, "methods": ("ce",)}, **configured).opened()
    (sweep,) = calibrator_sweeps(data, group)
    assert (sweep.option, list(sweep.members)) == ("ts_objective sigma", [0.01, 0.05, 0.2])
    rows = data.test(group).set_index(["method", "calibrator"])
    found = sensitivity.CALIBRATORS.collect(data, group)
    assert list(found["nll_mean"]) == pytest.approx(
        [rows.loc[("ce", name), "nll_mean"] for name in variants]
    )
    caption = sensitivity.CALIBRATORS.caption(FigureData(data, group, found))
    assert "networks of ce" in caption
    assert "one network each" in caption


def test_one_run_is_spread_over_the_seeds_of_its_calibrator():
    row = {"calibrator": "smart", "metric": "ece", "mean": 0.02, "std_fit": 0.004}
    row |= {"n_seeds": 1, "n_fits": 5, **dict.fromkeys(("std", "ci_low", "ci_high"), np.nan)}
    rows = pd.DataFrame([row, {**row, "calibrator": "pts", "std": 0.5, "n_seeds": 3}])
    table = lines.means(rows, ["calibrator"]).set_index("calibrator")
    assert table.loc["smart", "ece_std"] == 0.004
    assert table.loc["pts", "ece_std"] == 0.5
    assert "over 5 seeds of the stochastic calibrators" in lines.spread(rows[:1])
    assert "means over 3 seeds" in lines.spread(rows)


def test_lines_are_means_with_a_band_unless_there_are_many():
    rows = pd.DataFrame(
        {"ece_mean": [0.2, 0.3], "ece_std": [0.01, 0.02], "ece_null_mean": [0.1, 0.1]}
    )
    for count, bands in ((lines.BANDS, 1), (lines.BANDS + 1, 0)):
        ax = Figure().subplots()
        lines.line(ax, [1, 2], rows, "ece", {"color": "black"}, count)
        mean, null = ax.lines
        assert (list(mean.get_ydata()), list(null.get_ydata())) == ([20, 30], [10, 10])
        assert len(ax.collections) == bands
    ends = [band.get_paths()[0].vertices[:, 1] for band in ax.collections]
    assert all((part.min(), part.max()) == pytest.approx((19, 32)) for part in ends)


def test_labels_of_near_values_are_left_out():
    for values, labels in (
        ([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0], ["0.5", "0.6", "0.7", "0.8", "0.9", "", "1"]),
        ([0.01, 0.05, 0.1, 1.0], ["0.01", "0.05", "0.1", "1"]),
    ):
        ax = Figure().subplots()
        lines.numeric_axis(ax, values)
        assert [label.get_text() for label in ax.get_xticklabels()] == labels


def test_captions_name_seeds_and_samples(factors):
    drawn = read_index(factors.figures("sensitivity", "retention"))
    entries = {entry["id"].removesuffix("_digits_resnet8"): entry for entry in drawn}
    assert {"sensitivity", "retention"} == set(entries)
    assert "means over 2 seeds" in entries["sensitivity"]["caption"]
    assert "240 images" in entries["sensitivity"]["caption"]
    assert "means over 2 seeds" in entries["retention"]["caption"]
    assert entries["retention"]["category"] == "Training"
