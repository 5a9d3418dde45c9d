"""Figures exist where there are data, are readable pictures, and have the same bytes every time."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from calgrid.reporting.figures import FIGURES, _style, reliability, training, write_figures
from calgrid.reporting.index import CATEGORIES, read_index
from calgrid.reporting.study import StudyData

KINDS = ("nll_intervals", "reliability", "ece_intervals", "accuracy_ece", "shift_severity", "training")


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
    assert all("accuracy" in captions[kind].lower() for kind in ("ece_intervals", "accuracy_ece", "shift_severity"))
    assert all("NLL" in captions[kind] for kind in ("accuracy_ece", "reliability", "shift_severity"))


def test_captions_say_what_the_intervals_are(figures, external_figures):
    assert "95 % t intervals for the mean over seeds" in json.dumps(read_index(figures))
    assert "95 % bootstrap intervals over test images" in json.dumps(read_index(external_figures))


def test_the_same_study_gives_the_same_bytes(study, figures, tmp_path):
    write_figures(study.folder, study.manifest, tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (figures / path.name).read_bytes(), path.name


def test_external_runs_have_no_training_and_no_shift(external_figures):
    found = {path.name.removesuffix("_digits_resnet8.png") for path in external_figures.glob("*.png")}
    assert found == {"nll_intervals", "reliability", "ece_intervals", "accuracy_ece"}


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
    assert found == set(KINDS) - {"reliability"}


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
        return list(training._drops(pd.DataFrame({"epoch": range(1, len(rates) + 1), "learning_rate": rates})))

    assert drops([0.1, 0.1, 0.01, 0.01, 0.001]) == [3, 5]
    assert drops([0.1, 0.01]) == [2]
    assert drops([0.1]) == []
    cosine = 0.05 * (1 + np.cos(np.pi * np.arange(20) / 20))
    assert drops(list(cosine)) == []
    warmup = [0.02, 0.06, 0.1, 0.1, 0.01]
    assert drops(warmup) == [5]


def test_sixteen_methods_are_told_apart():
    names = [f"method_{place}" for place in range(16)]
    looks = {(_style.colour(names, name), _style.line(names, name)) for name in names}
    assert len(looks) == 16


def test_a_logarithmic_axis_is_for_positive_values_that_span_much():
    assert _style.spans(np.array([0.1, 2.0]), 15)
    assert not _style.spans(np.array([0.1, 1.0]), 15)
    assert not _style.spans(np.array([0.0, 1.0]), 15)


def test_identifiers_of_figures_are_unique():
    assert len({kind.id for kind in FIGURES}) == len(FIGURES)
    assert {kind.category for kind in FIGURES} <= set(CATEGORIES)
