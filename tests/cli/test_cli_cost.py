"""``calgrid cost``: jobs and images, and hours at measured speeds."""

from types import SimpleNamespace

import pytest
from tests.plan.test_costs import CIFAR, CLEAN, VAL

from calgrid.jobs import speed
from calgrid.plan.costs import work
from calgrid.plan.plan import Plan
from calgrid.storage.records import TRAIN, write_record
from calgrid.study.study import Study
from calgrid.study.yaml_files import read_configuration


def total(text):
    line = next(line for line in text.splitlines() if line.startswith("total"))
    return line.split()[1:]


def test_hours_are_images_at_the_stated_speed(calgrid, configured, tmp_path):
    grid = {**CIFAR, "methods": ["ce", "ls"], "seeds": [1, 2]}
    path = configured({"study": "mine", "data_root": str(tmp_path), "grids": [grid]})
    unknown = calgrid("cost", path)
    assert total(unknown.out)[-1] == "-"
    assert "Unknown speeds" in unknown.out
    done = calgrid("cost", path, "--throughput", "resnet50=1000")
    images = 4 * 350 * (45_000 + VAL), 4 * CLEAN
    hours = sum(images) / 1000 / 3600
    assert total(done.out) == [f"{images[0]:,.0f}", f"{images[1]:,.0f}", f"{hours:.1f}", "h"]
    assert "Unknown" not in done.out
    counted = (
        "4 runs, 17 jobs (data 1, train 4, predict 4, calibrate 4, aggregate 1, tables 1, figures "
        "1, report 1)"
    )
    assert counted in done.out
    assert counted in calgrid("check", path).out


def test_finished_trainings_give_their_speed(
    calgrid, configured, make_config, home, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # whose results are those of the test alone
    path = configured(make_config())
    study = Study(read_configuration(path), home)
    plan, (key, _) = Plan(study), study.trained
    write_record(f"{plan.train(key).folder}/{TRAIN}", {"seconds": 60.0})
    trained, predicted = (
        2 * 60 * (120 + 477 / 3),
        sum(work(study, key).predicted for key in study.trained),
    )
    minutes = (trained + predicted) / (trained / 2)
    assert total(calgrid("cost", path).out)[-2:] == [f"{minutes:.1f}", "min"]


def test_speed_is_measured_here_on_request(calgrid, succeeds, configured, make_config, monkeypatch):
    monkeypatch.setattr(speed, "STEPS", 2)
    path = configured(make_config({"methods": ["mit_l", "ce", "tst"]}, device="cpu"))
    done = succeeds("cost", path, "--measure")
    assert "Unknown" not in done.out
    assert "epoch" not in done.err
    measured = []
    monkeypatch.setattr(speed, "images_per_second", lambda *a: measured.append(a[0]) or 500.0)
    again = calgrid("cost", path, "--measure")
    assert total(again.out) == total(calgrid("cost", path, "--throughput", "resnet8=500").out)
    assert [spec["key"]["method"] for spec in measured] == ["ce"]


@pytest.mark.parametrize(
    ("seconds", "counted"), [(0.5, [1, 1, 21]), (12.0, [1, 1, 6]), (100.0, [1])]
)
def test_at_most_twenty_steps_or_a_minute_are_measured(
    make_config, home, monkeypatch, seconds, counted
):
    """Of a training whose steps take equally long."""
    plan = Plan(Study(make_config({"methods": ["ce"]}), home))
    counts = []

    def build(spec, data, *_):
        counts.append(len(data.splits["train"].labels) / spec["protocol"]["batch_size"])
        took = SimpleNamespace(seconds=seconds * counts[-1])
        return SimpleNamespace(run=lambda stop: took)

    monkeypatch.setattr(speed, "build_trainer", build)
    (key,) = plan.study.trained
    spec = plan.train(key).spec
    found = speed.images_per_second(spec, (3, 8, 8), 10, "cpu")
    assert found == pytest.approx(spec["protocol"]["batch_size"] / seconds)
    assert counts == counted


def test_logits_alone_have_jobs_and_no_hours(calgrid, configured, tmp_path):
    logits = {"kind": "logits", "test": "t.npz", "dataset": "d", "backbone": "b", "method": "m"}
    external = {"mine": {**logits, "split_seed": 1}}
    config = {"study": "own", "data_root": str(tmp_path), "external": external}
    (tmp_path / "t.npz").touch()
    done = calgrid("cost", configured(config))
    assert "1 run, 6 jobs (import 1, calibrate 1, " in done.out, done.err
    assert "No network is trained or predicts." in done.out


def test_images_that_are_not_readable_are_reported(fails, configured, tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.parquet").touch()
    mine = {"base": "image_parquet", "val_size": 10}
    config = {"study": "mine", "data_root": str(tmp_path), "datasets": {"mine": mine}}
    path = configured({**config, "grids": [{**CIFAR, "datasets": ["mine"]}]})
    fails("cost", path, parts=["datasets.mine: ", "train.parquet is not a readable Parquet file"])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("resnet50", "'resnet50' is not BACKBONE=IMAGES"),
        ("resnet50=0", "'resnet50=0' is not BACKBONE=IMAGES"),
        ("=100", "'=100' is not BACKBONE=IMAGES"),
        ("resnet50=inf", "'resnet50=inf' is not BACKBONE=IMAGES"),
        ("resnet05=100", "did you mean 'resnet50'?"),
    ],
)
def test_a_throughput_that_is_none_is_refused(fails, configured, text, part):
    path = configured({"study": "mine", "data_root": "data", "grids": [CIFAR]})
    fails("cost", path, "--throughput", text, parts=[part])
