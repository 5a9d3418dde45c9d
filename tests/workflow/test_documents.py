"""What README and docs/ show works when it is copied."""

import re
import shutil

import h5py
import pytest
import yaml
from tests.workflow.dag import HOME, examples

from calgrid.components import plugins
from calgrid.study.study import Study

#: of the page on extending; the block in TOML is used by tests/test_plugins.py
LANGUAGES = ("bash", "python", "yaml")


@pytest.mark.workflow
def test_the_page_on_extending_works_as_it_stands(fresh, run_python):
    """Its commands, then its loss in the place of the one that they wrote, then its study."""
    text = (HOME / "docs" / "extending.md").read_text()
    commands, code, study = (
        re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)[1] for language in LANGUAGES
    )
    printed = fresh.shell(commands)
    assert "1 passed" in printed
    assert " (plugin: my_folder/losses/my_loss.py)\n" in printed
    (fresh.root / "my_folder/losses/my_loss.py").write_text(code)
    (fresh.root / "my_study.yaml").write_text(study)
    assert {"train my_loss/seed1", "train tst+my_loss/seed1"} <= fresh.plan("my_study.yaml")
    script = (
        "import torch; from calgrid.losses import build_loss; "
        "loss = build_loss('my_loss', 3, weight=0.5); z = torch.eye(3); y = torch.arange(3); "
        "print(float(loss(z, y) - torch.nn.functional.cross_entropy(z, y)))"
    )
    printed = run_python(
        script, source=fresh.root / "src", CALGRID_PLUGINS=str(fresh.root / "my_folder")
    )
    assert float(printed) == pytest.approx(0.5 * 1 / 3, abs=1e-6)


def test_example_configurations_are_valid_as_they_stand(tmp_path, monkeypatch):
    configurations = [
        yaml.safe_load(block) for block in examples("yaml") if block.startswith("study:")
    ]
    assert len(configurations) >= 5
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "images").mkdir(parents=True)
    losses = tmp_path / "my_folder" / "losses"
    losses.mkdir(parents=True)
    (losses / "my_loss.py").write_text(
        next(block for block in examples("python") if "class MyLoss" in block)
    )
    logits = [
        f"data/{model}_{split}.npz" for model in ("plain", "smoothed") for split in ("val", "test")
    ]
    (tmp_path / "data" / "weights").mkdir()
    weights = [f"data/weights/{method}-{seed}.pth" for method in ("ce", "ls") for seed in (1, 2, 3)]
    for name in (*logits, *weights, "data/images/train.parquet", "data/images/test.parquet"):
        (tmp_path / name).touch()
    for folder in ("animals", "birds/train", "birds/val"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    shutil.copy(HOME / "docs" / "cifar10" / "bank.zip", tmp_path / "data")
    (arena,) = [each for each in configurations if each["study"] == "arena"]
    with h5py.File(tmp_path / "data" / arena["external"]["cv"]["file"], "w") as file:
        for group in arena["external"]["cv"]["group"]:
            file.create_group(group)
    studies = [Study(configuration, HOME) for configuration in configurations]
    plugins.use(())
    assert all(study.runs for study in studies)
    (mine,) = [study for study in studies if "plain" in study.config.external]
    assert len({(key.dataset, key.backbone) for key in mine.runs}) == 1  # models in one table
