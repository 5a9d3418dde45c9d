"""What jobs ask a scheduler for grows with data set, backbone, protocol and attempt, and stays
within bounds.
"""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from calgrid.components import registry
from calgrid.configuration.calibration_costs import (
    FIT_SECONDS,
    PREDICT_SECONDS,
    Calibration,
    Family,
    Fitted,
    Rows,
)
from calgrid.configuration.resources import (
    CHUNK,
    CHUNK_BYTES,
    CUDA_MB,
    LIGHT_MB,
    MAX_MINUTES,
    MIN_MINUTES,
    SCORED_AT_ONCE,
    SCORED_PIXELS,
    SNAKEMAKE_MB,
    STREAMED_BATCHES,
    TORCH_MB,
    UNKNOWN_IMAGES,
    Resources,
)
from calgrid.configuration.study import Study
from calgrid.conventions import HELD_BYTES
from calgrid.training.data import AHEAD

CIFAR = ("resnet8", "resnet18", "densenet121", "resnet50", "resnet101", "resnet110", "wrn26_10")


def job(**wildcards):
    defaults = {
        "protocol": "digits",
        "dataset": "digits",
        "backbone": "resnet8",
        "method": "ce",
        "seed": "1",
    }
    return SimpleNamespace(**{**defaults, **wildcards})


@pytest.fixture
def make(study):
    def resources(gpus=1, epochs=60, **grid):
        both = {"backbones": ["resnet8", "resnet20"], "methods": ["ce", "tst"], **grid}
        protocols = {"longer": {"base": "digits", "epochs": epochs}}
        return Resources(study(both, {**both, "protocol": "longer"}, protocols=protocols), gpus)

    return resources


def test_memory_and_time_grow_with_each_attempt(make):
    needs = make(probes=["prototypes"])
    stages = ("train", "predict", "probe", "calibrate", "prepare", "aggregate")
    memory = {name: getattr(needs, f"{name}_memory") for name in stages}
    for name, function in memory.items():
        first = function(job(unit="digits"), attempt=1)
        assert first >= (TORCH_MB if name in ("train", "predict", "probe") else LIGHT_MB)
        assert [function(job(unit="digits"), attempt=attempt) for attempt in (2, 3)] == [
            2 * first,
            3 * first,
        ]
    for function in (needs.predict_minutes, needs.probe_minutes, needs.calibrate_minutes):
        first = function(job(), attempt=1)
        assert first > MIN_MINUTES
        assert [function(job(), attempt=attempt) for attempt in (2, 3)] == [2 * first, 3 * first]
        assert function(job(), attempt=1000) == MAX_MINUTES


@pytest.fixture
def cifar(study, tmp_path):
    """What runs of 350 epochs on CIFAR-10 need, for all its networks and one that is known by name
    alone.
    """

    def resources(gpus=1):
        grid = {"datasets": ["cifar10"], "protocol": "aclsline", "methods": ["ce"]}
        made = study({**grid, "backbones": [*CIFAR, "timm/resnet50"]}, data_root=str(tmp_path))
        return Resources(made, gpus)

    return resources


def on_cifar(backbone):
    return job(protocol="aclsline", dataset="cifar10", backbone=backbone)


def test_time_grows_with_the_multiplications_of_the_backbone(cifar):
    costs = {name: registry.spec("backbone", name).info["macs"] for name in CIFAR}
    needs = cifar()
    minutes = {name: needs.train_minutes(on_cifar(name)) for name in CIFAR}
    assert sorted(CIFAR, key=minutes.get) == sorted(CIFAR, key=costs.get)
    # hours that MaC-Cal reports for one A40, table 4
    for name, hours in {"resnet50": 3.8, "wrn26_10": 5.8, "resnet110": 6.4}.items():
        assert hours < minutes[name] / 60 < 10 * hours


def test_a_model_of_a_library_gets_what_a_large_one_needs(cifar):
    needs = cifar()
    assert needs.train_memory(on_cifar("timm+resnet50"), 1) > needs.train_memory(
        on_cifar("resnet110"), 1
    )
    assert needs.predict_memory(on_cifar("timm+resnet50"), attempt=1) > needs.predict_memory(
        on_cifar("resnet110"), 1
    )
    assert needs.train_minutes(on_cifar("timm+resnet50")) > needs.train_minutes(on_cifar("resnet8"))


def test_without_a_gpu_the_activations_of_a_batch_lie_in_memory(cifar):
    info = registry.spec("backbone", "resnet50").info
    batch = 4 * 128 * info["activations"] / 2**20
    extra = cifar(gpus=0).train_memory(on_cifar("resnet50"), 1) - cifar(gpus=1).train_memory(
        on_cifar("resnet50"), 1
    )
    assert batch <= extra + CUDA_MB - TORCH_MB + 1 < 2 * batch


def test_images_are_scored_in_batches_of_the_size_that_memory_is_asked_for():
    from calgrid.jobs import predict
    from calgrid.jobs.predict import BATCH
    from calgrid.training.data import PIXELS_AT_ONCE
    from calgrid.training.trainer import EVALUATION_BATCH

    assert SCORED_AT_ONCE == BATCH == EVALUATION_BATCH
    assert (CHUNK, CHUNK_BYTES) == (predict.BLOCK, predict.BLOCK_BYTES)
    assert max(PIXELS_AT_ONCE.values()) == SCORED_PIXELS  # on a processor fewer


def test_a_data_set_of_unknown_size_gets_more_than_a_small_one(make):
    needs = make()
    small, unknown = (
        needs.predict_memory(job(dataset=dataset), 1) for dataset in ("digits", "somebodys")
    )
    assert unknown > small + 500
    assert needs.calibrate_memory(job(dataset="somebodys"), 1) > needs.calibrate_memory(job(), 1)


def test_time_grows_with_the_protocol_and_without_a_gpu_and_has_bounds(make):
    def minutes(epochs, gpus):
        return make(gpus, epochs).train_minutes(job(protocol="longer"))

    assert minutes(60, gpus=1) == MIN_MINUTES + 1
    assert MIN_MINUTES < minutes(100_000, gpus=1) < minutes(100_000, gpus=0)
    assert minutes(10**8, gpus=0) == MAX_MINUTES


def test_a_second_stage_is_given_the_time_of_its_own_epochs(make):
    needs = make(gpus=0, epochs=1_000_000)
    assert needs.train_minutes(job(protocol="longer", method="tst")) < needs.train_minutes(
        job(protocol="longer")
    )


def test_what_holds_all_numbers_grows_with_the_runs(make):
    many, few = make(seeds=list(range(500))), make()
    for rule in ("tables", "figures", "report"):
        assert many.report_memory(rule) > few.report_memory(rule) >= LIGHT_MB
    assert many.aggregate_memory(None, 1) > few.aggregate_memory(None, 1) >= LIGHT_MB


def test_an_import_asks_for_copies_of_its_files(study, tmp_path):
    np.savez(tmp_path / "big.npz", logits=np.zeros((2**18, 10), np.float32), label=np.zeros(2**18))
    stored = tmp_path / "stored"
    stored.mkdir()
    (stored / "state.json").touch()
    (stored / "rows.arrow").write_bytes(bytes(3 * 2**20))
    (tmp_path / "tensors.PT").write_bytes(b"")
    files = {"small": "stored", "large": "big.npz", "torch": "tensors.PT"}
    external = {
        name: {"kind": "logits", "split_seed": 1, "test": file} for name, file in files.items()
    }
    made = study(data_root=str(tmp_path), external=external)
    asked = {
        key.dataset: Resources(made, gpus=1).import_memory(job(**key._asdict()), 1)
        for key in made.external
    }
    assert asked == {"small": LIGHT_MB + 5 * 3, "large": LIGHT_MB + 5 * 12, "torch": TORCH_MB}


def test_pictures_of_ones_own_are_counted_by_their_labels(study, tmp_path):
    for name in ("train", "test"):
        labels = [number % 10 for number in range(400)]
        pq.write_table(
            pa.table({"image": [b""] * 400, "label": labels}), tmp_path / f"{name}.parquet"
        )
    own = {"base": "image_parquet", "val_size": 40, "image_size": 32}
    grid = {"datasets": ["own"], "backbones": ["resnet8"], "methods": ["ce"], "protocol": "evening"}
    needs = Resources(study(grid, datasets={"own": own}, data_root=str(tmp_path)), gpus=1)
    assert needs.images("own") == {"train": 360, "val": 40, "test": 400}
    assert LIGHT_MB <= needs.prepare_memory(job(unit="own"), 1) < LIGHT_MB + 20


def test_preparation_is_given_time_and_threads_for_many_and_large_images(make):
    needs = make()
    threads = {"digits": 1, "cifar10_c": 1, "imagenet": 8, "imagenet_c": 8}
    assert {unit: needs.prepare_threads(job(unit=unit)) for unit in threads} == threads
    minutes = {
        unit: needs.prepare_minutes(job(unit=unit))
        for unit in ("digits", "tiny_imagenet", "imagenet_c")
    }
    assert minutes["digits"] == MIN_MINUTES + 1
    assert minutes["digits"] < minutes["tiny_imagenet"] < minutes["imagenet_c"] < MAX_MINUTES
    # 19 settings of 40,000 images
    assert minutes["imagenet_c"] > MIN_MINUTES + 760_000 * 0.0025 / 60


def test_a_training_asks_for_its_images_until_they_are_streamed(study, tmp_path):
    def needs(size):
        own = {"base": "image_folder", "val_size": 9, "image_size": size, "n_classes": 10}
        grid = {
            "datasets": ["own"],
            "backbones": ["resnet50"],
            "methods": ["ce"],
            "protocol": "aclsline",
        }
        resources = Resources(study(grid, datasets={"own": own}, data_root=str(tmp_path)), gpus=1)
        asked = job(protocol="aclsline", dataset="own", backbone="resnet50")
        return resources.train_memory(asked, 1), resources.train_threads(asked)

    for role in ("train", "test"):
        (tmp_path / role).mkdir()
    (small, one), (large, several) = needs(32), needs(224)
    assert (one, several) == (1, 8)  # of the larger pictures splits stay encoded
    images = 2 * UNKNOWN_IMAGES * 3
    assert small > 3 * images * 32**2 / 2**20
    assert images * 224**2 > HELD_BYTES
    assert large < images * 224**2 / 2**20 / 3
    assert STREAMED_BATCHES > 2 * AHEAD


ALL = list(registry.specs("calibrator"))


def calibration(
    calibrators=("ts",),
    val=5000,
    test=16_000,
    classes=100,
    settings=15,
    draws=0,
    features=0,
    resamples=0,
):
    read = {id: "features" in registry.spec("calibrator", id).info["needs"] for id in calibrators}
    rows = Rows(test, classes, features)
    fitted = [Fitted(id, reads, 1) for id, reads in read.items()]
    families = [Family(rows, settings, ood=False)]
    return Calibration(fitted, rows.of(val), rows, families, resamples, on_val=True, draws=draws)


def test_every_calibrator_has_a_cost_of_its_own():
    assert set(FIT_SECONDS) == set(ALL)
    assert set(PREDICT_SECONDS) <= set(ALL)


@pytest.mark.parametrize("id", ALL)
def test_calibration_takes_longer_for_more_rows_classes_draws_and_resamples(id):
    small = calibration([id], features=64)
    for larger in (
        calibration([id], val=10_000, features=64),
        calibration([id], test=64_000, features=64),
        calibration([id], classes=200, features=64),
        calibration([id], settings=30, features=64),
        calibration([id], draws=1, features=64),
        calibration([id], resamples=100, features=64),
        calibration([id, "ts" if id == "vs" else "vs"], features=64),
    ):
        assert larger.seconds > small.seconds
        assert larger.part_bytes >= small.part_bytes


def test_memory_of_a_calibration_is_that_of_its_largest_part():
    sizes = [calibration(settings=settings).part_bytes for settings in (1, 4, 15, 95)]
    assert sizes[0] < sizes[1] == sizes[2] == sizes[3]
    # two processes, measured at 25,000 + 25,000 + 40,000 rows, 1,000 classes, 2,048 features
    # (benchmarks/full_size.md)
    wide = Rows(25_000, 1000, 2048)
    fits = [Fitted(id, True, 1) for id in ("gc_ts", "procal_dr", "fc")]
    full = Calibration(
        fits, wide, wide, [Family(wide.of(40_000), 3, ood=False)], 200, on_val=True, draws=1
    )
    assert 6276 < 2 * (LIGHT_MB - SNAKEMAKE_MB + full.part_bytes / 2**20) < 1.5 * 6276
    assert calibration(classes=1000).part_bytes > 5 * calibration().part_bytes
    assert calibration(["ts", "fc"], features=512).part_bytes > calibration(features=512).part_bytes


def test_the_costs_are_those_that_were_measured():
    """Seconds in benchmarks/full_size.md and benchmarks/calibrators.md, with a factor of three for
    other machines.
    """
    for id, rows, classes, features, seconds in (
        ("cts", 40_000, 1000, 0, 50.4),
        ("pts", 10_000, 1000, 0, 5.5),
        ("smart", 10_000, 10, 0, 1.7),
        ("ts", 25_000, 1000, 0, 0.79),
        ("svs", 25_000, 1000, 0, 5.1),
        ("dirichlet", 4000, 100, 0, 7.5),
        ("gc_ts", 4000, 100, 256, 1.7),
    ):
        assert seconds / 1.5 < FIT_SECONDS[id](rows, classes, features) < 3 * seconds


class TestSmartOnImagenet:
    """The jobs of SMART's tables that did not end: 19 corruptions of 40,000 images, nine
    calibrators, five draws.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def needs(cls, home, tmp_path_factory):
        config = yaml.safe_load(
            (home / "config" / "papers" / "smart.yaml").read_text(encoding="utf-8")
        )
        return Resources(
            Study({**config, "data_root": str(tmp_path_factory.mktemp("data"))}, home), gpus=1
        )

    def on(self, backbone):
        return job(
            protocol="published", dataset="imagenet", backbone=f"imagenet_{backbone}", method="ce"
        )

    def test_calibration_asks_for_hours_and_two_parts_in_memory(self, needs):
        asked = self.on("resnet50")
        assert needs.calibrate_threads(asked) == 2
        assert needs.calibrate_threads(self.on("wide_resnet50")) == 1  # without corruptions
        assert 6 * 60 < needs.calibrate_minutes(asked, 1) < MAX_MINUTES
        part = 40_000 * (1000 + 2048) * 4 / 2**20
        assert 10 * part < needs.calibrate_memory(asked, 1) < 8 * 1024

    def test_a_prediction_asks_for_one_corruption_in_memory_and_for_the_time_of_its_network(
        self, needs
    ):
        family = 19 * 40_000 * (1000 + 2048) * 4 / 2**20
        assert needs.predict_memory(self.on("resnet50"), 1) < family
        # 810,000 pictures are decoded by eight threads, at about 2 ms each
        assert needs.predict_threads(self.on("resnet50")) == 8
        assert (
            needs.predict_minutes(self.on("resnet50"), 1)
            > MIN_MINUTES + 3 * 810_000 * 0.002 / 8 / 60
        )
        assert needs.predict_minutes(self.on("vit_b16"), 1) > 1.5 * needs.predict_minutes(
            self.on("resnet50"), 1
        )
