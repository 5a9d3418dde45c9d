"""Critical-difference diagrams show the statistics over settings independent of each other."""

import itertools
import shutil

import numpy as np
import pandas as pd
import pytest
from tests.report.conftest import CLEAN, Written

from calgrid.report.figure import FigureData
from calgrid.report.figures import critical_difference as diagrams
from calgrid.report.index import read_index
from calgrid.report.study import StudyData
from calgrid.statistics import mean_ranks, nemenyi_cd
from calgrid.storage.schema import METRICS, SUMMARY
from calgrid.storage.tables import write_frame

BACKBONES = ("resnet8", "resnet20", "resnet50", "resnet9")


@pytest.fixture(scope="module")
def settings(make, tmp_path_factory):
    """Three methods and two calibrators on four backbones, whose results are those of one with
    noise.
    """
    one, folder = make(seeds=(0,), **CLEAN), tmp_path_factory.mktemp("four")
    rows = pd.read_parquet(one.folder / SUMMARY)
    rng, runs = np.random.default_rng(0), []
    parts = [rows.assign(backbone=name) for name in BACKBONES]
    summary = pd.concat(parts).astype({"backbone": str})
    summary["mean"] *= rng.uniform(0.9, 1.1, len(summary))
    write_frame(folder / SUMMARY, summary)
    shutil.copy(one.folder / METRICS, folder / METRICS)
    for name in BACKBONES:
        runs += [{**run, "key": {**run["key"], "backbone": name}} for run in one.manifest["runs"]]
    return StudyData(folder, {**one.manifest, "runs": runs})


def scores(data, name, **only):
    rows = data.rows("summary.parquet", split="test", metric="nll")
    for column, value in only.items():
        rows = rows[rows[column] == value]
    return rows.pivot(index="backbone", columns=name, values="mean")


@pytest.mark.parametrize(
    ("kind", "only"), [("method", {"calibrator": "none"}), ("calibrator", {"method": "ce"})]
)
def test_diagram_shows_mean_ranks_and_the_critical_difference(settings, kind, only):
    group = settings.groups[0]
    shown = diagrams._diagrams(
        FigureData(settings, group, diagrams.Diagrams(kind).collect(settings, group))
    )
    assert list(shown) == ["nll", "squared_ce"]
    ranks = mean_ranks(scores(settings, kind, **only)).sort_values(kind="stable")
    assert dict(shown["nll"].mean_ranks) == pytest.approx(dict(ranks))
    assert shown["nll"].cd == pytest.approx(nemenyi_cd(len(ranks), 4))


def test_names_do_not_overlap(settings):
    methods = ("ce", "ls", "fl3", "mbls", "brier", "mixup", "mmce")
    pairs = itertools.product(methods, BACKBONES)
    rows = pd.DataFrame(pairs, columns=["name", "setting"]).assign(metric="nll")
    rows["mean"] = np.random.default_rng(0).random(len(rows))
    figure = diagrams.METHODS.draw(FigureData(settings, settings.groups[0], rows))
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if "(" in text.get_text()]
    assert len(boxes) == len(methods)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_captions_name_settings_and_warn_of_the_pool(settings):
    kinds = ("critical_difference", "calibrator_critical_difference")
    drawn = Written(settings.folder, settings.manifest).figures(*kinds)
    entries = {entry["id"]: entry for entry in read_index(drawn)}
    for kind in kinds:
        assert "over 4 settings" in entries[kind]["caption"]
        assert "depends on the pool" in entries[kind]["caption"]
        assert entries[kind]["file"] == f"{kind}.png"
    assert "networks of ce" in entries["calibrator_critical_difference"]["caption"]


def test_what_is_missing_from_a_setting_leaves_the_comparison_not_the_setting(settings, tmp_path):
    summary = settings.rows("summary.parquet")
    gone = (summary["method"] == "mmce") & summary["backbone"].isin(BACKBONES[:3])
    write_frame(tmp_path / SUMMARY, summary[~gone])
    shutil.copy(settings.folder / METRICS, tmp_path / METRICS)
    data = StudyData(tmp_path, settings.manifest)
    rows = diagrams.METHODS.collect(data, data.groups[0])
    assert set(rows["name"]) == {"ce", "ls"}
    assert rows["setting"].nunique() == 4


def test_nested_sets_of_validation_rows_are_one_setting(sizes):
    assert diagrams.CALIBRATORS.collect(*sizes.opened()).empty


def test_a_diagram_that_can_separate_nothing_is_not_drawn(settings):
    """Three settings of two names: a critical difference of 1.13, and ranks are 1 apart at most."""
    frame = diagrams.CALIBRATORS.collect(settings, settings.groups[0])
    rows = frame[frame["metric"] == "nll"]
    assert len(diagrams._complete(rows, 0.05)) == 8
    assert diagrams._complete(rows[rows["setting"] != rows["setting"].iloc[0]], 0.05).empty
