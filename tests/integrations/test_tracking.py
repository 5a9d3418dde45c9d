"""Studies in CSV, MLflow and Weights & Biases, read back with the libraries of these tools."""

import json
from pathlib import Path

import pandas as pd
import pytest
from tests.reporting.conftest import Recipe, make_study

from calgrid.cli import main
from calgrid.storage.schema import METRICS

RECIPE = Recipe(
    methods=("ce", "ls"), seeds=(0, 1), shifts=("contrast",), severities=(1, 3), resamples=10
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("tracked"), RECIPE).folder


@pytest.fixture(scope="module")
def value(study):
    """Value of a metric of ``ls`` with seed 1 after ``ts``, on the rows of a split."""
    metrics = pd.read_parquet(study / METRICS).query(
        "method == 'ls' and seed == 1 and calibrator == 'ts'"
    )
    return lambda split, metric: metrics.query(f"split == '{split}' and metric == '{metric}'")[
        "value"
    ].mean()


def export(study, *options):
    return main(["export", str(study), *map(str, options)])


def test_csv_has_every_number(study, tmp_path):
    assert export(study, "--csv", tmp_path / "csv") == 0
    for name in ("metrics", "shift_summary"):
        written = pd.read_csv(tmp_path / "csv" / f"{name}.csv").astype(object).fillna("")
        wanted = pd.read_parquet(study / f"{name}.parquet").astype(object).fillna("")
        pd.testing.assert_frame_equal(written, wanted, check_exact=True)
    assert not (tmp_path / "csv/resamples.csv").exists()


def test_mlflow_reads_keys_results_and_histories(study, tmp_path, value):
    from mlflow.tracking import MlflowClient

    file = tmp_path / "study.db"
    assert export(study, "--mlflow", file) == 0
    client = MlflowClient(f"sqlite:///{file}")
    (experiment,) = [each for each in client.search_experiments() if each.name == "synthetic"]
    found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert len(found) == 4
    run = found["quick/digits/resnet8/ls/seed1"]
    assert run.data.params["method"] == "ls"
    assert run.data.metrics["last/ts/test/ece"] == value("test", "ece")
    assert run.data.metrics["last/ts/ood/photos/auroc"] == value("ood", "auroc")
    assert run.data.metrics["last/ts/shift/mean/nll"] == pytest.approx(value("shift", "nll"))
    losses = client.get_metric_history(run.info.run_id, "train_loss")
    assert [each.step for each in losses] == list(range(1, RECIPE.epochs + 1))
    content = file.read_bytes()
    for private in (tmp_path, Path.cwd(), Path.home()):
        assert str(private).encode() not in content


def test_wandb_reads_keys_results_and_histories_and_no_machine(study, tmp_path, value):
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    assert export(study, "--wandb", tmp_path / "wandb") == 0
    files = sorted(tmp_path.glob("wandb/wandb/offline-run-*/*.wandb"))
    assert len(files) == 4
    named = {}
    for file in files:
        store, records = DataStore(), []
        store.open_for_scan(str(file))
        while (data := store.scan_data()) is not None:
            records.append(Record.FromString(data))
        named[next(each.run.display_name for each in records if each.run.display_name)] = records
    assert not any(each.run.host for records in named.values() for each in records)
    records = named["quick/digits/resnet8/ls/seed1"]
    config = {i.key: i.value_json for each in records for i in each.run.config.update}
    assert json.loads(config["method"]) == "ls"
    summary = {
        "/".join([i.key, *i.nested_key]): json.loads(i.value_json)
        for each in records
        for i in each.summary.update
    }
    assert summary["last/ts/test/ece"] == value("test", "ece")
    steps = [each.history.step.num for each in records if each.HasField("history")]
    assert steps == list(range(1, RECIPE.epochs + 1))


def test_what_exists_is_kept_and_what_is_no_study_is_named(study, tmp_path, capsys):
    mine = tmp_path / "mine.db"
    mine.write_text("mine")
    assert export(study, "--mlflow", mine) == 2
    assert "mine.db exists already" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert export(tmp_path, "--csv", tmp_path / "csv") == 2
    assert f"The folder {tmp_path} holds no study" in capsys.readouterr().err
