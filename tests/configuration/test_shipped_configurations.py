"""Every configuration that the repository ships can be planned, and the study of losses misses none."""

import pytest
import yaml
from tests.conftest import HOME

from calgrid import registry
from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study

FILES = [HOME / "config/config.yaml", *sorted((HOME / "config/studies").glob("*.yaml"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_configuration_can_be_planned(path, tmp_path):
    config = yaml.safe_load(path.read_text())
    for external in config.get("external", {}).values():
        for role in ("val", "test"):
            file = tmp_path / external[role]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        config["data_root"] = str(tmp_path)
    manifest = Plan(Study(config, HOME)).manifest()
    assert manifest["study"] == ("digits" if path.stem == "config" else path.stem)
    assert manifest["runs"]


def test_the_study_of_losses_runs_every_loss():
    config = yaml.safe_load((HOME / "config/studies/losses.yaml").read_text())
    assert set(config["grids"][0]["methods"]) == set(registry.specs("loss"))
