"""Figures of MaC-Cal's paper: masking over the epochs, and scores against a hyper-parameter."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from calgrid.reporting.sweeps import calibrator_families, method_families
from calgrid.reporting.figures import _lines, retention, sensitivity, write_figures
from calgrid.reporting.histories import histories
from calgrid.reporting.index import read_index
from calgrid.reporting.study import StudyData

FACTORS = {"maccal_l09": {"base": "maccal", "lambda_": 0.9}, "maccal_l10": {"base": "maccal", "lambda_": 1.0}}
ALPHAS = {"mixup_a01": {"base": "mixup", "alpha": 0.1}, "mixup_a05": {"base": "mixup", "alpha": 0.5}}
SIGMAS = (("a", 0.01), ("b", 0.05), ("c", 0.2))


def open_study(written):
    data = StudyData(written.folder, written.manifest)
    return data, data.groups[0]


@pytest.fixture
def factors(build):
    methods = ("ce", "maccal_l10", "maccal", "maccal_l09")
    return build(methods=methods, shifts=(), ood=(), resamples=0, configuration={"methods": FACTORS})


def test_members_of_a_family_differ_in_one_option_and_include_the_default(factors):
    (family,) = method_families(*open_study(factors))
    assert (family.option, family.label) == ("maccal lambda_", "maccal")
    assert list(family.members.items()) == [(0.7, "maccal"), (0.9, "maccal_l09"), (1.0, "maccal_l10")]


def test_a_family_in_the_first_stage_is_one_of_its_own(build):
    names = ("mixup_a01", "mixup_a05", "mixup")
    methods = ("ce", *names, *(f"maccal+{name}" for name in names))
    study = build(methods=methods, seeds=(0,), shifts=(), ood=(), resamples=0, configuration={"methods": ALPHAS})
    first, second = method_families(*open_study(study))
    assert [first.option, second.option] == ["mixup alpha"] * 2
    assert [first.label, second.label] == ["mixup", "maccal+mixup"]
    assert list(second.members) == list(first.members)
    assert second.members[0.1] == "maccal+mixup_a01"


def test_overrides_count_and_two_values_are_no_course(build):
    # the override gives one of the three another width as well: what is left has two values
    overrides = [{"match": {"method": "maccal_l10"}, "set": {"bottleneck": 16}}]
    study = build(
        methods=("ce", "maccal", "maccal_l09", "maccal_l10"),
        seeds=(0,),
        shifts=(),
        ood=(),
        resamples=0,
        configuration={"methods": FACTORS, "overrides": overrides},
    )
    assert method_families(*open_study(study)) == []
    assert sensitivity.draw_methods(*open_study(study)) is None


def test_lines_of_sensitivity_are_the_means_of_the_summary_with_its_deviation(factors):
    data, group = open_study(factors)
    rows = data.test(group).set_index(["calibrator", "method"])
    members = ["maccal", "maccal_l09", "maccal_l10"]
    figure = sensitivity.draw_methods(data, group)
    assert len(figure.axes) == 3
    for ax, metric, factor in zip(figure.axes, ("accuracy", "ece", "nll"), (100, 100, 1), strict=True):
        lines = [line for line in ax.lines if line.get_linestyle() != "None"]
        for line, band, calibrator in zip(lines, ax.collections, ("none", "ts"), strict=True):
            part = rows.loc[[(calibrator, name) for name in members]]
            mean, std = (factor * part[f"{metric}_{each}"].to_numpy() for each in ("mean", "std"))
            assert list(line.get_xdata()) == [0.7, 0.9, 1.0]
            assert line.get_ydata() == pytest.approx(mean)
            edges = band.get_paths()[0].vertices
            assert edges[:, 1].min() == pytest.approx((mean - std).min())
            assert edges[:, 1].max() == pytest.approx((mean + std).max())
    assert [line.get_linestyle() for line in figure.axes[0].lines] == ["-", "--"]


def test_ticks_of_sensitivity_are_the_null_of_each_ece(factors):
    data, group = open_study(factors)
    rows = data.test(group, ["none"]).set_index("method")
    ax = sensitivity.draw_methods(data, group).axes[1]
    ticks = [line for line in ax.lines if line.get_linestyle() == "None"]
    assert len(ticks) == 2
    expected = 100 * rows.loc[["maccal", "maccal_l09", "maccal_l10"], "ece_null_mean"]
    assert ticks[0].get_ydata() == pytest.approx(expected.to_numpy())


def test_calibrators_are_varied_on_the_baseline(build):
    variants = {f"ts_{place}": {"base": "ts", "objective": "charbonnier", "sigma": sigma} for place, sigma in SIGMAS}
    study = build(
        seeds=(0,),
        shifts=(),
        ood=(),
        resamples=0,
        calibrators=("none", *variants),
        configuration={"calibrators": variants},
    )
    data, group = open_study(study)
    (family,) = calibrator_families(data, group)
    assert (family.option, list(family.members)) == ("ts sigma", [0.01, 0.05, 0.2])
    rows = data.test(group).set_index(["method", "calibrator"])
    *_, nll = sensitivity.draw_calibrators(data, group).axes
    assert nll.get_xscale() == "log"
    assert nll.lines[0].get_ydata() == pytest.approx([rows.loc[("ce", name), "nll_mean"] for name in variants])
    caption = sensitivity.calibrator_caption(data, group)
    assert "networks of ce" in caption
    assert "one seed" in caption


def test_one_run_is_spread_over_the_seeds_of_its_calibrator():
    row = {
        "calibrator": "smart",
        "metric": "ece",
        "mean": 0.02,
        "std": np.nan,
        "std_fit": 0.004,
        "n_seeds": 1,
        "n_fits": 5,
    }
    rows = pd.DataFrame([row, {**row, "calibrator": "pts", "std": 0.5, "n_seeds": 3}])
    table = lines.means(rows, ["calibrator"]).set_index("calibrator")
    assert table.loc["smart", "ece_std"] == 0.004
    assert table.loc["pts", "ece_std"] == 0.5
    assert "over 5 seeds of the calibrators" in lines.spread(rows[:1])
    assert "means over 3 seeds" in lines.spread(rows)


def test_many_lines_have_no_bands():
    rows = pd.DataFrame({"nll_mean": [0.2, 0.3], "nll_std": [0.01, 0.02]})
    ax = Figure().subplots()
    lines.line(ax, [1, 2], rows, "nll", {"color": "black"}, lines.BANDS + 1)
    assert len(ax.lines) == 1
    assert len(ax.collections) == 0


def test_labels_of_near_values_are_left_out():
    values = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0])
    assert lines._tick_labels(values, values) == ["0.5", "0.6", "0.7", "0.8", "0.9", "", "1"]
    values = np.array([0.01, 0.05, 0.1, 1.0])
    assert lines._tick_labels(values, np.log(values)) == ["0.01", "0.05", "0.1", "1"]


def test_curves_of_retention_are_means_over_seeds_in_percent(factors):
    data, group = open_study(factors)
    axes = retention.draw(data, group).axes
    tables = histories(data, group, "retention")
    assert set(tables) == {"maccal", "maccal_l09", "maccal_l10"}
    for ax, column in zip(axes, retention.CURVES, strict=True):
        expected = tables["maccal_l10"].groupby("epoch")[column].mean()
        assert ax.lines[0].get_ydata() == pytest.approx(100 * expected.to_numpy())
        assert list(ax.lines[0].get_xdata()) == list(expected.index)
        assert ax.get_ylim()[0] == 0


def test_captions_name_seeds_and_samples(factors, tmp_path):
    write_figures(factors.folder, factors.manifest, tmp_path)
    entries = {entry["id"].removesuffix("_digits_resnet8"): entry for entry in read_index(tmp_path)}
    assert {"sensitivity", "retention"} < set(entries)
    assert "means over 3 seeds" in entries["sensitivity"]["caption"]
    assert "240 images" in entries["sensitivity"]["caption"]
    assert "means over 3 seeds" in entries["retention"]["caption"]
    assert entries["retention"]["category"] == "Training"


def test_other_studies_have_neither(study, external):
    for written in (study, external):
        data, group = open_study(written)
        assert retention.draw(data, group) is None
        assert sensitivity.draw_methods(data, group) is None
        assert sensitivity.draw_calibrators(data, group) is None
