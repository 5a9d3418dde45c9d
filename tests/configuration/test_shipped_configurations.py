"""Every configuration that the repository ships can be planned, and the study of all methods misses none."""

import pytest
import yaml
from tests.conftest import HOME

from calgrid import registry
from calgrid.configuration.datasets import as_list
from calgrid.configuration.methods import registered_methods
from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study

FILES = [path for folder in ("", "studies", "papers") for path in sorted((HOME / "config" / folder).glob("*.yaml"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_configuration_can_be_planned(path, tmp_path):
    config = yaml.safe_load(path.read_text())
    for configured in config.get("datasets", {}).values():
        # val of a registered data set says how it is drawn
        for role in {"train", "val", "test"} & set(configured) if "train" in configured else ():
            for name in as_list(configured[role]):
                file = tmp_path / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
        config["data_root"] = str(tmp_path)
    for external in config.get("external", {}).values():
        for role in {"val", "test"} & set(external):
            file = tmp_path / external[role]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        config["data_root"] = str(tmp_path)
    manifest = Plan(Study(config, HOME)).manifest()
    assert manifest["study"] == ("digits" if path.stem == "config" else path.stem)
    assert manifest["runs"]


def test_the_study_of_all_methods_runs_every_registered_method():
    config = yaml.safe_load((HOME / "config/all_methods.yaml").read_text())
    assert set(registered_methods()) <= set(config["grids"][0]["methods"])


def test_the_study_of_all_calibrators_fits_every_registered_calibrator():
    config = yaml.safe_load((HOME / "config/all_calibrators.yaml").read_text())
    assert set(config["grids"][0]["calibrators"]) == set(registry.specs("calibrator"))
