"""``calgrid cost``: sums by place and by method, and what they rest on."""

from types import SimpleNamespace

import pytest
import yaml

from calgrid.configuration import rules
from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study
from calgrid.jobs import speed

GRID = {
    "protocol": "aclsline",
    "datasets": ["cifar10"],
    "backbones": ["resnet50"],
    "methods": ["ce", "ls"],
    "seeds": [1, 2],
}


@pytest.fixture
def configuration(configured, tmp_path):
    return configured({"study": "mine", "data_root": str(tmp_path), "grids": [GRID]})


def rows(text):
    return {
        line.split()[0]: line.split()[1:]
        for line in text.splitlines()
        if line and line[0] not in "- "
    }


def test_totals_are_the_sums_of_their_rows(calgrid, configuration):
    done = calgrid("cost", configuration, "--throughput", "resnet50=1000")
    assert done.code == 0, done.err
    hours = 350 * (45_000 + 5_000 / 3) / 1000 / 3600
    table = rows(done.out)
    assert table["ce"][:3] == table["ls"][:3] == ["2", f"{2 * hours:.1f}", "h"]
    assert (
        table["total"][:3]
        == table["aclsline/cifar10/resnet50"][:3]
        == ["4", f"{4 * hours:.1f}", "h"]
    )
    assert table["ce"][4] == "s"  # predictions would be 0.0 h
    assert (
        "jobs: 18 (prepare_data 1, train 4, predict 4, calibrate 4, aggregate and report 5)"
        in done.out
    )
    assert (
        "Stated by you, for training on images of this study: resnet50 1000 images/s." in done.out
    )
    assert "Estimated" not in done.out


def test_an_estimate_says_that_it_is_one(calgrid, configuration):
    done = calgrid("cost", configuration)
    assert "Estimated, not measured on your machine: resnet50." in done.out
    assert "Stated by you" not in done.out


def test_hours_of_a_card_say_what_was_measured_there(calgrid, configured, tmp_path):
    grids = [{**GRID, "protocol": "evening", "methods": ["ce", "mit_l"]}, GRID]
    path = configured({"study": "mine", "data_root": str(tmp_path), "grids": grids})
    done = calgrid("cost", path, "--card", "h100")
    assert "times of one GPU, an H100\n" in done.out
    assert "Measured on one H100 (docs/gpu.md), images/s of training: resnet50 6,298 or 9,499" in (
        done.out
    )
    assert "Estimated, not measured there: aclsline/resnet50." in done.out
    stated = calgrid("cost", path, "--card", "h100", "--throughput", "resnet50=1000")
    assert "Measured" not in stated.out
    assert (
        rows(stated.out)["total"]
        == (rows(calgrid("cost", path, "--throughput", "resnet50=1000").out)["total"])
    )


def test_hours_on_several_gpus_are_those_of_all_together(calgrid, configuration):
    alone = calgrid("cost", configuration)
    study = yaml.safe_load(configuration.read_text())
    study["protocols"] = {"four": {"base": "aclsline", "gpus": 4}}
    study["grids"][0]["protocol"] = "four"
    configuration.write_text(yaml.safe_dump(study))
    shared = calgrid("cost", configuration)
    assert rows(shared.out)["total"] == rows(alone.out)["total"]
    said = "A training of protocol 'four' shares its hours among 4 processors"
    assert (said in shared.out, said in alone.out) == (True, False)


def test_speed_is_measured_here_on_request(calgrid, configured, make_config, monkeypatch):
    monkeypatch.setattr(speed, "STEPS", 2)
    path = configured(make_config({"methods": ["mit_l", "ce", "tst"]}, device="cpu"))
    done = calgrid("cost", path, "--measure")
    assert done.code == 0, done.err
    assert "times of one core" in done.out
    assert "Measured here in up to twenty training steps" in done.out
    assert "Estimated" not in done.out
    assert "epoch" not in done.err
    measured = []
    monkeypatch.setattr(speed, "images_per_second", lambda *a: measured.append(a[0]) or 500.0)
    again = calgrid("cost", path, "--measure")
    stated = calgrid("cost", path, "--throughput", "resnet8=500")
    assert rows(again.out)["total"] == rows(stated.out)["total"]
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


def test_small_studies_are_in_smaller_units(calgrid, configured, make_config):
    path = configured(make_config({"methods": ["ce"]}))
    done = calgrid("cost", path, "--throughput", "resnet8=100")
    seconds = 60 * (120 + 477 / 3) / 100
    table = rows(done.out)
    assert table["total"][:3] == ["1", f"{seconds / 60:.1f}", "min"]
    assert table["total"][-1] == "kB"


def test_logits_alone_have_jobs_and_no_hours(calgrid, configured, tmp_path):
    logits = {"kind": "logits", "test": "t.npz", "dataset": "d", "backbone": "b", "method": "m"}
    logits["split_seed"] = 1
    config = {"study": "own", "data_root": str(tmp_path), "external": {"mine": logits}}
    (tmp_path / "t.npz").touch()
    done = calgrid("cost", configured(config))
    assert "jobs: 7 (import 1, calibrate 1, aggregate and report 5)" in done.out, done.err
    assert "No network is trained or predicts" in done.out
    assert "disk" not in done.out


def test_published_weights_are_not_trained(calgrid, configured):
    grid = {**GRID, "protocol": "focal_calibration", "methods": ["ce"], "seeds": [1]}
    done = calgrid("cost", configured({"study": "mine", "data_root": "data", "grids": [grid]}))
    assert done.code == 0, done.err
    assert rows(done.out)["total"][:2] == ["1", "-"]


@pytest.mark.parametrize("has_gpu", [True, False])
def test_hours_are_of_the_processor_that_trains(
    calgrid, configuration, monkeypatch, tmp_path, has_gpu
):
    monkeypatch.setattr(rules, "GPU_DEVICES", (str(tmp_path),) if has_gpu else ())
    text = configuration.read_text()
    hours = {}
    for device in ("auto", "cpu", "cuda"):
        configuration.write_text(f"{text}device: {device}\n")
        done = calgrid("cost", configuration)
        on_gpu = device == "cuda" or (device == "auto" and has_gpu)
        assert f"times of one {'GPU' if on_gpu else 'core'}" in done.out
        advised = "(there is no GPU here; for those of a cluster, write 'device: cuda')"
        assert (advised in done.out) == (device == "auto" and not has_gpu)
        hours[device] = float(rows(done.out)["total"][1].replace(",", ""))
    assert hours["auto"] == hours["cuda" if has_gpu else "cpu"]
    assert hours["cpu"] == pytest.approx(50 * hours["cuda"], rel=0.01)


def test_images_of_unknown_number_are_named(calgrid, configured):
    grid = {
        **GRID,
        "protocol": "published",
        "datasets": ["imagenet_sketch"],
        "backbones": ["imagenet_resnet50"],
        "methods": ["ce"],
        "seeds": [1],
    }
    done = calgrid("cost", configured({"study": "mine", "data_root": "data", "grids": [grid]}))
    assert done.code == 0, done.err
    assert "number of images is unknown before preparation: imagenet_sketch." in done.out


def test_images_that_are_not_readable_are_reported(fails, configured, tmp_path):
    (tmp_path / "images").mkdir()
    for name in ("train", "test"):
        (tmp_path / f"images/{name}.parquet").touch()
    mine = {
        "base": "image_parquet",
        "train": "images/train.parquet",
        "test": "images/test.parquet",
        "val_size": 10,
    }
    config = {"study": "mine", "data_root": str(tmp_path), "datasets": {"mine": mine}}
    path = configured({**config, "grids": [{**GRID, "datasets": ["mine"]}]})
    fails("cost", path, parts=["datasets.mine: ", "train.parquet is not a readable Parquet file"])


@pytest.mark.parametrize(
    "text", ["resnet50", "resnet50=fast", "resnet50=0", "=100", "resnet50=inf"]
)
def test_a_throughput_that_is_none_is_refused(fails, configuration, text):
    fails("cost", configuration, "--throughput", text, parts=[f"'{text}' is not BACKBONE=IMAGES"])
