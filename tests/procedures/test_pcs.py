"""PCS: blocks of a combination, its tuning, the choice, and interruptions of the search."""

import os

import pytest
import torch
from tests.procedures.cases import begin
from tests.training.test_trainer import StopAfter, assert_same_result, build, finished, resumed, run

from calgrid.backbones import build_backbone
from calgrid.backbones.base import Backbone
from calgrid.errors import StateError
from calgrid.jobs.speed import images_per_second
from calgrid.procedures import build_procedure
from calgrid.procedures.pcs import (
    PredecessorCombinations,
    block_prefixes,
    combined,
    predecessor_epochs,
)

#: steps an epoch of the tiny training, which has three epochs
STEPS, EPOCHS = 3, 3


@pytest.fixture
def pcs(make_spec):
    """Specification of a run with three combinations."""

    def make(rate=0.01, **changes):
        options = {"combinations": 3, "rate": rate}
        return make_spec("ce", "pcs", procedure_options=options, **changes)

    return make


@pytest.mark.parametrize(
    ("backbone", "stages"), [("resnet50", 4), ("densenet121", 4), ("wrn26_10", 3), ("resnet8", 3)]
)
def test_blocks_are_the_stages_after_the_stem_and_the_head(backbone, stages):
    with torch.device("meta"):
        model = build_backbone(backbone, 10)
    assert block_prefixes(model) == [*(f"stages.{n}." for n in range(1, stages + 1)), "head."]


def test_a_network_of_one_stage_has_two_blocks():
    model = Backbone([torch.nn.Flatten()], torch.nn.Identity(), 4, 2)
    assert block_prefixes(model) == ["stages.0.", "head."]


def test_predecessors_are_evenly_spaced_and_end_with_the_training():
    assert predecessor_epochs(5, 350) == [70, 140, 210, 280, 350]
    assert predecessor_epochs(11, 60) == [5, 10, 16, 21, 27, 32, 38, 43, 49, 54, 60]
    assert predecessor_epochs(11, 3) == [1, 2, 3]


def test_a_combination_by_hand():
    """Names of the tenth stage begin with ``stages.1``, too, and stem and pool are in no block."""
    names = ("stages.0.w", "stages.1.w", "stages.1.mean", "stages.10.w", "pool.w", "head.b")
    result = combined(
        lambda epochs: dict.fromkeys(names, epochs), 9, ["stages.1.", "head."], [3, 5]
    )
    assert [result[name] for name in names] == [9, 3, 3, 9, 9, 5]


def test_every_block_takes_every_predecessor_equally_often():
    procedure = build_procedure("pcs")
    begin(procedure, build_backbone("resnet8", 10), epochs=20, seed=3)
    drawn = torch.tensor([procedure.combination(epoch) for epoch in range(20, 2220)])
    assert drawn.shape == (2200, 4)
    for epochs in predecessor_epochs(11, 20):
        shares = (drawn == epochs).double().mean(dim=0)
        # four standard deviations of a share of 2,200 draws
        assert ((shares - 1 / 11).abs() < 4 * (1 / 11 * 10 / 11 / 2200) ** 0.5).all()
    other = build_procedure("pcs")
    begin(other, build_backbone("resnet8", 10), epochs=20, seed=4)
    assert other.combination(20) != procedure.combination(20)


def test_the_training_is_that_of_the_loss_alone(pcs, make_spec, prepared, tmp_path):
    alone, position = run(make_spec(), prepared, tmp_path / "alone")
    searched, more = run(pcs(), prepared, tmp_path / "pcs")
    assert [row["epoch"] for row in more.history] == list(range(EPOCHS + 3))
    assert repr(more.history[:EPOCHS]) == repr(position.history)
    last = searched.procedure._predecessor(EPOCHS)
    assert last.keys() == alone.model.state_dict().keys()
    assert all(torch.equal(last[name], value) for name, value in alone.model.state_dict().items())


def test_each_combination_is_tuned_from_its_predecessors(pcs, prepared, tmp_path, monkeypatch):
    """At the given share of the rate, without momentum or lookahead."""
    trainer = build(pcs(lookahead={"every": 2, "decay": 0.5}), prepared, tmp_path)
    procedure, seen = trainer.procedure, []

    def forward_loss(model, loss, batch):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        seen.append((state, len(trainer.optimizer.state)))
        return type(procedure).forward_loss(procedure, model, loss, batch)

    monkeypatch.setattr(procedure, "forward_loss", forward_loss)
    position = trainer.run(StopAfter(10**9))
    # the training ends on the running mean, which stays as it is
    last = procedure._predecessor(EPOCHS)
    assert torch.equal(trainer.lookahead.mean[0], last["stages.0.0.weight"])
    without_momentum = [step for step, (_, held) in enumerate(seen) if held == 0]
    assert without_momentum == [0, *(STEPS * epoch for epoch in range(EPOCHS, EPOCHS + 3))]
    for epoch in range(EPOCHS, EPOCHS + 3):
        row, (state, _) = position.history[epoch], seen[STEPS * epoch]
        blocks = [row[f"block_{number}"] for number in range(1, 5)]
        assert blocks == procedure.combination(epoch)
        source = dict(zip(("1", "2", "3"), blocks, strict=False))
        for name, value in state.items():
            part, number, *_ = name.split(".")
            epochs = blocks[3] if part == "head" else source.get(number, EPOCHS)
            assert torch.equal(value, procedure._predecessor(int(epochs))[name]), name
        assert row["learning_rate"] == pytest.approx(0.01 * 0.05)


@pytest.mark.parametrize("rate", [0.01, 30.0])
def test_all_checkpoints_are_the_combination_of_lowest_val_nll(rate, pcs, prepared, tmp_path):
    """Also if a high rate makes every combination worse than the training."""
    spec = pcs(rate, checkpoints=["best", "refined", "last"])
    trainer, position = run(spec, prepared, tmp_path)
    trained, tuned = position.history[:EPOCHS], position.history[EPOCHS:]
    lowest = min(row["val_nll"] for row in tuned)
    assert (lowest > min(row["val_nll"] for row in trained)) == (rate > 1)
    batch = next(iter(trainer.val_images.batches(1024)))
    for checkpoint in ("best", "refined", "last"):
        trainer.model.load_state_dict(position.chosen[checkpoint]["model"])
        with torch.no_grad():
            logits, _ = trainer.procedure.predict(trainer.model.eval(), batch)
        assert float(torch.nn.functional.cross_entropy(logits.double(), batch.labels)) == lowest


def test_interrupted_in_the_search_the_run_ends_with_the_same_bytes(pcs, prepared, tmp_path):
    """At the end of the training, within a combination, and at the end of the last one."""
    undisturbed = run(pcs(), prepared, tmp_path / "whole")
    broken = resumed(lambda: build(pcs(), prepared, tmp_path), 9, 4, 5)
    assert broken.position.epoch * STEPS + broken.position.step == 18
    assert_same_result(*undisturbed, *finished(broken))


def test_a_missing_or_damaged_predecessor_ends_the_search(pcs, prepared, tmp_path, refuses):
    broken = resumed(lambda: build(pcs(), prepared, tmp_path), STEPS * EPOCHS + 1)
    path = tmp_path / f"predecessor-{EPOCHS}.safetensors"
    for damage in (lambda: os.truncate(path, 99), path.unlink):
        damage()
        said = f"predecessor {path} is damaged"
        with refuses(StateError, said, "delete its folder and run again"):
            finished(broken)


def test_the_speed_of_training_is_measured_without_a_search(pcs, monkeypatch):
    monkeypatch.delattr(PredecessorCombinations, "combination")
    assert images_per_second(pcs(), (3, 8, 8), 4, "cpu") > 0
