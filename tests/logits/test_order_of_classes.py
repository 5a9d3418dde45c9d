"""Names of classes in people's files: taken over, compared, or their lack is said."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.logits.user_files import arrays, lists, npz

from calgrid.errors import ConfigError, DataError
from calgrid.logits.reading import read_any
from calgrid.study.slow_checks import check_external
from calgrid.study.study import Study

NAMES = ["cat", "dog", "eel", "fox"]
TURNED = ["dog", "cat", "eel", "fox"]
LOGITS, LABELS = arrays()


def labelled(path, names, label="label", **columns):
    """A Parquet file with labels whose classes have names, as the datasets library writes them."""
    about = json.dumps({"info": {"features": {label: {"names": names, "_type": "ClassLabel"}}}})
    table = pa.table({label: LABELS, **columns})
    pq.write_table(table.replace_schema_metadata({"huggingface": about}), path)
    return path


@pytest.fixture(params=["npz", "pt", "parquet"])
def named(request, tmp_path):
    """A file of logits whose classes have names."""

    def write(names=NAMES):
        path = tmp_path / f"named.{request.param}"
        if request.param == "npz":
            return npz(path, logits=LOGITS, label=LABELS, classes=np.array(names))
        if request.param == "parquet":
            return labelled(path, names, logits=lists(LOGITS))
        content = {"logits": torch.tensor(LOGITS), "label": torch.tensor(LABELS), "classes": names}
        torch.save(content, path)
        return path

    return write


def test_a_file_may_name_its_classes(named, capsys):
    assert read_any(named(), "logits").metadata["classes"] == NAMES
    data = read_any(named(), "logits", classes=NAMES, exact=True)
    assert np.array_equal(data.logits, LOGITS)
    assert capsys.readouterr().err == ""


def test_another_order_or_other_classes_are_refused(named, refuses):
    with refuses(
        DataError,
        "has the classes in another order (class 0 is 'dog' instead of 'cat')",
        "write its columns and labels in the order cat, dog, eel, fox",
    ):
        read_any(named(TURNED), "logits", classes=NAMES)
    with refuses(DataError, "has the classes cat, dog, eel, owl, not cat, dog, eel, fox"):
        read_any(named([*NAMES[:3], "owl"]), "logits", classes=NAMES)
    with refuses(DataError, "has 4 columns for the 3 classes cat, dog, eel"):
        read_any(named(NAMES[:3]), "logits")


def test_labels_as_text_go_by_the_names_in_the_file(tmp_path):
    words = np.array(TURNED)[LABELS]
    path = npz(tmp_path / "a.npz", logits=LOGITS, label=words, classes=np.array(TURNED))
    assert np.array_equal(read_any(path, "logits").label, LABELS)


@pytest.mark.parametrize("classes", [np.arange(4), np.array(["cat", "cat", "dog", "eel"])])
def test_arrays_that_are_no_names_of_classes_are_left_alone(tmp_path, classes):
    path = npz(tmp_path / "a.npz", logits=LOGITS, label=LABELS, classes=classes)
    assert "classes" not in read_any(path, "logits").metadata


def test_columns_go_by_the_names_of_a_file_of_labels(tmp_path, capsys):
    table = pd.DataFrame(LOGITS, columns=[f"score_{name}" for name in NAMES])
    table.to_csv(tmp_path / "scores.csv", index=False)
    labels = labelled(tmp_path / "labels.parquet", TURNED)
    data = read_any(tmp_path / "scores.csv", "logits", labels)
    assert data.metadata["classes"] == TURNED
    assert np.allclose(data.logits, LOGITS[:, [1, 0, 2, 3]])
    assert np.array_equal(data.label, LABELS)
    assert capsys.readouterr().err == ""


def test_files_of_scores_and_labels_must_have_one_order(tmp_path, refuses, capsys):
    labels = labelled(tmp_path / "labels.parquet", TURNED)
    scores = npz(tmp_path / "a.npz", logits=LOGITS, classes=np.array(NAMES))
    with refuses(DataError, "labels.parquet has the classes in another order (class 0 is 'dog'"):
        read_any(scores, "logits", labels)
    read_any(npz(tmp_path / "b.npz", logits=LOGITS), "logits", labels)
    assert f"b.npz does not name its classes: its columns are taken in the order of {labels}" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(("exact", "said"), [(True, True), (False, False)])
def test_columns_without_names_in_the_order_of_another_file_are_said(tmp_path, capsys, exact, said):
    path = npz(tmp_path / "a.npz", logits=LOGITS, label=LABELS)
    assert read_any(path, "logits", classes=NAMES, exact=exact).metadata["classes"] == NAMES
    message = "a.npz does not name its classes: its columns are taken in the order of the other"
    assert (message in capsys.readouterr().err) == said


@pytest.mark.parametrize("numbered", ["scores", "labels"])
def test_rows_that_only_one_of_two_files_numbers_are_said(tmp_path, capsys, numbered):
    index = {numbered: {"index": np.roll(np.arange(20), 1)}}
    scores = npz(tmp_path / "scores.npz", logits=LOGITS, **index.get("scores", {}))
    labels = npz(tmp_path / "labels.npz", label=LABELS, **index.get("labels", {}))
    read_any(scores, "logits", labels)
    said = f"{numbered}.npz has an 'index', but"
    assert said in capsys.readouterr().err
    np.savez(tmp_path / f"{numbered}.npz", logits=LOGITS, label=LABELS, index=np.arange(20))
    read_any(scores, "logits", labels)
    assert capsys.readouterr().err == ""


def test_models_of_one_data_set_are_compared_in_one_order(tmp_path, home, refuses):
    rng = np.random.default_rng(1)
    for name, names in {"a": NAMES, "b": TURNED}.items():
        for split in ("val", "test"):
            values = rng.normal(size=LOGITS.shape).astype(np.float32)
            path = tmp_path / f"{name}_{split}.npz"
            npz(path, logits=values, label=LABELS, classes=np.array(names))
    external = {}
    for number, name in enumerate("ab"):
        files = {split: f"{name}_{split}.npz" for split in ("val", "test")}
        about = {"kind": "logits", "dataset": "pets", "backbone": "net", "seed": number + 1}
        external[name] = {**files, **about}
    config = {"study": "s", "data_root": str(tmp_path), "external": external}
    with refuses(
        ConfigError,
        "external.b: external/pets/net/ce/seed2 has the classes of external/pets/net/ce/seed1",
        "in another order (class 0 is 'dog' instead of 'cat'), so they cannot be compared",
    ):
        check_external(Study(config, home))
    external["b"]["backbone"] = "other"
    check_external(Study(config, home))


def test_symptoms_of_the_files_of_a_study_are_said_before_it_runs(tmp_path, home, capsys):
    for split, logits in (("val", LOGITS), ("test", 1 / (1 + np.exp(-LOGITS[::-1])))):
        npz(tmp_path / f"{split}.npz", logits=logits, label=LABELS)
    mine = {"val": "val.npz", "test": "test.npz", "kind": "logits", "calibrators": ["none"]}
    check_external(Study({"study": "s", "data_root": str(tmp_path), "external": {"a": mine}}, home))
    said = f"Warning: external.a: {tmp_path / 'test.npz'}: All logits lie between 0 and 1"
    assert said in capsys.readouterr().err
