"""Figures exist where there are data, are readable pictures, and have the same bytes every time."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.stats import spearmanr

from calgrid.reporting.figures import FIGURES, _epochs, _style, gate, over_under, reliability, saturation, write_figures
from calgrid.reporting.histories import histories
from calgrid.reporting.index import CATEGORIES, read_index
from calgrid.reporting.study import StudyData

KINDS = (
    "nll_intervals",
    "reliability",
    "over_under",
    "ece_intervals",
    "accuracy_ece",
    "shift_severity",
    "corruption_reduction",
    "training",
)


def test_every_figure_is_a_picture_of_sane_size(figures):
    names = {path.name for path in figures.iterdir()}
    assert names == {"index.json", *(f"{kind}_digits_resnet8.png" for kind in KINDS)}
    for path in figures.glob("*.png"):
        with Image.open(path) as picture:
            picture.verify()
            width, height = picture.size
        assert 600 <= width <= 1300
        assert 200 <= height <= 3000


def test_no_figure_is_blank(figures):
    for path in figures.glob("*.png"):
        pixels = np.asarray(Image.open(path).convert("L"))
        assert 0.01 < (pixels < 200).mean() < 0.7, path.name


def test_index_has_title_caption_and_category_of_each(figures):
    entries = read_index(figures)
    assert [entry["file"] for entry in entries] == [f"{kind}_digits_resnet8.png" for kind in KINDS]
    for entry in entries:
        assert entry["category"] in CATEGORIES
        assert "digits, resnet8" in entry["title"]
        assert "3 seeds" in entry["caption"]
        assert entry["caption"].endswith(".")


def test_no_caption_shows_an_ece_without_its_company(figures):
    captions = {entry["id"].removesuffix("_digits_resnet8"): entry["caption"] for entry in read_index(figures)}
    assert "no evidence of miscalibration" in captions["ece_intervals"]
    beside = ("ece_intervals", "over_under", "accuracy_ece", "shift_severity")
    assert all("accuracy" in captions[kind].lower() for kind in beside)
    assert all("NLL" in captions[kind] for kind in ("accuracy_ece", "reliability", "over_under", "shift_severity"))


def test_captions_say_what_the_intervals_are(figures, external_figures):
    assert "95 % t intervals for the mean over seeds" in json.dumps(read_index(figures))
    assert "95 % bootstrap intervals over test images" in json.dumps(read_index(external_figures))


def test_the_same_study_gives_the_same_bytes(study, figures, tmp_path):
    write_figures(study.folder, study.manifest, tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (figures / path.name).read_bytes(), path.name


def test_external_runs_have_no_training_and_no_shift(external_figures):
    found = {path.name.removesuffix("_digits_resnet8.png") for path in external_figures.glob("*.png")}
    assert found == {"nll_intervals", "reliability", "over_under", "ece_intervals", "accuracy_ece"}


def test_checkpoints_are_drawn_apart_and_training_once(build, tmp_path):
    study = build(checkpoints=("best", "last"), seeds=(0,), shifts=(), ood=(), methods=("ce",))
    write_figures(study.folder, study.manifest, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert {"reliability_digits_resnet8_best.png", "reliability_digits_resnet8_last.png"} < names
    assert [name for name in names if name.startswith("training")] == ["training_digits_resnet8.png"]


def test_studies_without_uncalibrated_networks_or_intervals_can_be_drawn(build, tmp_path):
    study = build(calibrators=("ts",), seeds=(0,), ood=(), resamples=0)
    write_figures(study.folder, study.manifest, tmp_path / "out")
    found = {path.name.removesuffix("_digits_resnet8.png") for path in (tmp_path / "out").glob("*.png")}
    assert found == set(KINDS) - {"reliability", "over_under", "corruption_reduction"}


def test_bins_of_the_diagram_give_the_ece_of_the_table(study):
    data = StudyData(study.folder, study.manifest)
    (group,) = data.groups
    runs = [run for run in data.runs(group) if run["key"]["method"] == "ce"]
    sums = reliability._bins(runs, group, data.bins)
    assert sums.count.shape == (3, 15)
    by_seed = np.abs(sums.confidence - sums.correct).sum(axis=1) / sums.count.sum(axis=1)
    table = data.test(group, ["none"]).set_index("method")
    assert by_seed.mean() == pytest.approx(table.loc["ce", "ece_mean"], abs=1e-6)


def test_only_steps_of_a_constant_rate_are_drops():
    def drops(rates):
        return list(_epochs.drops(pd.DataFrame({"epoch": range(1, len(rates) + 1), "learning_rate": rates})))

    assert drops([0.1, 0.1, 0.01, 0.01, 0.001]) == [3, 5]
    assert drops([0.1, 0.01]) == [2]
    assert drops([0.1]) == []
    cosine = 0.05 * (1 + np.cos(np.pi * np.arange(20) / 20))
    assert drops(list(cosine)) == []
    warmup = [0.02, 0.06, 0.1, 0.1, 0.01]
    assert drops(warmup) == [5]


def test_sixteen_methods_are_told_apart():
    names = [f"method_{place}" for place in range(16)]
    looks = {(style.colour(names, name), style.line(names, name)) for name in names}
    assert len(looks) == 16


def test_a_logarithmic_axis_is_for_positive_values_that_span_much():
    assert style.spans(np.array([0.1, 2.0]), 15)
    assert not style.spans(np.array([0.1, 1.0]), 15)
    assert not style.spans(np.array([0.0, 1.0]), 15)


def test_identifiers_of_figures_are_unique():
    assert len({kind.id for kind in FIGURES}) == len(FIGURES)
    assert {kind.category for kind in FIGURES} <= set(CATEGORIES)


def drawn(written, kind):
    data = StudyData(written.folder, written.manifest)
    return kind.draw(data, data.groups[0])


def test_bars_are_the_two_parts_of_the_ece_with_its_null(ablation):
    data = StudyData(ablation.folder, ablation.manifest)
    rows = data.test(data.groups[0], ["none"])
    (ax,) = drawn(ablation, over_under).axes
    over, under = ([bar.get_width() for bar in bars] for bars in ax.containers)
    assert over == pytest.approx(list(100 * rows["o_ece_mean"]))
    assert under == pytest.approx(list(100 * rows["u_ece_mean"]))
    assert np.add(over, under) == pytest.approx(list(100 * rows["ece_mean"]))
    assert [label.get_text() for label in ax.get_yticklabels()] == list(rows["method"])
    (ticks,) = ax.lines
    assert ticks.get_xdata() == pytest.approx(list(100 * rows["ece_null_mean"]))


def test_fedlas_figures_are_drawn_where_there_are_fedlas_runs(ablation_figures):
    entries = {entry["id"].removesuffix("_digits_resnet8"): entry for entry in read_index(ablation_figures)}
    assert {"gate", "saturation"} < set(entries)
    for kind in ("gate", "saturation"):
        assert entries[kind]["category"] == "Training"
        assert "4 seeds" in entries[kind]["caption"]
        with Image.open(ablation_figures / entries[kind]["file"]) as picture:
            assert 0.01 < (np.asarray(picture.convert("L")) < 200).mean() < 0.7


def test_fedlas_figures_have_the_same_bytes_every_time(ablation, ablation_figures, tmp_path):
    write_figures(ablation.folder, ablation.manifest, tmp_path)
    for path in (*tmp_path.glob("gate*"), *tmp_path.glob("saturation*"), *tmp_path.glob("over_under*")):
        assert path.read_bytes() == (ablation_figures / path.name).read_bytes(), path.name


def test_gate_curves_are_means_over_seeds_with_the_drops_marked(ablation):
    data = StudyData(ablation.folder, ablation.manifest)
    shares, flips = drawn(ablation, gate).axes
    tables = histories(data, data.groups[0], "positive_share")
    assert list(tables) == ["fedlas_ls", "fedlas_mbls", "fedlas_ls_const", "fedlas_ls_random"]
    expected = tables["fedlas_mbls"].groupby("epoch")["positive_share"].mean()
    assert shares.lines[1].get_ydata() == pytest.approx(100 * expected.to_numpy())
    assert np.isnan(flips.lines[1].get_ydata()[0])
    marks = [line.get_xdata()[0] for line in shares.lines if len(line.get_xdata()) == 2]
    assert marks == [4, 6]  # the recipe drops the rate at epochs 3 and 5, counted from 0


def test_saturation_has_a_panel_for_each_method_whose_indicator_is_the_norm(ablation):
    figure = drawn(ablation, saturation)
    assert [ax.get_title().split("\n")[0] for ax in figure.axes] == ["fedlas_ls", "fedlas_mbls"]


def test_saturation_shows_the_last_sampled_epoch_and_its_rank_correlation(ablation):
    data = StudyData(ablation.folder, ablation.manifest)
    runs = [run for run in data.runs(data.groups[0]) if run["key"]["method"] == "fedlas_ls"]
    samples = [pd.read_parquet(f"{run['run']}/samples.parquet") for run in runs]
    last = [table[table["epoch"] == 4] for table in samples]  # of 0, 2, 4
    each = [spearmanr(table["nci"], table["confidence"])[0] for table in last]
    ax, _ = drawn(ablation, saturation).axes
    assert ax.get_title().split("\n")[1] == f"ρ = {np.mean(each):.2f} ± {np.std(each, ddof=1):.2f}"
    right, wrong = (part.get_offsets().data for part in ax.collections)
    everything = pd.concat(last)
    assert len(right) == everything["correct"].sum()
    assert len(right) + len(wrong) == len(everything) == 4 * 150
    assert sorted(right[:, 1]) == pytest.approx(sorted(100 * everything.loc[everything["correct"] == 1, "confidence"]))


def test_saturation_draws_a_bounded_number_of_points_spread_over_all(ablation, monkeypatch):
    monkeypatch.setattr(saturation, "POINTS", 100)
    ax, _ = drawn(ablation, saturation).axes
    assert sum(len(part.get_offsets()) for part in ax.collections) == 100


def test_captions_name_the_methods_that_see_validation_data(figures, ablation_figures):
    said = "adafocal sees validation data during training."
    assert all(said in entry["caption"] for entry in read_index(ablation_figures))
    assert "validation data" not in json.dumps(read_index(figures))
