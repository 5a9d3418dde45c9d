"""Label counts: the runs they belong to, fingerprints of their content, mistakes."""

import hashlib

import pytest

from calgrid.errors import ConfigError
from calgrid.plan.plan import Plan
from calgrid.study.study import Study


@pytest.fixture
def data_root(tmp_path):
    for name in ("counts.npy", "val.npz", "test.npz"):
        (tmp_path / name).write_text(name)
    return tmp_path


def counts_of(plan):
    """Label counts of the calibration of every run, by its data set."""
    return {key.dataset: plan.calibrate(key).spec["label_counts"] for key in plan.study.evaluations}


def test_they_belong_to_all_runs_of_their_data_set_and_to_no_other(plan, data_root):
    file = data_root / "counts.npy"
    grid = {"datasets": ["digits", "digits_ambiguous"], "methods": ["ce"]}
    made = plan(grid, data_root=str(data_root), label_counts={"digits": "counts.npy"})
    expected = {"file": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    assert counts_of(made) == {"digits": expected, "digits_ambiguous": None}


@pytest.mark.parametrize("dataset", [{"dataset": "cifar10"}, {}])
def test_external_runs_have_them_by_data_set_or_name_whatever_val_rows_do(home, data_root, dataset):
    external = {"val": "val.npz", "test": "test.npz", "kind": "logits", **dataset}
    config = {
        "study": "s",
        "data_root": str(data_root),
        "external": {
            "brought": external,
            "few": {**external, "dataset": "cifar10", "val_rows": [5], "method": "few"},
        },
        "label_counts": {dataset.get("dataset", "brought"): "counts.npy"},
    }
    found = counts_of(Plan(Study(config, home)))
    assert found["cifar10" if dataset else "brought"] is not None
    assert (found["cifar10_n5"] is not None) == bool(dataset)


def test_content_and_path_enter_the_fingerprint_of_calibration_only(plan, data_root):
    def fingerprints(**changes):
        made = plan({"methods": ["ce"]}, data_root=str(data_root), **changes)
        (key,) = made.study.runs
        return [
            getattr(made, stage)(key).fingerprint for stage in ("train", "predict", "calibrate")
        ]

    counted = {"label_counts": {"digits": "counts.npy"}}
    seen = [fingerprints(), fingerprints(**counted)]
    assert fingerprints(**counted) == seen[-1]
    (data_root / "counts.npy").write_text("other")
    seen.append(fingerprints(**counted))
    (data_root / "counts.npy").rename(data_root / "other.npy")
    seen.append(fingerprints(label_counts={"digits": "other.npy"}))
    train, predict, calibrate = (set(stage) for stage in zip(*seen, strict=True))
    assert (len(train), len(predict), len(calibrate)) == (1, 1, 4)


@pytest.mark.parametrize(
    ("counts", "parts"),
    [
        ({"digits": "no.npy"}, "label_counts.digits ... no.npy' does not exist ... data_root"),
        ({"digits_ambiguous": "counts.npy"}, "'digits_ambiguous' in label_counts ... 'digits'?"),
    ],
)
def test_mistakes(study, data_root, refuses, counts, parts):
    with refuses(ConfigError, parts):
        study(data_root=str(data_root), label_counts=counts)
