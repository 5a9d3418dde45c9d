"""The network of a run: logits of the study from pixels, also with a calibrator and exported."""

import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.jobs.small import CE, HOME

import calgrid
from calgrid import CalibratedModule, TrainedNetwork
from calgrid.calibrators import build_calibrator
from calgrid.datasets import open_prepared
from calgrid.errors import ConfigError, DataError
from calgrid.report.run import Run


@pytest.fixture
def ours(run, plan, data, tmp_path):
    """The run in the folders of a study."""
    spec = plan.train(CE).spec
    folder = tmp_path / f"runs/{CE.path}/train-{spec['fingerprint'][:10]}"
    shutil.copytree(run / "train", folder)
    shutil.copytree(data / "digits", tmp_path / f"data/digits-{spec['data'][:10]}")
    return Run(folder, run / "predict")


def test_pixels_become_the_logits_of_the_study(ours, data):
    images = np.array(open_prepared(data / "digits").splits["test"].images[:9])
    for checkpoint in ("best", "last"):
        network = TrainedNetwork(ours, checkpoint)
        expected = ours.logits("test", checkpoint).logits[:9]
        for pixels in (torch.tensor(images), torch.tensor(images).float() / 255):
            found = network(pixels).detach().numpy()
            assert found == pytest.approx(expected, abs=1e-4)
    assert network.classes is None
    assert not network.training


def test_with_a_calibrator_it_is_exported_for_any_number_of_images(ours):
    val = ours.logits("val", "last")
    calibrator = build_calibrator("ts").fit(val.logits, val.label)
    both = CalibratedModule(TrainedNetwork(ours, "last"), calibrator)
    images = torch.randint(256, (8, *both.model.image_shape), dtype=torch.uint8)
    rows = torch.export.Dim("rows", min=1)
    exported = torch.export.export(both, (images[:3],), dynamic_shapes=(({0: rows},),))
    torch.testing.assert_close(exported.module()(images), both(images))


def test_the_example_of_the_page_on_python(ours, capsys):
    (example,) = re.findall(
        r"## A trained network\n.*?```python\n(.*?)```",
        (HOME / "docs/python.md").read_text(),
        re.DOTALL,
    )
    names = {
        "calgrid": calgrid,
        "build_calibrator": build_calibrator,
        "study": SimpleNamespace(run=lambda method, seed: ours),
        "seed": 1,
        "val": ours.logits("val"),
    }
    exec(example, names)
    assert "torch.return_types.max" in capsys.readouterr().out
    images = names["images"]
    torch.testing.assert_close(names["exported"].module()(images), names["calibrated"](images))


def test_runs_without_a_network_and_other_checkpoints_are_refused(ours, refuses):
    with refuses(DataError, "made elsewhere has no network"):
        TrainedNetwork(Run(None, ours.predicted))
    with refuses(ConfigError, "Unknown checkpoint 'first'"):
        TrainedNetwork(ours, "first")
