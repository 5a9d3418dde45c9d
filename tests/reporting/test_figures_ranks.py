"""Critical-difference diagrams show what the statistics say, over the settings that are independent of each other."""

import numpy as np
import pytest

from calgrid.reporting.figures import critical_difference as diagrams
from calgrid.reporting.figures import write_figures
from calgrid.reporting.index import read_index
from calgrid.reporting.study import StudyData
from calgrid.statistics import mean_ranks, nemenyi_cd


@pytest.fixture
def settings(build):
    """Three methods and two calibrators on three backbones."""
    return build(backbones=("resnet8", "resnet20", "resnet50"), shifts=(), ood=(), resamples=0)


def scores(data, name, **only):
    rows = data.summary[(data.summary["split"] == "test") & (data.summary["metric"] == "nll")]
    for column, value in only.items():
        rows = rows[rows[column] == value]
    return rows.pivot(index="backbone", columns=name, values="mean")


def marks(ax, gid):
    return [line for line in ax.lines if line.get_gid() == gid]


@pytest.mark.parametrize(
    ("kind", "draw", "only"),
    [
        ("method", diagrams.draw_methods, {"calibrator": "none"}),
        ("calibrator", diagrams.draw_calibrators, {"method": "ce"}),
    ],
)
def test_diagram_shows_mean_ranks_and_the_critical_difference(settings, kind, draw, only):
    data = StudyData(settings.folder, settings.manifest)
    ax, _ = draw(data, data.groups[0]).axes
    ranks = mean_ranks(scores(data, kind, **only)).sort_values(kind="stable")
    assert [line.get_xdata()[0] for line in marks(ax, "name")] == pytest.approx(list(ranks))
    (ruler,) = marks(ax, "cd")
    assert np.ptp(ruler.get_xdata()) == pytest.approx(nemenyi_cd(len(ranks), 3))
    written = [text.get_text().strip() for text in ax.texts if "(" in text.get_text()]
    assert written == [f"{name} ({rank:.2f})" for name, rank in ranks.items()]
    assert ax.get_title().startswith("NLL, 3 settings")


def test_bars_join_what_lies_within_the_critical_difference(settings):
    data = StudyData(settings.folder, settings.manifest)
    ax, _ = diagrams.draw_methods(data, data.groups[0]).axes
    ranks = mean_ranks(scores(data, "method", calibrator="none"))
    # three settings cannot tell three methods apart unless all agree on the extremes
    joined = [line.get_xdata() for line in marks(ax, "bar")]
    assert all(np.ptp(ends) < nemenyi_cd(3, 3) + 0.05 for ends in joined)
    assert bool(joined) == bool((ranks.sort_values().diff() < nemenyi_cd(3, 3)).any())


def test_names_do_not_overlap(build):
    methods = ("ce", "ls", "fl3", "mbls", "brier", "mixup", "mmce")
    study = build(methods=methods, seeds=(0,), backbones=("a", "b"), shifts=(), ood=(), resamples=0)
    data = StudyData(study.folder, study.manifest)
    figure = diagrams.draw_methods(data, data.groups[0])
    figure.canvas.draw()
    for ax in figure.axes:
        boxes = [text.get_window_extent() for text in ax.texts if "(" in text.get_text()]
        assert len(boxes) == len(methods)
        assert not any(one.overlaps(other) for one in boxes for other in boxes if one is not other)
        assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_captions_name_settings_and_warn_of_the_pool(settings, tmp_path):
    write_figures(settings.folder, settings.manifest, tmp_path)
    entries = {entry["id"]: entry for entry in read_index(tmp_path)}
    for kind in ("critical_difference", "calibrator_critical_difference"):
        assert "over 3 settings" in entries[kind]["caption"]
        assert "depends on the pool" in entries[kind]["caption"]
        assert entries[kind]["file"] == f"{kind}.png"
    assert "networks of ce" in entries["calibrator_critical_difference"]["caption"]


def test_one_setting_has_no_diagram(study):
    data = StudyData(study.folder, study.manifest)
    assert diagrams.draw_methods(data, data.groups[0]) is None
    assert diagrams.draw_calibrators(data, data.groups[0]) is None


def test_what_is_missing_from_a_setting_leaves_the_comparison_not_the_setting(settings):
    data = StudyData(settings.folder, settings.manifest)
    summary = data.summary
    gone = (summary["method"] == "mmce") & summary["backbone"].isin(["resnet8", "resnet20"])
    data.summary = summary[~gone]
    ax, _ = diagrams.draw_methods(data, data.groups[0]).axes
    assert len(marks(ax, "name")) == 2
    assert ax.get_title().startswith("NLL, 3 settings")


def test_nested_sets_of_validation_rows_are_one_setting(build):
    study = build(
        methods=("ce",),
        datasets=("digits_n40", "digits_n80"),
        calibrators=("none", "ts", "iso"),
        seeds=(1,),
        shifts=(),
        ood=(),
        resamples=0,
        external=True,
    )
    data = StudyData(study.folder, study.manifest)
    assert diagrams.draw_calibrators(data, data.groups[0]) is None
