"""The board has the numbers of the Parquet files and images of bins, and needs no other file."""

import base64
import io
import json
import math
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tests.conftest import is_one_sentence
from tests.metrics.cases import softmax

import calgrid
from calgrid.calibrators import build_calibrator
from calgrid.cli import main
from calgrid.components.metrics import find_metric
from calgrid.components.registry import load
from calgrid.reporting import board
from calgrid.reporting.bin_images import MOST_IMAGES, NO_FIT, listed_images, pictures
from calgrid.reporting.board import NO_LOGITS, board_data, write_board
from calgrid.storage.logits import read_logits

FACTORS = {"fraction": 100, "square": 100}
#: begin of what the board says about a verdict
SAID = {"tie": "no difference found; one of "}


@pytest.fixture(scope="module")
def results(study):
    return calgrid.load_study(study.folder)


@pytest.fixture(scope="module")
def content(results):
    return board_data(results)[0]


@pytest.fixture
def run(results):
    """One run, and its rows of ``bins.parquet`` by calibrator."""
    bins = pd.read_parquet(results.folder / "bins.parquet").query("n_bins == 15")
    mine = bins.query("method == 'ls' and seed == 1").sort_values("bin")
    return results.run("ls", 1), dict(iter(mine.groupby("calibrator", observed=True)))


def test_values_are_those_of_the_summaries(content, results):
    """Every row of the files, in shown units, in its own cell; no other cell has a value."""
    summary = pd.read_parquet(results.folder / "summary.parquet").query("split != 'val'")
    rows = pd.concat([summary, pd.read_parquet(results.folder / "shift_summary.parquet")])
    group = content["groups"]["digits_resnet8"]
    methods, calibrators = list(group["methods"]), group["calibrators"]
    for row in rows.itertuples():
        cells = content["values"][f"digits_resnet8/{row.shift}"][str(row.severity)][row.metric]
        cell = cells[
            methods.index(row.method) * len(calibrators) + calibrators.index(row.calibrator)
        ]
        factor = FACTORS.get(find_metric(row.metric).unit, 1)
        half = 0.5 * 10.0 ** -content["metrics"][row.metric]["decimals"] + 1e-12
        numbers = (row.mean, row.ci_low, row.ci_high, row.diff_vs_baseline)
        for shown, value in zip(cell, numbers, strict=False):
            square = row.metric == "squared_ce"
            root = math.copysign(math.sqrt(abs(value)), value) if square else value
            assert np.isnan(value) if shown is None else abs(shown - factor * root) <= half
        said = row.verdict not in ("", "no verdict")
        assert len(cell) == 4 + said
        assert not said or cell[4].startswith(SAID.get(row.verdict, f"{row.verdict}; Holm p "))
    cells = [
        cell
        for of_shift in content["values"].values()
        for of_severity in of_shift.values()
        for of_metric in of_severity.values()
        for cell in of_metric
    ]
    assert sum(cell != 0 for cell in cells) == len(rows)


def test_bins_are_those_of_the_study(content, results):
    diagrams = content["groups"]["digits_resnet8"]["bins"]
    rows = pd.read_parquet(results.folder / "bins.parquet").query("n_bins == 15 and count > 0")
    assert len(rows) > 100
    for row in rows.itertuples():
        bins = diagrams[row.method][str(row.seed)][row.calibrator]
        (found,) = (bin_ for bin_ in bins if bin_[0] == row.bin)
        expected = [row.count, 100 * row.confidence / row.count, 100 * row.correct / row.count]
        assert found[1:] == pytest.approx(expected, abs=0.005 + 1e-9)


def test_images_of_a_bin_are_in_it_and_extend_over_it(run):
    """Recomputed from the logits: softmax, bins of a fifteenth."""
    data = read_logits(run[0].predicted / "logits/last/test.parquet")
    probabilities = softmax(data.logits)
    confidence = probabilities.max(axis=1)
    place = np.ceil(15 * confidence).astype(int) - 1
    found = listed_images(run[0], "last", run[1])["none"]
    assert {int(number) for number in found} == set(place)
    for number, listed in found.items():
        index, label, answer, shown = np.reshape(listed, (-1, 4)).T
        members = np.flatnonzero(place == int(number))
        assert len(index) == len(set(index)) == min(len(members), MOST_IMAGES)
        assert set(index) <= set(members)
        assert (label == data.label[index]).all()
        assert (answer == probabilities[index].argmax(axis=1)).all()
        assert np.abs(shown - 1000 * confidence[index]).max() <= 0.5 + 1e-9
        assert (np.diff(confidence[index]) >= 0).all()
        ends = confidence[members].min(), confidence[members].max()
        assert (confidence[index[0]], confidence[index[-1]]) == ends
    assert max(len(listed) for listed in found.values()) == 4 * MOST_IMAGES


def test_only_the_fit_of_the_study_counts(run, request):
    """A fit on other rows gives other bins, a damaged file none; the right one is found."""
    found, bins = run
    val = read_logits(found.predicted / "logits/last/val.parquet")
    folder = found.predicted.parent / "fits" / "last"
    made = folder.rename(folder.with_name("made"))
    request.addfinalizer(lambda: (shutil.rmtree(folder), made.rename(folder)))
    assert listed_images(found, "last", bins)["ts"] == NO_FIT
    wrong = build_calibrator("ts").fit(val.logits[:40], val.label[:40])
    wrong.save(folder / "ts-seed0-a.safetensors")
    (folder / "ts-seed0-b.safetensors").write_bytes(b"damaged")
    assert listed_images(found, "last", bins)["ts"] == NO_FIT
    build_calibrator("ts").fit(val.logits, val.label).save(folder / "ts-seed0-c.safetensors")
    listed = listed_images(found, "last", bins)["ts"]
    filled = bins["ts"].query("count > 0")
    expected = dict(zip(filled["bin"].astype(str), filled["count"].clip(upper=24), strict=True))
    assert {number: len(images) / 4 for number, images in listed.items()} == expected


def test_pictures_are_the_test_images_of_data_sets_that_may_be_shown():
    shown = pictures("digits")
    test = load("dataset", "digits")().build(None)["test"]
    content = base64.b64decode(shown["sheet"].removeprefix("data:image/png;base64,"))
    sheet = np.asarray(Image.open(io.BytesIO(content)))
    assert sheet.shape == (8 * shown["lines"], 8 * shown["columns"])
    for row in (0, shown["columns"], len(test) - 1):
        top, left = 8 * (row // shown["columns"]), 8 * (row % shown["columns"])
        assert (sheet[top : top + 8, left : left + 8] == test.images[row, 0]).all()
    assert shown["labels"] == test.labels.tolist()
    assert "Alpaydin" in shown["source"]
    assert pictures("cifar10") is None


def test_what_exceeds_the_size_is_left_out_and_named(content, results, monkeypatch):
    size = len(board._json(content).encode())
    monkeypatch.setattr(board, "MOST_BYTES", size - 1)
    smaller, (left_out,) = board_data(results)
    assert left_out.startswith("Images of seed number 3 of each method are left out")
    assert set(content["images"]) - set(smaller["images"]) == {
        f"digits_resnet8/{method}/2" for method in ("ce", "ls", "mmce")
    }
    monkeypatch.setattr(board, "MOST_BYTES", 1)
    smallest, left_out = board_data(results)
    assert smallest["images"] == smallest["pictures"] == {}
    assert set(smallest["values"]) == {f"digits_resnet8/{at}" for at in ("", "mean", "ood/photos")}
    assert [said.partition(" are")[0] for said in left_out] == [
        "Images of the first seed of each method",
        "Single corruptions",
        "Images of seed number 2 of each method",
        "Images of seed number 3 of each method",
    ]


def test_the_page_needs_no_other_file_and_has_all_data(content, results, tmp_path):
    assert write_board(results, tmp_path / "board.html") == []
    page = (tmp_path / "board.html").read_text()
    (held,) = re.findall(r'<script type="application/json" id="data">([^<]*)</script>', page)
    assert json.loads(held) == content
    assert "<noscript>" in page
    assert not re.search(r'(src|href)="|@import|fetch\(|import\(', page)
    assert len(page) < 3_000_000


def test_a_study_without_its_runs_says_so(study, tmp_path):
    shutil.copytree(study.folder, tmp_path / "alone")
    content, left_out = board_data(calgrid.load_study(tmp_path / "alone"))
    assert "networks are left out" in left_out[-1]
    assert left_out[-1].endswith("the first is digits_resnet8/ce/0.")
    assert content["images"]["digits_resnet8/ce/0"] == {"none": NO_LOGITS, "ts": NO_LOGITS}


def test_the_command_writes_beside_the_study_or_where_it_is_told(study, tmp_path, capsys):
    shutil.copytree(study.folder, tmp_path / "copy")
    assert main(["board", str(tmp_path / "copy")]) == 0
    assert main(["board", str(tmp_path / "copy"), "--out", str(tmp_path / "new/page.html")]) == 0
    pages = [tmp_path / "copy/board.html", tmp_path / "new/page.html"]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    sizes = capsys.readouterr().out.splitlines()[::2]  # then, that a copy has no images
    assert [line.partition(": ")[0] for line in sizes] == list(map(str, pages))


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_without_results_is_one_sentence(exists, tmp_path, capsys):
    folder = tmp_path / "study"
    if exists:
        folder.mkdir()
    assert main(["board", str(folder)]) == 2
    said = capsys.readouterr().err.removeprefix("calgrid board: ").strip()
    assert said.startswith(f"The folder {folder} holds no study" if exists else "There is no ")
    assert is_one_sentence(said)
