"""Job predict: the files say what they hold, and they are the network's float32 logits."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tests.conftest import flip
from tests.jobs.small import CE, FAMILIES, HOME, predict, predicted, small_study, trained

from calgrid.datasets import open_prepared
from calgrid.errors import DataError, StateError
from calgrid.jobs import predict as predict_module
from calgrid.plan.plan import Plan
from calgrid.procedures.network import build_network
from calgrid.storage.arrays import read_arrays, read_head, write_arrays
from calgrid.storage.checkpoint import load_checkpoint, save_checkpoint
from calgrid.storage.logits import Logits, count_groups, read_logits
from calgrid.storage.records import PREDICT, Record, logits_files
from calgrid.study.study import Study
from calgrid.training.procedure import Procedure


@pytest.fixture
def out(run, tmp_path):
    """A folder with the run's training and nothing else."""
    shutil.copytree(run / "train", tmp_path / "run/train")
    return tmp_path / "run"


def outputs(run, images, mean, std, checkpoint="last"):
    """Logits of the network of a run for images uint8 (N, 3, H, W), normalised by constants of the
    channels.
    """
    states, description = load_checkpoint(run / "train/model.safetensors")
    network, _ = build_network(description["spec"], 10)
    network.load_state_dict(states[f"{checkpoint}.model"])
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (mean, std))
    with torch.no_grad():
        return network.eval()((torch.tensor(np.array(images)).float() / 255 - mean) / std).numpy()


def test_one_file_a_split_and_family_for_each_tested_checkpoint(run):
    files = {str(path.relative_to(run / "predict")) for path in run.rglob("logits/**/*.parquet")}
    assert files == set(logits_files(["best", "last"], list(FAMILIES)))


def test_columns_and_metadata_follow_the_contract(run, plan):
    table = pq.read_table(run / "predict/logits/last/test.parquet")
    types = {field.name: str(field.type) for field in table.schema}
    assert types == {
        "index": "int32",
        "label": "int32",
        "logits": "fixed_size_list<element: float>[10]",
    }
    metadata = json.loads(table.schema.metadata[b"calgrid"])
    assert metadata["fingerprint"] == plan.predict(CE).spec["files"]["test"]
    expected = {"dataset": "digits", "method": "ce", "seed": 1, "split": "test", "n_classes": 10}
    assert {name: metadata[name] for name in expected} == expected


def test_logits_are_those_of_the_checkpoint(run, data):
    prepared = open_prepared(data / "digits")
    test = prepared.splits["test"]
    for checkpoint in ("best", "last"):
        stored = read_logits(run / f"predict/logits/{checkpoint}/test.parquet")
        expected = outputs(run, test.images[:50], *prepared.normalisation, checkpoint)
        assert stored.logits[:50] == pytest.approx(expected, abs=1e-4)
        assert np.array_equal(stored.label, test.labels)


def test_shift_file_holds_every_setting_over_the_same_test_labels(run, data):
    stored = read_logits(run / "predict/logits/last/digits_c.parquet")
    conditions = stored.conditions()
    assert len(conditions) == 4
    assert len({(shift, severity) for shift, severity, _ in conditions}) == len(conditions)
    labels = open_prepared(data / "digits").splits["test"].labels
    for _, severity, rows in conditions:
        assert 1 <= severity <= 2
        assert np.array_equal(stored.label[rows], labels)
        assert np.array_equal(stored.index[rows], np.arange(len(labels)))


def test_a_family_is_predicted_some_settings_at_a_time_to_the_same_logits(
    run, plan, data, out, monkeypatch
):
    whole = read_logits(run / "predict/logits/last/digits_c.parquet")
    stage = predict_module
    held, write = [], stage.write_logits
    rows = len(open_prepared(data / "digits").splits["test"].labels)

    def counting(path, parts):
        counted = iter([parts]) if isinstance(parts, Logits) else parts
        write(path, (held.append(len(part)) or part for part in counted))

    monkeypatch.setattr(stage, "GROUP_ROWS", 2 * rows + 1)
    monkeypatch.setattr(stage, "write_logits", counting)
    predicted(plan, data, out, families=["digits_c"])
    path = out / "predict/logits/last/digits_c.parquet"
    assert max(held) == 2 * rows
    assert count_groups(path) == -(-len(whole.conditions()) // 2)
    found = read_logits(path)
    assert np.array_equal(found.index, whole.index)
    assert [each[:2] for each in found.conditions()] == [each[:2] for each in whole.conditions()]
    assert found.logits == pytest.approx(whole.logits, abs=1e-4)


def test_images_have_their_place_in_the_split_in_every_block(out, plan, data, monkeypatch):
    monkeypatch.setattr(predict_module, "BLOCK", 100)
    places, one = [], Procedure.predict

    def placed(procedure, model, batch):
        places.append(batch.index)
        return one(procedure, model, batch)

    monkeypatch.setattr(Procedure, "predict", placed)
    predicted(plan, data, out, families=[])
    splits = open_prepared(data / "digits").splits
    rows = [torch.arange(len(splits[name].labels)) for name in ("val", "test")]
    assert torch.equal(torch.cat(places), torch.cat(2 * rows))


@pytest.mark.slow
def test_a_killed_prediction_goes_on_to_the_same_bytes_and_makes_bad_blocks_anew(
    run, plan, data, tmp_path, monkeypatch
):
    stage = predict_module
    monkeypatch.setattr(stage, "KEPT_SECONDS", -1)
    monkeypatch.setattr(stage, "BLOCK", 100)
    one, made = stage._Exporter._block, []

    def exported(name, most=10**6):
        """Number of blocks that are made, at most ``most`` before the job is killed, and the
        content of the files.
        """
        made.clear()

        def block(*given):
            if len(made) == most:
                raise KeyboardInterrupt
            made.append(given)
            return one(*given)

        monkeypatch.setattr(stage._Exporter, "_block", block)
        if not (tmp_path / name).exists():
            shutil.copytree(run / "train", tmp_path / name / "train")
        predicted(plan, data, tmp_path / name, families=["digits_c"])
        files = logits_files(["best", "last"], ["digits_c"])
        return len(made), [(tmp_path / name / "predict" / file).read_bytes() for file in files]

    blocks, content = exported("undisturbed")
    with pytest.raises(KeyboardInterrupt):
        exported("killed", 20)
    out = tmp_path / "killed"
    assert not (out / "predict").exists()
    folder = out / "predict.partial"
    first, second, *_ = sorted(folder.glob("kept-*.safetensors"))
    flip(first)
    arrays, facts = read_arrays(second, "block")
    write_arrays(second, arrays, {**facts, "inputs": "those of another model"})
    (folder / "logits/best/test.parquet").write_bytes(b"torn")
    test_blocks = -(
        -len(read_logits(out.parent / "undisturbed/predict/logits/best/test.parquet")) // 100
    )
    assert exported("killed") == (blocks - 20 + 2 + test_blocks, content)
    assert not list(out.rglob("kept-*"))


def test_ood_file_has_no_labels_and_severity_zero(run, data):
    stored = read_logits(run / "predict/logits/last/ood/photos.parquet")
    assert stored.index.tolist() == list(range(len(open_prepared(data / "photos").splits["test"])))
    assert set(stored.label.tolist()) == {-1}
    assert set(stored.shift.tolist()) == {"ood/photos"}
    assert set(stored.severity.tolist()) == {0}


def test_logits_and_features_are_means_over_views(run, plan, data, out):
    spec = {**plan.predict(CE).spec, "export_features": True, "test_views": "mirror"}
    predicted(plan, data, out, families=["ood/photos"], spec=spec)
    prepared = open_prepared(data / "digits")
    images = np.asarray(prepared.splits["test"].images[:50])
    each = [outputs(run, view, *prepared.normalisation) for view in (images, images[..., ::-1])]
    test = read_logits(out / "predict/logits/last/test.parquet")
    assert test.logits[:50] == pytest.approx(np.mean(each, axis=0), abs=1e-4)
    assert np.abs(each[0] - each[1]).max() > 0.1
    weight, bias = read_head(out / "predict/logits/last/head.safetensors", spec["run_fingerprint"])
    assert test.features @ weight.T + bias == pytest.approx(test.logits, abs=1e-3)
    head = load_checkpoint(run / "train/model.safetensors")[0]["last.model"]
    assert np.array_equal(weight, head["head.weight"].numpy())
    assert np.array_equal(bias, head["head.bias"].numpy())
    assert read_logits(out / "predict/logits/last/ood/photos.parquet").features is None


def test_features_of_shifts_are_exported_on_request(run, plan, data, out):
    spec = {**plan.predict(CE).spec, "export_features": "all"}
    predicted(plan, data, out, families=FAMILIES, spec=spec)
    weight, bias = read_head(out / "predict/logits/last/head.safetensors", spec["run_fingerprint"])
    for family in FAMILIES:
        shifted = read_logits(out / f"predict/logits/last/{family}.parquet")
        assert shifted.features @ weight.T + bias == pytest.approx(shifted.logits, abs=1e-3)
    assert not (run / "predict/logits/last/head.safetensors").exists()  # without features


def test_features_of_training_images_are_exported_on_request(run, plan, data, out, monkeypatch):
    """All, or a draw of them that every run shares."""
    spec = {**plan.predict(CE).spec, "export_features": "train"}
    spec["files"] = {**spec["files"], "train": "of these"}
    predicted(plan, data, out, families=["ood/photos"], spec=spec)
    folder = out / "predict/logits/last"
    whole = read_logits(folder / "train.parquet", fingerprint="of these")
    assert whole.index.tolist() == list(range(120))
    assert whole.label.tolist() == open_prepared(data / "digits").splits["train"].labels.tolist()
    assert (whole.logits.argmax(axis=1) == whole.label).mean() > 0.5
    weight, bias = read_head(folder / "head.safetensors", spec["run_fingerprint"])
    assert whole.features @ weight.T + bias == pytest.approx(whole.logits, abs=1e-3)
    assert read_logits(folder / "ood/photos.parquet").features is not None
    monkeypatch.setattr(predict_module, "MOST_TRAIN_ROWS", 50)
    monkeypatch.setattr(predict_module, "BLOCK", 20)
    spec["files"]["train"] = "of some"
    predicted(plan, data, out, spec=spec, job="predict-some")
    some = read_logits(out / "predict-some/logits/last/train.parquet")
    assert len(set(some.index)) == 50
    assert np.array_equal(some.label, whole.label[some.index])
    assert some.features == pytest.approx(whole.features[some.index], abs=1e-4)


def test_model_of_another_fingerprint_is_refused(run, plan, data, tmp_path):
    spec = {**plan.predict(CE).spec, "run_fingerprint": "0" * 16, "shifts": {}}
    with pytest.raises(StateError, match="expected 0000000000000000"):
        predict(
            spec,
            run / "train/model.safetensors",
            data / "digits",
            tmp_path / "out",
        )
    assert not (tmp_path / "out").exists()


def test_a_diverged_network_is_named_and_writes_nothing(run, plan, data, tmp_path):
    states, description = load_checkpoint(run / "train/model.safetensors")
    states["last.model"]["head.bias"][0] = float("nan")
    out = tmp_path / "run"
    save_checkpoint(out / "train/model.safetensors", states, description)
    with pytest.raises(DataError, match="if it was trained here, lower the learning rate"):
        predicted(plan, data, out, families=[])
    assert not (out / "predict").exists()


def test_files_with_the_same_fingerprints_are_taken_from_another_prediction(
    run, plan, data, out, monkeypatch
):
    """One more shift family costs only itself."""
    shutil.copytree(run / "predict", out / "predict-1")
    victim = out / "predict-1/logits/best/val.parquet"
    victim.write_bytes(victim.read_bytes()[:-1])  # damaged: computed again
    computed, block = [], predict_module._Exporter._block

    def counting(exporter, *given):
        computed.append(given)
        return block(exporter, *given)

    monkeypatch.setattr(predict_module._Exporter, "_block", counting)
    assert predicted(plan, data, out, families=FAMILIES, job="predict-2")
    assert len(computed) == 1
    record = Record.read(out / "predict-2", PREDICT)
    assert record.damaged() == []
    for name in logits_files(["best", "last"], FAMILIES):
        assert (out / "predict-2" / name).read_bytes() == (run / "predict" / name).read_bytes()
    taken = "logits/last/test.parquet"
    assert (out / "predict-2" / taken).samefile(out / "predict-1" / taken)


def test_a_run_that_crops_trains_and_scores_on_the_middle(data, tmp_path):
    config = small_study()
    config["protocols"]["quick"] |= {
        "crop_size": 6,
        "epochs": 1,
        "schedule": {"name": "constant", "milestones": []},
    }
    config["grids"][0] |= {"methods": ["ce"], "shifts": []}
    cropping = Plan(Study(config, HOME))
    trained(cropping, data, tmp_path)
    predicted(cropping, data, tmp_path)
    prepared = open_prepared(data / "digits")
    middle = prepared.splits["test"].images[:50, :, 1:7, 1:7]
    expected = outputs(tmp_path, middle, *prepared.normalisation)
    assert read_logits(tmp_path / "predict/logits/last/test.parquet").logits[:50] == pytest.approx(
        expected, abs=1e-4
    )


def test_test_images_of_other_constants_leave_training_and_validation_alone(run, plan, data, out):
    config = small_study()
    config["protocols"]["quick"]["test_normalisation"] = {"digits": "imagenet"}
    other = Plan(Study(config, HOME))
    assert other.train(CE).spec == plan.train(CE).spec
    assert other.predict(CE).fingerprint != plan.predict(CE).fingerprint
    predicted(other, data, out, families=FAMILIES)
    imagenet = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    prepared, shifted = (open_prepared(data / name) for name in ("digits", "digits_c"))
    tested = {"test": prepared.splits["test"], "digits_c": shifted.splits["shift"]}
    for name, split in tested.items():
        stored, before = (
            read_logits(folder / f"predict/logits/last/{name}.parquet").logits[:50]
            for folder in (out, run)
        )
        assert stored == pytest.approx(outputs(run, split.images[:50], *imagenet), abs=1e-4)
        assert np.abs(stored - before).max() > 0.1
    for name in ("val", "ood/photos"):
        same, before = (
            read_logits(folder / f"predict/logits/last/{name}.parquet").logits
            for folder in (out, run)
        )
        assert np.array_equal(same, before)
