"""Figures of SMART's paper: validation rows, course of the fit, temperature and reliability by margin."""

import numpy as np
import pytest

from calgrid.calibrators import build_calibrator
from calgrid.metrics import ece, nll
from calgrid.reporting.figures import (
    _fits,
    fit_course,
    margin_reliability,
    margin_temperature,
    val_size,
    write_figures,
)
from calgrid.reporting.index import read_index
from calgrid.reporting.settings import on_most_rows, val_rows
from calgrid.reporting.study import StudyData
from calgrid.storage.logits import read_logits

MARGIN_FIGURES = (fit_course, margin_temperature, margin_reliability)


@pytest.fixture(scope="module")
def data(sizes):
    return StudyData(sizes.folder, sizes.manifest)


@pytest.fixture(scope="module")
def largest(data):
    (group,) = (group for group in data.groups if group.dataset == "digits_n200")
    return group


@pytest.fixture(scope="module")
def entries(sizes, tmp_path_factory):
    out = tmp_path_factory.mktemp("figures")
    write_figures(sizes.folder, sizes.manifest, out)
    return {entry["id"]: entry for entry in read_index(out)}


def logits_of(sizes, split, seed=1):
    (run,) = (
        run for run in sizes.manifest["runs"] if run["key"]["seed"] == seed and run["key"]["dataset"] == "digits_n200"
    )
    return read_logits(f"{run['run']}/logits/last/{split}.parquet")


# validation rows --------------------------------------------------------------------------------------------------


def test_number_of_rows_is_read_from_names_of_external_data_sets_only(data, study):
    assert {val_rows(data, group) for group in data.groups} == {("digits", 40), ("digits", 200)}
    other = StudyData(study.folder, study.manifest)
    assert val_rows(other, other.groups[0]._replace(dataset="digits")) == ("digits", np.inf)
    trained = other.groups[0]._replace(dataset="digits_n40")
    other.manifest = {**other.manifest, "runs": [{"key": trained._asdict() | {"seed": 1}, "external": False}]}
    assert val_rows(other, trained) == ("digits_n40", np.inf)


def test_the_largest_of_nested_sets_stands_for_all(data, largest):
    assert [group for group in data.groups if on_most_rows(data, group)] == [largest]


def test_lines_against_rows_are_the_means_of_each_size(data):
    figure = val_size.draw(data, data.groups[0])
    small, large = (data.test(group).set_index("calibrator") for group in data.groups)
    for ax, metric, factor in zip(figure.axes, ("ece", "nll"), (100, 1), strict=True):
        lines = [line for line in ax.lines if line.get_linestyle() != "None"]
        for line, band, name in zip(lines, ax.collections, data.calibrators, strict=True):
            assert list(line.get_xdata()) == [40, 200]
            mean, std = (
                [factor * part.loc[name, f"{metric}_{each}"] for part in (small, large)] for each in ("mean", "std")
            )
            assert line.get_ydata() == pytest.approx(mean)
            assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(np.add(mean, std).max())
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["40", "200"]


def test_caption_of_sizes_names_seeds_and_images(entries):
    caption = entries["val_size"]["caption"]
    assert "means over 2 seeds" in caption
    assert "240 images" in caption
    assert entries["val_size"]["title"] == "Validation rows"


def test_one_number_of_rows_is_no_study_of_it(build, study):
    one = build(methods=("ce",), datasets=("digits_n40",), seeds=(1,), shifts=(), ood=(), resamples=0, external=True)
    for written in (one, study):
        data = StudyData(written.folder, written.manifest)
        assert val_size.draw(data, data.groups[0]) is None


# margins ----------------------------------------------------------------------------------------------------------


def test_margin_figures_are_drawn_once_for_nested_sets(entries):
    for kind in ("fit_course", "margin_temperature", "margin_reliability"):
        assert [id for id in entries if id.startswith(kind)] == [f"{kind}_digits_n200_resnet8"]
        assert "seed 1 alone" in entries[f"{kind}_digits_n200_resnet8"]["caption"]
    assert "200 validation images" in entries["fit_course_digits_n200_resnet8"]["caption"]
    assert "240 images" in entries["margin_temperature_digits_n200_resnet8"]["caption"]
    assert "240 images" in entries["margin_reliability_digits_n200_resnet8"]["caption"]


def test_calibrators_are_fitted_once_and_score_as_in_the_study(data, largest):
    fits = _fits.fits(data, largest)
    assert _fits.fits(data, largest) is fits
    assert list(fits.calibrators) == ["ts", "pts", "smart"]
    test = fits.logits("test")
    rows = data.metrics
    rows = rows[(rows["dataset"] == "digits_n200") & (rows["seed"] == 1) & (rows["split"] == "test")]
    for name, calibrator in fits.calibrators.items():
        expected = rows[(rows["calibrator"] == name) & (rows["metric"] == "nll")]["value"].item()
        assert nll(calibrator.predict_proba(test.logits), test.label) == pytest.approx(expected, abs=1e-9)


def test_course_is_the_trace_and_ends_at_the_weights_that_are_kept(data, largest, sizes):
    val = logits_of(sizes, "val")
    (ax,) = fit_course.draw(data, largest).axes
    ts, *pts, path, start, end = ax.lines
    assert len(pts) == 3
    history = build_calibrator("smart", seed=0, trace=True).fit(val.logits, val.label).fit_history
    assert path.get_xdata() == pytest.approx(100 * np.array(history["trace_ece"]))
    assert path.get_ydata() == pytest.approx(history["trace_nll"])
    assert start.get_ydata()[0] == history["trace_nll"][0]
    kept = build_calibrator("smart", seed=0).fit(val.logits, val.label).predict_proba(val.logits)
    assert (end.get_xdata()[0], end.get_ydata()[0]) == pytest.approx((100 * ece(kept, val.label), nll(kept, val.label)))
    single = build_calibrator("ts").fit(val.logits, val.label).predict_proba(val.logits)
    assert ts.get_ydata()[0] == pytest.approx(nll(single, val.label))


def test_curve_is_the_temperature_that_divides_the_logits(data, largest, sizes):
    test = logits_of(sizes, "test")
    upper, lower = margin_temperature.draw(data, largest).axes
    curve, single = upper.lines
    ordered = np.sort(test.logits.astype(float), axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    assert curve.get_xdata() == pytest.approx(np.sort(margin))
    # log p of the two largest classes differ by margin / T
    smart = _fits.fits(data, largest).calibrators["smart"]
    logs = np.sort(np.log(smart.predict_proba(test.logits)), axis=1)
    temperature = margin / (logs[:, -1] - logs[:, -2])
    assert curve.get_ydata() == pytest.approx(temperature[np.argsort(margin)], rel=1e-6)
    val = logits_of(sizes, "val")
    assert single.get_ydata()[0] == build_calibrator("ts").fit(val.logits, val.label).fit_history["temperature"]
    assert sum(bar.get_height() for bar in lower.patches) == pytest.approx(100)


def test_bars_are_confidence_minus_accuracy_of_quarters_by_margin(data, largest, sizes):
    test = logits_of(sizes, "test")
    figure = margin_reliability.draw(data, largest)
    assert [ax.get_title() for ax in figure.axes[:4]] == ["uncalibrated", "ts", "pts", "smart"]
    ordered = np.sort(test.logits.astype(float), axis=1)
    quarters = np.argsort(ordered[:, -1] - ordered[:, -2]).reshape(4, 60)
    for column, name in enumerate(("none", "ts", "pts", "smart")):
        val = logits_of(sizes, "val")
        seed = {"seed": 0} if name in ("pts", "smart") else {}
        probs = build_calibrator(name, **seed).fit(val.logits, val.label).predict_proba(test.logits)
        gap = probs.max(axis=1) - (probs.argmax(axis=1) == test.label)
        bars = [bar.get_height() for bar in figure.axes[4 + column].patches]
        assert bars == pytest.approx([100 * gap[rows].mean() for rows in quarters])
        points = [line for line in figure.axes[column].lines if line.get_marker() == "o"]
        # bins are of equal numbers: their mean is that of the group
        confidence = [100 * probs.max(axis=1)[rows].mean() for rows in quarters]
        assert [line.get_xdata().mean() for line in points] == pytest.approx(confidence)


def test_interval_of_a_share_of_one_has_a_length():
    low, high = margin_reliability._wilson(1.0, 100)
    assert (low, high) == pytest.approx((0.963, 1.0), abs=1e-3)
    assert margin_reliability._wilson(0.5, 10_000) == pytest.approx([0.4902, 0.5098], abs=1e-4)


def test_without_smart_there_are_no_margins(study):
    data = StudyData(study.folder, study.manifest)
    assert [kind.draw(data, data.groups[0]) for kind in MARGIN_FIGURES] == [None] * 3
