"""Predictions of CalArena: HDF5 files, their runs in a study, and what is refused."""

import numpy as np
import pytest
from tests.jobs.small import import_run

from calgrid.errors import ConfigError, DataError
from calgrid.logits.calarena import groups, read_group
from calgrid.plan.plan import Plan
from calgrid.storage.logits import read_logits
from calgrid.storage.records import logits_file
from calgrid.study.slow_checks import check_all
from calgrid.study.study import Study

h5py = pytest.importorskip("h5py", reason="the extra hdf5 is not installed")
ROWS = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]], dtype=np.float32)


@pytest.fixture
def arena(tmp_path):
    path = tmp_path / "cv.h5"
    with h5py.File(path, "w") as file:
        for name, cal, test in (
            ("c10/resnet", ROWS, ROWS[:2]),
            ("breast/vit", ROWS[:, 0], ROWS[:2, 0]),
        ):
            for part, values in (("cal", cal), ("test", test)):
                file[f"{name}/probas_{part}"] = values
                file[f"{name}/labels_{part}"] = np.array([0, 1, 1], dtype=np.int32)[: len(values)]
    return path


@pytest.fixture
def study(arena, home):
    def make(**entry):
        given = {"base": "calarena", "file": "cv.h5", "group": ["c10/resnet", "breast/vit"]}
        config = {"study": "s", "data_root": str(arena.parent), "external": {"a": given | entry}}
        return Study(config, home)

    return make


def test_logits_are_logarithms_with_a_floor_and_one_column_is_class_1(arena):
    val, test = read_group(arena, "c10/resnet")
    assert (len(val), len(test)) == (3, 2)
    np.testing.assert_allclose(val.logits[0], np.log(ROWS[0]), rtol=1e-6)
    np.testing.assert_allclose(test.logits[1], [0.0, -87.3365, -87.3365], rtol=1e-5)
    binary, _ = read_group(arena, "breast/vit")
    np.testing.assert_allclose(np.exp(binary.logits[2]), [0.8, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(binary.label, [0, 1, 1])


def test_each_group_is_a_run_named_by_its_data_set_and_network(study, tmp_path):
    plan = Plan(study(calibrators=["none", "ts"], method="resnet"))
    runs = {(key.dataset, key.backbone, key.method): key for key in plan.study.external}
    assert set(runs) == {("c10", "resnet", "resnet"), ("breast", "vit", "resnet")}
    key = runs["breast", "vit", "resnet"]
    import_run(plan.external(key).spec, plan.study.external_files(key), tmp_path / "out")
    written = read_logits(tmp_path / "out" / logits_file("last", "test"))
    np.testing.assert_allclose(np.exp(written.logits[:, 1]), ROWS[:2, 0], rtol=1e-6)
    assert written.metadata["dataset"] == "breast"


def test_mistakes_are_reported_before_any_job(study, arena, refuses):
    with refuses(
        ConfigError, "Unknown group 'c10/resnt' in external.a.group: did you mean 'c10/resnet'?"
    ):
        study(group="c10/resnt")
    with refuses(ConfigError, "external.a.base must be one of bank, calarena, got 'areas'"):
        study(base="areas")
    with refuses(ConfigError, "Unknown key 'kind' in configuration: external.a"):
        study(kind="probabilities")
    check_all(study())
    with h5py.File(arena, "r+") as file:
        file["c10/resnet/probas_cal"][1] = np.nan
    with refuses(ConfigError, "external.a, group c10/resnet: ", "hold NaN or infinity"):
        check_all(study())
    with h5py.File(arena, "r+") as file:
        del file["c10/resnet/labels_test"]
    with refuses(DataError, "group c10/resnet has no labels_test"):
        read_group(arena, "c10/resnet")
    arena.write_bytes(b"no HDF5")
    with refuses(ConfigError, "external.a.file: The file ", "is not a readable HDF5 file"):
        study()


def test_groups_are_those_of_two_levels(arena):
    with h5py.File(arena, "r+") as file:
        file["note"] = 1
    assert groups(arena) == ["breast/vit", "c10/resnet"]
