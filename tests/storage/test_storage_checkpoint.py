"""Checkpoints and resume state: the same bytes, never another run's, nothing executed."""

import pickle

import pytest
import torch
from safetensors.torch import load_file

from calgrid.errors import StateError
from calgrid.storage.checkpoint import (
    load_checkpoint,
    load_resume_state,
    save_checkpoint,
    save_resume_state,
)

STATES = {
    "best.model": {
        "conv.weight": torch.arange(12.0).reshape(3, 4),
        "bn.num_batches_tracked": torch.tensor(7),
    },
    "last.loss": {"gate": torch.tensor([0.5]), "mask": torch.tensor([True, False])},
}
DESCRIPTION = {"fingerprint": "f1", "spec": {"key": {"seed": 1}}, "epochs": 3}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def test_round_trip(path):
    save_checkpoint(path, STATES, DESCRIPTION)
    states, description = load_checkpoint(path, "f1")
    assert description == DESCRIPTION
    assert states.keys() == STATES.keys()
    for group, state in STATES.items():
        assert states[group].keys() == state.keys()
        for name, tensor in state.items():
            assert states[group][name].dtype == tensor.dtype
            assert torch.equal(states[group][name], tensor)
            assert torch.equal(load_file(path)[f"{group}/{name}"], tensor)  # other programs read it


def test_the_same_states_give_the_same_bytes(path, tmp_path):
    save_checkpoint(path, STATES, DESCRIPTION)
    other = tmp_path / "other.safetensors"
    turned = {group: dict(reversed(state.items())) for group, state in reversed(STATES.items())}
    save_checkpoint(other, turned, dict(reversed(DESCRIPTION.items())))
    assert other.read_bytes() == path.read_bytes()


def test_any_layout_and_shared_memory_can_be_saved(path):
    weight = torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    save_checkpoint(path, {"a": {"x": weight, "tied": weight, "part": weight[:, 1]}}, {})
    states, _ = load_checkpoint(path)
    assert torch.equal(states["a"]["x"], weight)
    assert torch.equal(states["a"]["tied"], weight)
    assert torch.equal(states["a"]["part"], weight[:, 1])


@pytest.mark.parametrize(("description", "found"), [(DESCRIPTION, "f1"), ({}, "None")])
def test_a_checkpoint_missing_or_of_another_run_is_refused(path, refuses, description, found):
    with refuses(StateError, f"The checkpoint {path} does not exist", "train the run first"):
        load_checkpoint(path)
    save_checkpoint(path, STATES, description)
    with refuses(StateError, str(path), f"fingerprint {found}, expected f2", "train that run"):
        load_checkpoint(path, "f2")
    assert load_checkpoint(path)[1] == description


def test_resume_state_round_trip(path):
    assert load_resume_state(path) is None
    state = {"epoch": 3, "order": [3, 1], "name": "x"}
    state |= {"model": {"w": torch.ones(2)}, "rng": torch.get_rng_state()}
    save_resume_state(path, state)
    back = load_resume_state(path)
    assert torch.equal(back["model"]["w"], torch.ones(2))
    assert torch.equal(back["rng"], state["rng"])
    assert (back["epoch"], back["order"], back["name"]) == (3, [3, 1], "x")


class Malicious:
    def __init__(self, witness):
        self.witness = witness

    def __reduce__(self):
        return (open, (str(self.witness), "w"))


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_nothing_in_a_resume_state_is_executed(path, tmp_path, capsys, how):
    witness = tmp_path / "executed"
    state = {"epoch": Malicious(witness)}
    if how == "pickle":
        path.write_bytes(pickle.dumps(state, protocol=2))
    else:
        torch.save(state, path)
    assert load_resume_state(path) is None
    assert not witness.exists()
    assert "is damaged" in capsys.readouterr().err
