"""Figures of SMART: validation rows, course of the fit, temperature and reliability by margin."""

import numpy as np
import pytest

from calgrid.calibrators import build_calibrator
from calgrid.metrics import ece, nll
from calgrid.papers.smart import errors, fits
from calgrid.papers.smart.fits import diagnosed
from calgrid.report.index import read_index
from calgrid.report.selections import on_most_rows, val_rows
from calgrid.report.study import StudyData
from calgrid.storage.logits import read_logits
from calgrid.storage.records import RunKey
from calgrid.storage.schema import MARGINS


@pytest.fixture(scope="module")
def data(sizes):
    return StudyData(sizes.folder, sizes.manifest)


@pytest.fixture(scope="module")
def largest(data):
    (group,) = (group for group in data.groups if group.dataset == "digits_n200")
    return group


@pytest.fixture(scope="module")
def entries(sizes):
    margins = ("fit_course", "margin_temperature", "margin_reliability")
    return {entry["id"]: entry for entry in read_index(sizes.figures("val_size", *margins))}


def logits_of(sizes, split, seed=1):
    (run,) = (
        run
        for run in sizes.manifest["runs"]
        if run["key"]["seed"] == seed and run["key"]["dataset"] == "digits_n200"
    )
    return read_logits(f"{run['predict']}/logits/last/{split}.parquet")


# validation rows
# --------------------------------------------------------------------------------------------------


def test_number_of_rows_is_read_from_names_of_external_data_sets_only(data, study):
    assert {val_rows(data, group) for group in data.groups} == {("digits", 40), ("digits", 200)}
    other = StudyData(study.folder, study.manifest)
    assert val_rows(other, other.groups[0]._replace(dataset="digits")) == ("digits", np.inf)
    trained = other.groups[0]._replace(dataset="digits_n40")
    key = RunKey(*trained[:3], method="ce", seed=1)._asdict()
    runs = [{"key": key, "external": False}]
    other = StudyData(study.folder, {**study.manifest, "runs": runs})
    assert val_rows(other, trained) == ("digits_n40", np.inf)


def test_the_largest_of_nested_sets_stands_for_all(data, largest):
    assert [group for group in data.groups if on_most_rows(data, group)] == [largest]


def test_points_against_rows_are_those_of_the_summary(data):
    rows = errors.val_size_rows(data, data.groups[0])
    assert list(rows["val_rows"].unique()) == [40, 200]
    for group, count in zip(data.groups, (40, 200), strict=True):
        expected = data.test(group).set_index("calibrator")
        own = rows[(rows["val_rows"] == count) & (rows["metric"] == "ece")].set_index("calibrator")[
            "mean"
        ]
        assert dict(own) == pytest.approx(dict(expected["ece_mean"]))


def test_caption_of_sizes_names_seeds_and_images(entries):
    caption = entries["val_size"]["caption"]
    assert "one network each" in caption
    assert "240 images" in caption
    assert entries["val_size"]["title"] == "Validation rows"


def test_one_number_of_rows_is_no_study_of_it(data):
    one = StudyData(data.folder, data.manifest)
    one.groups = data.groups[:1]
    assert errors.val_size_rows(one, one.groups[0]).empty


# margins
# --------------------------------------------------------------------------------------------------


def test_margin_figures_are_drawn_once_for_nested_sets(entries):
    for kind in ("fit_course", "margin_temperature", "margin_reliability"):
        assert [id for id in entries if id.startswith(kind)] == [f"{kind}_digits_n200_resnet8"]
        assert "seed 1 alone" in entries[f"{kind}_digits_n200_resnet8"]["caption"]
    assert "200 validation images" in entries["fit_course_digits_n200_resnet8"]["caption"]
    assert "240 images" in entries["margin_temperature_digits_n200_resnet8"]["caption"]
    assert "240 images" in entries["margin_reliability_digits_n200_resnet8"]["caption"]


def test_confidences_score_as_in_the_study(data, largest):
    images = diagnosed(data, largest, MARGINS).query("split == 'test'")
    rows = data.rows("metrics.parquet").query("dataset == 'digits_n200' and split == 'test'")
    for name in ("none", "ts", "pts", "smart"):
        expected = rows.query("calibrator == @name and metric == 'accuracy' and seed == 1")["value"]
        assert images["correct"].mean() == pytest.approx(expected.item())
        confidence = images[f"confidence_{name}"]
        gaps = (confidence - images["correct"]).groupby(np.ceil(15 * confidence)).sum()
        expected = rows.query("calibrator == @name and metric == 'ece' and seed == 1")["value"]
        assert gaps.abs().sum() / len(images) == pytest.approx(expected.item(), abs=1e-9)


def test_course_is_the_trace_and_ends_at_the_weights_that_are_kept(data, largest, sizes):
    val = logits_of(sizes, "val")
    rows = fits.fit_course_rows(data, largest)
    history = build_calibrator("smart", seed=0, trace=True).fit(val.logits, val.label).fit_history
    path = rows[(rows["calibrator"] == "smart") & ~rows["kept"]]
    for column in ("epoch", "ece", "nll"):
        assert list(path[column]) == pytest.approx(history[f"trace_{column}"])
    for name in ("none", "ts", "smart"):
        seed = {"seed": 0} if name == "smart" else {}
        probs = build_calibrator(name, **seed).fit(val.logits, val.label).predict_proba(val.logits)
        kept = rows[(rows["calibrator"] == name) & rows["kept"]].iloc[0]
        assert (kept["ece"], kept["nll"]) == pytest.approx(
            (ece(probs, val.label), nll(probs, val.label))
        )


def test_one_objective_is_no_comparison(data):
    assert all(fits.fit_objectives_rows(data, group).empty for group in data.groups)


def test_curve_is_the_temperature_that_divides_the_logits(data, largest, sizes):
    val, test = (logits_of(sizes, split) for split in ("val", "test"))
    rows = fits.margin_temperature_rows(data, largest)
    found = rows[rows["split"] == "test"]
    ordered = np.sort(test.logits.astype(float), axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    assert found["margin"].to_numpy() == pytest.approx(margin)
    assert (rows["split"] == "val").sum() == len(val)
    # log p of the two largest classes differ by margin / T
    smart = build_calibrator("smart", seed=0).fit(val.logits, val.label)
    logs = np.sort(np.log(smart.predict_proba(test.logits)), axis=1)
    assert found["temperature"].to_numpy() == pytest.approx(
        margin / (logs[:, -1] - logs[:, -2]), rel=1e-6
    )
    single = build_calibrator("ts").fit(val.logits, val.label).fit_history["temperature"]
    assert rows["single"].iloc[0] == pytest.approx(single)


def test_groups_by_margin_are_quarters_of_the_images(data, largest, sizes):
    val, test = (logits_of(sizes, split) for split in ("val", "test"))
    rows = fits.margin_reliability_rows(data, largest)
    assert list(rows["calibrator"].unique()) == ["none", "ts", "pts", "smart"]
    ordered = np.sort(test.logits.astype(float), axis=1)
    quarters = np.argsort(ordered[:, -1] - ordered[:, -2]).reshape(4, 60)
    for name, own in rows.groupby("calibrator"):
        seed = {"seed": 0} if name in ("pts", "smart") else {}
        probs = build_calibrator(name, **seed).fit(val.logits, val.label).predict_proba(test.logits)
        whole, bins = own[own["bin"] < 0], own[own["bin"] >= 0]
        for column, values in (
            ("confidence", probs.max(axis=1)),
            ("correct", probs.argmax(axis=1) == test.label),
        ):
            assert list(whole[column]) == pytest.approx(
                [values[images].sum() for images in quarters]
            )
            assert list(bins.groupby("quarter")[column].sum()) == pytest.approx(list(whole[column]))
        assert set(bins["count"]) == {10}
