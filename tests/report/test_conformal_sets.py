"""Table and figure of conformal sets: means over corruptions and seeds, where there are sets."""

import itertools

import pandas as pd
import pytest
from tests.report.conftest import CLEAN

from calgrid.metrics.conformal import SET_METRICS
from calgrid.report.figures import conformal as figure
from calgrid.report.tables.conformal import conformal, set_means
from calgrid.storage.schema import CONFORMAL
from calgrid.storage.tables import write_frame


@pytest.fixture
def written(build):
    """A study of one method and two seeds, with numbers that tell where they come from."""
    study = build(methods=("ce",), seeds=(0, 1), **CLEAN)
    rows = []
    places = [("test", "", 0), ("shift", "noise", 5), ("shift", "blur", 5)]
    for seed, name, score, alpha, place in itertools.product(
        (0, 1), ("none", "ts"), ("thr", "aps"), (0.1, 0.05), places
    ):
        split, shift, severity = place
        row = {**study.manifest["runs"][seed]["key"], "calibrator": name, "split": split}
        row |= {"shift": shift, "severity": severity, "conformal": score, "alpha": alpha}
        row["value"] = 0.8 + 0.1 * seed + (shift == "noise") * 0.04 + (name == "ts") * 0.01
        rows += [{**row, "metric": metric} for metric in SET_METRICS]
    same = {"checkpoint": "last", "fit_seed": 0, "ci_low": 0.0, "ci_high": 1.0, "n_samples": 240}
    same |= {"n_threshold": 100, "threshold": 0.5, "penalty": 0.0}
    write_frame(study.folder / CONFORMAL, pd.DataFrame(rows).assign(**same))
    return study


def test_corruptions_are_averaged_for_each_run_and_runs_over_seeds(written):
    data, group = written.opened()
    means = set_means(data, group).set_index(["severity", "alpha", "calibrator", "conformal"])
    assert means.loc[(0, 0.1, "none", "thr"), "coverage_mean"] == pytest.approx(0.85)
    assert means.loc[(5, 0.1, "ts", "aps"), "coverage_mean"] == pytest.approx(0.88)
    assert means.loc[(0, 0.1, "none", "thr"), "coverage_std"] == pytest.approx(0.1 / 2**0.5)
    table = conformal(data)
    assert len(table.frame) == len(means) == 16
    sections = written.shown("conformal")
    assert list(sections) == [
        "digits, resnet8: 90 % asked for, clean test",
        "digits, resnet8: 95 % asked for, clean test",
        "digits, resnet8: 90 % asked for, severity 5",
        "digits, resnet8: 95 % asked for, severity 5",
    ]
    first = sections["digits, resnet8: 90 % asked for, clean test"][0]
    assert (first["Calibrator"], first["Score"]) == ("none", "thr")
    assert first["Coverage %"] == "85.0 ± 7.1"
    # the standard deviation of Beta(91, 10), rounded
    assert "100 validation images (standard deviation up to 3.0 points)" in table.caption


def test_the_figure_has_a_panel_for_each_coverage_and_for_clean_and_shifted_images(written):
    data, group = written.opened()
    rows = figure.collect(data, group)
    drawn = figure.draw(figure.FigureData(data, group, rows))
    assert len(drawn.axes) == 4
    for ax in drawn.axes:
        points = [line for line in ax.lines if line.get_linestyle() == "None"]
        assert len(points) == 4
    assert drawn.axes[0].get_title() == "clean test split"


def test_a_study_without_sets_has_neither(make):
    data, group = make(methods=("ce",), seeds=(0,), **CLEAN).opened()
    assert conformal(data) is None
    assert figure.collect(data, group).empty
