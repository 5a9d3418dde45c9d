"""Jobs and images of a study, against sums by hand."""

import pytest

from calgrid.plan.costs import files, prepared_bytes, shifted_images, work
from calgrid.storage.records import RunKey
from calgrid.study.study import Study
from calgrid.study.yaml_files import read_configuration

CIFAR = {
    "protocol": "aclsline",
    "datasets": ["cifar10"],
    "backbones": ["resnet50"],
    "methods": ["ce"],
    "seeds": [1],
}
#: passes of a validation, and of predictions of val and test of two checkpoints
VAL, CLEAN = 5_000 / 3, 2 * 15_000 / 3


@pytest.fixture
def works(study):
    """Work of the runs of a grid."""

    def of_grid(grid, **changes):
        made = study(grid, data_root="data", **changes)
        return {key: work(made, key) for key in made.trained}

    return of_grid


def test_trained_and_predicted_images_of_a_run_by_hand(works):
    (found,) = works({**CIFAR, "shifts": ["ood/svhn"]}).values()
    assert found.trained == pytest.approx(350 * (45_000 + VAL))
    assert found.predicted == pytest.approx(2 * (15_000 + 26_032) / 3)


@pytest.mark.parametrize(("method", "passes"), [("mit_l", 2), ("rankmixup_mndcg", 4)])
def test_all_passes_of_a_step_are_counted(works, method, passes):
    (found,) = works({**CIFAR, "methods": [method]}).values()
    assert found.trained == pytest.approx(350 * (passes * 45_000 + VAL))


def test_the_epochs_of_a_search_are_counted(works):
    few = {"few": {"base": "pcs", "combinations": 7}}
    found = works({**CIFAR, "methods": ["pcs", "few"]}, methods=few).values()
    for each, epochs in zip(found, (350 + 100, 350 + 7), strict=True):
        assert each.trained == pytest.approx(epochs * (45_000 + VAL))


def test_a_second_stage_has_forward_passes_and_a_first_stage_that_nobody_asked_for_no_logits(works):
    found = {key.method: each for key, each in works({**CIFAR, "methods": ["tst"]}).items()}
    assert found["tst"].trained == pytest.approx(40 * (45_000 / 3 + VAL))
    assert found["tst"].predicted == pytest.approx(CLEAN / 2)  # of the last checkpoint
    assert found["ce"].trained == pytest.approx(350 * (45_000 + VAL))
    assert found["ce"].predicted == 0


def test_a_network_is_trained_once_whichever_protocols_test_it(study):
    bare = {"bare": {"base": "aclsline", "export_features": False}}
    made = study({**CIFAR, "protocol": "bare"}, CIFAR, protocols=bare, data_root="data")
    found = [
        work(made, RunKey(name, "cifar10", "resnet50", "ce", 1)) for name in ("bare", "aclsline")
    ]
    assert [each.trained for each in found].count(0) == 1
    assert [each.predicted for each in found] == pytest.approx([CLEAN, CLEAN])


def test_exported_features_of_training_images_are_predicted_too(works):
    predicted = []
    for export in ("all", "train"):
        protocols = {"p": {"base": "digits", "export_features": export}}
        found = works({"protocol": "p", "methods": ["ce"]}, protocols=protocols)
        predicted.append(sum(each.predicted for each in found.values()))
    assert predicted[1] - predicted[0] == pytest.approx(120 / 3)


def test_downloads_and_prepared_images(study):
    grid = {**CIFAR, "shifts": ["ood/svhn", "cifar10_c", "few"]}
    few = {"base": "corruptions", "of": "cifar10", "images": 500}
    made = study(grid, data_root="data", datasets={"few": few})
    downloads = files(made, downloaded=True)
    assert downloads["cifar-10-python.tar.gz"] == 170_498_071
    assert downloads["CIFAR-10-C.tar"] == 2_918_471_680
    assert files(made, downloaded=False) == {}
    assert prepared_bytes(made, "cifar10") == 60_000 * 3 * 32 * 32
    assert prepared_bytes(made, "cifar10_c") == 15 * 5 * 10_000 * 3 * 32 * 32
    assert prepared_bytes(made, "few") == 9 * 5 * 500 * 3 * 32 * 32
    assert shifted_images(made, "imagenet_sketch") == 0  # unknown before its preparation


def test_files_without_size_and_those_that_the_user_provides(home):
    made = Study(read_configuration(home / "config/papers/smart/study.yaml"), home)
    assert files(made, downloaded=True)["ImageNet-Sketch.zip"] is None
    assert files(made, downloaded=False) == {
        "ILSVRC2012_img_val.tar": 6_744_924_160,
        "ILSVRC2012_devkit_t12.tar.gz": None,
    }
