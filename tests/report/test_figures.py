"""Figures exist where there are data, are readable pictures, and have the same bytes every time."""

import dataclasses
import itertools
import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image
from scipy.special import expit
from scipy.stats import spearmanr
from tests.report.conftest import CLEAN, FORMATS, PAIR, THREE

from calgrid.metrics.binning import BinSums
from calgrid.papers.fedlas import figures as fedlas
from calgrid.papers.figures import FIGURES
from calgrid.report.captions import folded
from calgrid.report.figure import FigureData
from calgrid.report.figures import intervals, over_under, pareto, reliability, severity, survey
from calgrid.report.figures.histories import TRAINING, drops
from calgrid.report.index import CATEGORIES, read_index
from calgrid.report.plotting import points, style
from calgrid.report.recipes import best_of_all

KINDS = (
    "nll_intervals",
    "reliability",
    "over_under",
    "ece_intervals",
    "pareto",
    "shift_severity",
    "training",
    "corruption_reduction",
)


def test_every_figure_is_a_picture_of_sane_size_and_there_is_no_other(figures):
    names = {path.name for path in figures.iterdir()}
    suffixes = ("png", "svg", "pdf")
    assert names == {
        "index.json",
        *(f"{kind}_digits_resnet8.{suffix}" for kind in KINDS for suffix in suffixes),
    }
    for path in figures.glob("*.png"):
        with Image.open(path) as picture:
            picture.verify()
            width, height = picture.size
        assert 600 <= width <= 1300
        assert 200 <= height <= 3000
        assert 0.01 < (np.asarray(Image.open(path).convert("L")) < 200).mean() < 0.7, (
            path.name
        )  # not blank


def test_pictures_fit_a_page_or_a_column_of_a_paper_with_readable_text(figures):
    for path in figures.glob("*.pdf"):
        width = float(re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", path.read_bytes()).group(1))
        panels = path.name.startswith(("reliability", "corruption_reduction"))
        assert width <= 72 * (style.WIDTH if panels else style.COLUMN) + 0.1
        words = path.with_suffix(".svg").read_text()
        assert min(map(float, re.findall(r'<text style="font-size: ([\d.]+)px', words))) >= 8


def test_ends_of_cut_intervals_are_arrows(study):
    data, group = study.opened()
    rows = intervals.ECE.collect(data, group).assign(accuracy_ci_low=0.1, accuracy_ci_high=0.99)
    axes = intervals.ECE.draw(FigureData(data, group, rows)).axes
    left, right = ([line for line in axes[2].lines if line.get_marker() == shape] for shape in "<>")
    assert sum(len(line.get_xdata()) for line in left) == len(rows)
    assert {value for line in left for value in line.get_xdata()} == {axes[2].get_xlim()[0]}
    assert sum(len(line.get_xdata()) for line in right) == len(rows) * (axes[2].get_xlim()[1] < 99)
    rows = over_under.collect(data, group).assign(o_ece_ci_low=0.0, o_ece_ci_high=0.99)
    axes = over_under.draw(FigureData(data, group, rows)).axes
    assert len(rows) in {
        len(line.get_xdata()) for line in axes[0].lines if line.get_marker() == ">"
    }


def test_of_many_calibrators_those_of_lowest_nll_are_shown(study, monkeypatch):
    data, group = study.opened()
    known = best_of_all(data, group)
    best = dataclasses.replace(known, best=known.best.replace({"ts": "a", "none": "a"}))
    monkeypatch.setattr("calgrid.report.figures.intervals.best_of_all", lambda *_: best)
    rows = data.test(group)
    bare = rows[rows["calibrator"] == "none"]
    made = {"none": 0.0, "a": 0.3, "b": 0.1, "ts": 0.4, "c": 0.2}
    many = pd.concat(
        [
            bare.assign(calibrator=name, nll_mean=bare["nll_mean"] + more)
            for name, more in made.items()
        ]
    )
    data.calibrators = list(made)
    monkeypatch.setattr(data, "test", lambda group: many)
    shown = intervals.NLL.collect(data, group)
    assert set(shown["calibrator"]) == {"none", "ts", "a", "b"}  # a is of the best recipe
    caption = intervals.NLL.caption(FigureData(data, group, shown))
    assert "with 4 of 5 calibrators" in caption
    assert (
        "Calibrators: none and ts, that of the lowest NLL, and of the others the 1 with" in caption
    )


def test_the_front_holds_what_nothing_cheaper_beats():
    rows = pd.DataFrame(
        {"seconds": [1.0, 2.0, 3.0, 3.0, 4.0], "nll_mean": [0.5, 0.6, 0.4, 0.3, 0.3]}
    )
    assert list(pareto.front(rows).index) == [0, 3]


def test_captions_say_nothing_of_intervals_that_are_not_drawn(make):
    study = make(methods=("ce", "ls"), seeds=(0,), shifts=("contrast",), ood=(), resamples=0)
    data, group = study.opened()
    for content in (intervals.NLL, intervals.ECE, over_under, severity):
        frame = FigureData(data, group, content.collect(data, group))
        said = content.caption(frame)
        for mark in ("Bars: 95", "Black lines", "Bands", "±", "arrow", "interval"):
            assert mark not in said
    for entry in read_index(study.tables("overview", "methods", "calibrators", "shift")):
        shown, _ = folded(entry["caption"])
        assert "±" not in shown
        assert "Brackets" not in entry["caption"]


def test_index_has_title_caption_and_category_of_each(figures):
    entries = read_index(figures)
    assert [entry["file"] for entry in entries] == [f"{kind}_digits_resnet8.png" for kind in KINDS]
    for entry in entries:
        assert entry["category"] in CATEGORIES
        assert "digits, resnet8" in entry["title"]
        assert "3 seeds" in entry["caption"]
        assert entry["caption"].endswith(".")


def test_no_caption_shows_an_ece_without_its_company(figures):
    captions = {
        entry["id"].removesuffix("_digits_resnet8"): entry["caption"]
        for entry in read_index(figures)
    }
    assert "no evidence of miscalibration" in captions["ece_intervals"]
    beside = ("ece_intervals", "over_under", "shift_severity")
    assert all("accuracy" in captions[kind].lower() for kind in beside)
    assert all("NLL" in captions[kind] for kind in ("reliability", "over_under", "shift_severity"))


def test_captions_say_what_the_intervals_are(figures, external_figures):
    assert "95 % t intervals for the mean over seeds" in json.dumps(read_index(figures))
    assert "95 % bootstrap intervals over test images" in json.dumps(read_index(external_figures))


def test_the_same_study_gives_the_same_bytes(build, figures):
    """No date or number of the machine is in any format."""
    drawn = build().figures("nll_intervals", formats=tuple(FORMATS))
    paths = [path for path in drawn.iterdir() if path.suffix != ".json"]
    assert len(paths) == 3
    for path in paths:
        assert path.read_bytes() == (figures / path.name).read_bytes(), path.name


def test_checkpoints_are_drawn_apart_and_training_once(make):
    study = make(checkpoints=("best", "last"), seeds=(0,), **CLEAN, methods=("ce",))
    names = {path.name for path in study.figures("reliability", "training").glob("*.png")}
    assert names == {
        "reliability_digits_resnet8_best.png",
        "reliability_digits_resnet8_last.png",
        "training_digits_resnet8.png",
    }


def test_studies_without_uncalibrated_networks_or_intervals_can_be_drawn(make):
    study = make(**{**PAIR, "shifts": ("contrast",)}, calibrators=("ts",))
    paths = study.figures().glob("*.png")
    found = {path.name.removesuffix("_digits_resnet8.png") for path in paths}
    assert found == set(KINDS) - {"over_under", "corruption_reduction"}


def collected(written, id):
    """Rows of a kind of figure for the first group of a study."""
    (kind,) = (kind for kind in FIGURES if kind.id == id)
    return kind.collect(*written.opened())


def test_bins_of_the_diagram_give_the_ece_of_the_table(study):
    rows = collected(study, "reliability").set_index(["method", "calibrator"])
    for calibrator in ("none", "ts"):
        row = rows.loc["ce", calibrator]
        sums = row["sums"]
        assert sums.count.shape == (3, 15)
        by_seed = np.abs(sums.confidence - sums.correct).sum(axis=1) / sums.count.sum(axis=1)
        assert by_seed.mean() == pytest.approx(row["ece_mean"], abs=1e-6)


def test_only_steps_of_a_constant_rate_are_drops():
    def found(rates):
        return drops(pd.DataFrame({"epoch": range(1, len(rates) + 1), "learning_rate": rates}))

    assert found([0.1, 0.1, 0.01, 0.01, 0.001]) == [3, 5]
    assert found([0.1, 0.01]) == [2]
    assert found([0.1]) == []
    cosine = 0.05 * (1 + np.cos(np.pi * np.arange(20) / 20))
    assert found(list(cosine)) == []
    warmup = [0.02, 0.06, 0.1, 0.1, 0.01]
    assert found(warmup) == [5]


def test_thirty_methods_are_told_apart_and_nine_by_their_colour_alone():
    names = [f"method_{place}" for place in range(30)]
    for look in (style.line, style.marker):
        assert len({(style.colour(names, name), look(names, name)) for name in names}) == 30
    assert len({style.colour(names, name) for name in names[:9]}) == 9


def test_a_method_has_one_colour_in_the_whole_report(study):
    data, group = study.opened()
    expected = {name: style.colour(data.methods, name) for name in data.methods}
    for content in (severity, TRAINING):
        rows = content.collect(data, group)
        rows = rows[rows["method"] != "ce"]  # others are shown without the first
        figure = content.draw(FigureData(data, group, rows))
        found = {line.get_label(): line.get_color() for line in figure.legends[0].get_lines()}
        assert all(found[name] == expected[name] for name in ("ls", "mmce"))


def test_logarithmic_axes_say_so():
    figure = style.new_figure(3, 2)
    first, second = figure.subplots(1, 2)
    first.set(yscale="log", ylabel="NLL (nats)", xlabel="Epoch")
    second.set(xscale="log")
    style.say_scales(figure)
    assert (first.get_ylabel(), first.get_xlabel()) == ("NLL (nats), log scale", "Epoch")
    assert (second.get_ylabel(), second.get_xlabel()) == ("", "log scale")


def test_both_calibration_errors_have_one_scale(study):
    data, group = study.opened()
    rows = intervals.ECE.collect(data, group).assign(ece_mean=0.4, ece_debiased_mean=0.01)
    debiased, plain, _ = intervals.ECE.draw(FigureData(data, group, rows)).axes
    assert (debiased.get_xlim(), debiased.get_xscale()) == (plain.get_xlim(), plain.get_xscale())


def test_bins_of_a_diagram_have_an_interval_over_images():
    figure = style.new_figure(3, 3)
    ax = figure.subplots()
    count = np.array([0.0, 8.0, 400.0])
    sums = BinSums(count, 0.8 * count, np.array([0.0, 8.0, 320.0]))
    reliability.curve(ax, sums)
    bands = [bar for bar in ax.patches if bar.get_alpha() == reliability.BAND["alpha"]]
    ends = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in bands]
    # Wilson: n / (n + z^2) for n of n; the ends of 320 of 400 are those of its formula
    assert ends[0] == pytest.approx((100 * 8 / (8 + 1.959964**2), 100), abs=1e-3)
    assert ends[1] == pytest.approx((75.80, 83.63), abs=0.02)


def test_a_logarithmic_axis_is_for_positive_values_that_span_much():
    assert style.spans(np.array([0.1, 2.0]), 15)
    assert not style.spans(np.array([0.1, 1.0]), 15)
    assert not style.spans(np.array([0.0, 1.0]), 15)


@pytest.mark.parametrize(
    ("first", "last"),
    [(0.11, 0.3), (0.085, 1.2), (0.1, 5.2), (0.09, 8.9), (0.01, 30)],
)
def test_labels_of_a_logarithmic_axis_do_not_overlap(first, last):
    figure = Figure(figsize=(2.2, 1), dpi=style.DPI)
    ax = figure.add_axes((0.1, 0.5, 0.83, 0.4))  # narrow: a panel beside long names of methods
    ax.tick_params(labelsize=style.RC["xtick.labelsize"])
    style.log_axis(ax, "x", first, last)
    figure.draw_without_rendering()
    shown = [tick.label1 for tick in ax.xaxis.get_major_ticks() if first <= tick.get_loc() <= last]
    boxes = [label.get_window_extent() for label in shown]
    assert len(boxes) > 1
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_identifiers_of_figures_are_unique():
    kinds = FIGURES
    assert len({kind.id for kind in kinds}) == len(kinds)
    assert {kind.category for kind in kinds} <= set(CATEGORIES)


FEDLAS = ["fedlas_ls", "fedlas_mbls", "fedlas_ls_const"]


def run_of(study, method, seed):
    """The run of a study in one setting."""
    runs = {(run["key"]["method"], run["key"]["seed"]): run for run in study.manifest["runs"]}
    return runs[method, seed]


def test_histories_are_those_of_the_runs_that_measured_what_is_shown(ablation):
    rows = collected(ablation, "gate")
    assert list(rows["method"].unique()) == FEDLAS
    run = run_of(ablation, "fedlas_mbls", 1)
    history = pd.read_parquet(f"{run['train']}/history.parquet")
    own = rows[(rows["method"] == "fedlas_mbls") & (rows["seed"] == 1)]
    assert list(own["epoch"]) == [1, 2, 3, 4, 5, 6]
    for column in ("positive_share", "flip_rate"):
        assert own[column].to_numpy() == pytest.approx(history[column].to_numpy(), nan_ok=True)
    assert drops(own) == [4, 6]  # the recipe drops the rate at epochs 3 and 5, counted from 0


def test_saturation_is_of_the_last_sampled_epoch_of_methods_whose_indicator_is_the_norm(ablation):
    rows = collected(ablation, "saturation")
    assert list(rows["method"].unique()) == ["fedlas_ls", "fedlas_mbls"]
    runs = [run for run in ablation.manifest["runs"] if run["key"]["method"] == "fedlas_ls"]
    samples = [
        pd.read_parquet(f"{run['train']}/samples.parquet").query("epoch == 4") for run in runs
    ]  # of 0, 2, 4
    own = rows[rows["method"] == "fedlas_ls"]
    assert own["confidence"].to_numpy() == pytest.approx(
        pd.concat(samples)["confidence"].to_numpy()
    )
    each = [spearmanr(table["nci"], table["confidence"])[0] for table in samples]
    found = points.correlation(own, "nci", "confidence")
    assert found == f"{np.mean(each):.2f} ± {np.std(each, ddof=1):.2f}"


def test_strength_and_slope_are_those_that_smoothed_the_samples(ablation):
    rows = fedlas.smoothing_curve_rows(*ablation.opened())
    assert list(rows["method"].unique()) == FEDLAS
    run = run_of(ablation, "fedlas_ls", 1)
    samples = pd.read_parquet(f"{run['train']}/samples.parquet").query("epoch == 4")
    own = rows[(rows["method"] == "fedlas_ls") & (rows["seed"] == 1)]
    strength = 2 * own["strength"] * expit(own["gate"] * own["beta"] * own["nci"])
    assert strength.to_numpy() == pytest.approx(samples["smoothing"].to_numpy(), rel=1e-5)


def test_a_bounded_number_of_points_is_spread_over_all():
    chosen = points.spread_out(pd.DataFrame({"x": range(1000)}), 100)
    assert len(chosen) == 100
    assert (chosen["x"].min(), chosen["x"].max()) == (0, 999)


def test_captions_name_the_methods_that_see_validation_data(figures, ablation_figures):
    said = "adafocal sees validation data during training."
    assert all(said in entry["caption"] for entry in read_index(ablation_figures))
    assert "validation data" not in json.dumps(read_index(figures))


def test_a_survey_shows_each_network_with_every_calibrator(make, monkeypatch):
    written = make(**THREE)
    rows = collected(written, "survey")
    places = itertools.product("abc", ("none", "ts"))
    assert set(zip(rows["backbone"], rows["calibrator"], strict=True)) == {*places}
    assert (written.figures("survey") / "survey_digits.png").is_file()
    monkeypatch.setattr(survey, "FEWEST", 4)
    assert collected(written, "survey").empty


def test_names_of_networks_keep_clear_of_each_other():
    figure = style.new_figure(3.5, 2.5)
    ax = figure.subplots()
    places = {"lite0": (72, 7.9), "lite1": (74.3, 7.3), "lite2": (74.0, 7.2)}
    rows = pd.DataFrame([{"backbone": name, "x": x, "y": y} for name, (x, y) in places.items()])
    ax.set_xlim(70, 76)
    ax.set_ylim(0, 10)
    ax.plot(rows["x"], rows["y"], "o")
    survey.name_networks(ax, rows)
    boxes = [text.get_window_extent() for text in ax.texts]
    assert [text.get_text() for text in ax.texts] == list(places)
    for number, box in enumerate(boxes):
        assert box.count_overlaps(boxes[:number]) == 0
        assert box.count_contains(ax.transData.transform(rows[["x", "y"]])) == 0
        assert ax.bbox.count_overlaps([box]) == 1


def test_training_curves_have_a_panel_for_each_measured_part_and_no_empty_one(study):
    data, group = study.opened()
    rows = TRAINING.collect(data, group)
    parts = rows["val_refinement"] + rows["val_calibration"]
    assert np.isfinite(parts).all()
    for left_out in ([], ["val_refinement", "val_calibration"]):
        frame = FigureData(data, group, rows.drop(columns=left_out))
        labels = [ax.get_ylabel() for ax in TRAINING.draw(frame).axes]
        assert len(labels) == len(TRAINING.curves) - len(left_out)
        assert ("its refinement (nats)" in labels) == (not left_out)


@pytest.mark.parametrize(
    "command",
    [
        "assets/picture.py",
        "cifar10/figure.py",
        "gpu/figure.py",
        "photographs/figure.py",
        "published_networks/figure.py",
    ],
)
def test_pictures_of_the_documents_are_what_their_commands_draw(command, tmp_path, monkeypatch):
    script = Path(__file__).parents[2] / "docs" / command
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    drawn = list(tmp_path.iterdir())
    assert drawn
    for path in drawn:
        with Image.open(path) as new, Image.open(script.parent / path.name) as kept:
            assert np.array_equal(np.asarray(new), np.asarray(kept))
