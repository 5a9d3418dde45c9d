"""Tables of training samples: which epochs, in which file, the same after interruptions."""

import math

import numpy as np
import pytest
from tests.training.test_trainer import CPU, build, finished, resumed

from calgrid.jobs import train as stage
from calgrid.jobs.train import write_outputs
from calgrid.storage.publish import Call
from calgrid.storage.records import MANIFEST
from calgrid.storage.tables import read_frame
from calgrid.training import trainer
from calgrid.training.protocol import TrainingProtocol
from calgrid.training.trainer import sampled_epochs

COLUMNS = ["epoch", "index", "label", "correct", "confidence", "norm", "nci", "gate", "smoothing"]


def run(spec, prepared, folder, stops=()):
    """Run to the end, stopped after each number of steps in ``stops``, and write the outputs."""
    ended, position = finished(resumed(lambda: build(spec, prepared, folder), *stops))
    write_outputs(folder, spec, ended, position, CPU)
    return position


class TestSampledEpochs:
    @pytest.fixture
    def sampled(self, make_spec):
        def sampled(epochs, milestones=(), name="step"):
            schedule = {"name": name, "milestones": list(milestones)}
            options = make_spec(epochs=epochs, schedule=schedule)["protocol"]
            return sampled_epochs(TrainingProtocol.model_validate(options))

        return sampled

    def test_all_of_a_short_run(self, sampled):
        assert sampled(3) == {0, 1, 2}
        assert sampled(1) == {0}

    def test_first_last_and_evenly_between_and_the_first_of_each_lower_rate(self, sampled):
        chosen = sorted(sampled(350, [150, 250]))
        evenly = [epoch for epoch in chosen if epoch not in (150, 250)]
        assert {150, 250} <= set(chosen)
        assert len(evenly) == 12
        assert (evenly[0], evenly[-1]) == (0, 349)
        assert set(np.diff(evenly)) <= {31, 32}

    def test_milestones_that_are_never_reached_or_not_used_do_not_count(self, sampled):
        assert sampled(100, [40, 100]) == sampled(100, [40])
        assert sampled(100, [40], "cosine") == sampled(100)


class TestFile:
    def test_has_one_row_a_sample_and_sampled_epoch_which_agree_with_the_history(
        self, make_spec, prepared, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(trainer, "SAMPLED_EPOCHS", 2)
        run(make_spec("fedlas_mbls", epochs=4), prepared, tmp_path)
        samples, history = (
            read_frame(tmp_path / f"{name}.parquet") for name in ("samples", "history")
        )
        assert list(samples.columns) == COLUMNS
        by_epoch = samples.groupby("epoch")
        # the rate falls in epoch 2
        assert list(by_epoch.groups) == [0, 2, 3]
        for _, epoch in by_epoch:
            assert epoch["index"].tolist() == list(range(40))
            assert epoch["label"].tolist() == prepared.splits["train"].labels.tolist()
        assert set(samples["gate"]) <= {-1, 0, 1}
        assert samples["smoothing"].between(0, 0.2).all()
        assert (samples["norm"] >= 0).all()
        sampled = history.set_index("epoch").loc[[0, 2, 3]]
        assert sampled["train_accuracy"].tolist() == pytest.approx(
            by_epoch["correct"].mean().tolist()
        )
        assert sampled["mean_smoothing"].tolist() == pytest.approx(
            by_epoch["smoothing"].mean().tolist(), rel=1e-5
        )
        modes = samples.pivot_table(index="index", columns="epoch", values="gate")
        assert math.isnan(sampled["flip_rate"][0])
        assert sampled["flip_rate"][3] == (modes[3] != modes[2]).mean()
        assert (
            sampled["positive_share"].tolist()
            == by_epoch["gate"].agg(lambda gate: (gate > 0).mean()).tolist()
        )

    def test_has_the_same_bytes_after_stops(self, make_spec, prepared, tmp_path):
        """Three steps are an epoch: at its end, and twice in a row within the next."""
        spec = make_spec("fedlas_ls", loss_options={"indicator": "random"})
        run(spec, prepared, tmp_path / "whole")
        position = run(spec, prepared, tmp_path / "broken", (3, 1, 1))
        assert position.interruptions == 3
        for name in ("samples.parquet", "history.parquet", "model.safetensors"):
            assert (tmp_path / "whole" / name).read_bytes() == (
                tmp_path / "broken" / name
            ).read_bytes(), name


class TestStage:
    @pytest.fixture
    def train(self, prepared, tmp_path, monkeypatch):
        monkeypatch.setattr(stage, "open_prepared", lambda _, **_options: prepared)
        data = tmp_path / "data" / MANIFEST
        data.parent.mkdir()
        data.write_text("{}")  # the images are in no folder
        return lambda spec: stage.run(Call(spec, tmp_path / "run", (data,), device="cpu"))

    def test_publishes_the_file_of_a_method_and_removes_older_ones(
        self, train, make_spec, tmp_path
    ):
        train(make_spec("fedlas_ls", epochs=1))
        assert (tmp_path / "run" / "samples.parquet").is_file()
        train(make_spec("ce", epochs=1))
        assert sorted(
            path.name for path in (tmp_path / "run").iterdir() if path.is_file()
        ) == sorted([*stage.OUTPUTS, "train.json"])


def test_history_of_correct_counts_covers_the_training_split(make_spec, prepared, tmp_path):
    ended, position = finished(build(make_spec("crl"), prepared, tmp_path))
    right = sum(row["train_accuracy"] for row in position.history) * 40
    assert ended.loss.counts.rows.shape == (40,)
    assert int(ended.loss.counts.rows.sum()) == round(right)
    assert ended.loss.max_count.item() == 3
