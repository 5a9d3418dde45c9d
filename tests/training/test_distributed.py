"""Parts of a batch in several processes: what each sees, and the gradient that all of them get."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from calgrid.backbones import build_backbone
from calgrid.training import distributed

#: run by two processes; each prints one line of JSON
PROGRAM = """
import json
from pathlib import Path

import numpy as np
import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from calgrid.training import distributed


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))
        self.head = nn.Linear(1, 1, bias=False)
        self.head.weight.data.fill_(3.0)
        self.seen = []

    def features(self, x):
        self.seen.append(x.flatten().tolist())
        return self.weight * x


class SquareOfMean:
    def forward_loss(self, model, loss, batch):
        logits = model.head(model.features(batch))
        return logits, logits.mean() ** 2


class Encoded:
    def __init__(self, images):
        self.images, self.shape = images, images.shape
        self.dtype, self.ndim = images.dtype, images.ndim

    def __getitem__(self, rows):
        return self.images[rows]

    def random_parts(self, rows, seed):
        return self.images[rows] + seed


class Noisy(nn.Module):
    head = nn.Identity()

    def features(self, x):
        return torch.rand(len(x), 1)


def work(process):
    network = Scaled()
    shared = distributed.SharedNetwork(network, nn.Identity(), SquareOfMean())
    parallel = DistributedDataParallel(shared, broadcast_buffers=False)
    found = {"process": process}
    for name, size in (("three", 3), ("one", 1)):
        images = torch.arange(1.0, size + 1).view(size, 1)
        logits, loss = parallel(images)
        parallel.zero_grad()
        loss.backward()
        found[name] = {
            "logits": logits.flatten().tolist(),
            "loss": loss.item(),
            "body": network.weight.grad.item(),
            "head": network.head.weight.grad.item(),
        }
    found["seen"] = network.seen
    torch.manual_seed(5)
    noisy = distributed.SharedNetwork(Noisy(), nn.Identity(), None)
    found["drawn"] = noisy.features(torch.zeros(4, 1)).flatten().tolist()
    found["next"] = torch.rand(1).item()
    images = np.arange(1, 6, dtype=np.uint8).reshape(5, 1, 1, 1)
    parts = distributed.PartOfBatches(images)
    found["batch"] = parts[np.array([4, 0, 2])].flatten().tolist()
    found["short"] = parts[np.array([4])].flatten().tolist()
    encoded = Encoded(images)
    parts = distributed.PartOfBatches(encoded)
    found["random"] = parts.random_parts(np.array([4, 0, 2]), seed=7).flatten().tolist()
    found["all"] = parts[1:4].flatten().tolist()
    found["first"] = distributed.from_first(f"of {process}")
    lines = [None, None]
    dist.all_gather_object(lines, found)
    return lines


with distributed.joined(2) as process:
    lines = work(process)
if process == 0:
    lines[0]["threads"] = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    print(json.dumps(lines))
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory, home):
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    # as torchrun sets it
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    shared |= {"PYTHONPATH": str(home / "src"), "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **shared, "RANK": rank},
        )
        for rank in "01"
    ]
    (said, error), (_, other) = (each.communicate(timeout=300) for each in running)
    assert [each.returncode for each in running] == [0, 0], error + other
    return json.loads(said.splitlines()[-1])  # older Gloo prints before


def test_each_process_computes_its_part_and_has_logits_and_loss_of_the_whole_batch(processes):
    """w = 2 and v = 3: logits v w x of x = 1, 2, 3, and their mean squared is (2 v w)^2 = 144."""
    first, second = processes
    assert [each["seen"][0] for each in processes] == [[1.0], [2.0, 3.0]]
    assert first["three"]["logits"] == second["three"]["logits"] == [6.0, 12.0, 18.0]
    assert first["three"]["loss"] == second["three"]["loss"] == 144.0


def test_gradients_of_body_and_head_are_those_of_one_process(processes):
    """(2 v w)^2 has the slopes 8 v^2 w = 144 and 8 v w^2 = 96."""
    for each in processes:
        assert (each["three"]["body"], each["three"]["head"]) == (144.0, 96.0)


def test_a_batch_of_fewer_images_than_processes_is_computed_by_all(processes):
    """(v w)^2 = 36 has the slopes 2 v^2 w = 36 and 2 v w^2 = 24."""
    for each in processes:
        assert each["seen"][1] == [1.0]
        assert each["one"] == {"logits": [6.0], "loss": 36.0, "body": 36.0, "head": 24.0}


def test_random_numbers_differ_within_the_body_and_agree_after_it(processes):
    first, second = processes
    assert first["drawn"] == second["drawn"]
    assert len(set(first["drawn"])) == 4
    torch.manual_seed(5)
    assert first["next"] == second["next"] == torch.rand(1).item()


def test_a_process_reads_its_part_of_a_batch_and_all_of_a_slice(processes):
    assert [each["batch"] for each in processes] == [[5, 0, 0], [0, 1, 3]]
    assert [each["random"] for each in processes] == [[12, 0, 0], [0, 8, 10]]
    assert [each["all"] for each in processes] == [[2, 3, 4]] * 2
    # of fewer images than processes all read all: none may see black images
    assert [each["short"] for each in processes] == [[5], [5]]


def test_what_the_first_process_says_is_known_to_all(processes):
    assert [each["first"] for each in processes] == ["of 0"] * 2


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no list of threads")
def test_no_thread_of_the_processes_group_is_left_when_they_part(processes):
    """One that waits for Python would abort the interpreter at its end."""
    assert not [name for name in processes[0]["threads"] if "gloo" in name]


def test_batch_normalisation_is_that_of_all_processes_with_the_same_weights():
    network = build_backbone("resnet8", 10)
    before = network.state_dict(keep_vars=True)
    shared = distributed.synchronised(network)
    after = shared.state_dict(keep_vars=True)
    assert list(before) == list(after)
    assert all(after[name] is tensor for name, tensor in before.items())
    kinds = [type(each) for each in shared.modules()]
    assert kinds.count(nn.SyncBatchNorm) == 7  # the stem, and two in each of three blocks
    assert nn.BatchNorm2d not in kinds


def test_batch_normalisation_of_timm_keeps_its_activation():
    layers = pytest.importorskip("timm.layers")
    network = nn.Sequential(layers.BatchNormAct2d(4))
    (layer,) = distributed.synchronised(network)
    assert isinstance(layer, nn.SyncBatchNorm)
    assert isinstance(layer.act, nn.ReLU)
