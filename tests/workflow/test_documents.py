"""What README and docs/ show works when it is copied."""

import subprocess
import sys

import pytest
import yaml
from tests.workflow.dag import HOME, changed, examples

from calgrid.configuration.study import Study


@pytest.mark.workflow
def test_the_example_of_a_method_is_one_file_that_can_be_planned(fresh):
    code = next(block for block in examples("python") if "class MyLoss" in block)
    (fresh.root / "src/calgrid/losses/my_loss.py").write_text(code)
    fresh.configure(changed(methods=["my_loss", "tst+my_loss"]))
    plan = fresh.plan()
    assert {"train my_loss/seed1", "train tst+my_loss/seed1"} <= plan
    script = (
        "import torch; from calgrid.losses import build_loss; loss = build_loss('my_loss', 3, lambda_=0.5);"
        "z = torch.eye(3); y = torch.arange(3);"
        "print(float(loss(z, y) - torch.nn.functional.cross_entropy(z, y)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(fresh.root / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) == pytest.approx(0.5 * 1 / 3, abs=1e-6)


def test_example_configurations_are_valid_as_they_stand(tmp_path, monkeypatch):
    configurations = [yaml.safe_load(block) for block in examples("yaml") if block.startswith("study:")]
    assert len(configurations) >= 5
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "images").mkdir(parents=True)
    logits = [f"{model}_{split}.npz" for model in ("plain", "smoothed") for split in ("val", "test")]
    for name in (*logits, "data/images/train.parquet", "data/images/test.parquet"):
        (tmp_path / name).touch()
    studies = [Study(configuration, HOME) for configuration in configurations]
    assert all(study.runs for study in studies)
    (external,) = [study for study in studies if "external" in study.config]
    assert len({(key.dataset, key.backbone) for key in external.runs}) == 1  # both models in one table
