"""``calgrid init``: a folder with a study of one's own."""

import shutil

import pytest
import yaml
from tests.conftest import HOME

from calgrid.components import plugins


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch, without_plugins):
    monkeypatch.chdir(tmp_path)


def test_the_folder_holds_a_valid_study_of_its_name_and_takes_new_methods(
    calgrid, succeeds, monkeypatch, tmp_path
):
    succeeds("init", "studies/mine")
    assert [path.name for path in tmp_path.glob("studies/*")] == ["mine"]  # nothing hidden stays
    monkeypatch.chdir("studies/mine")
    for profile in ("profiles/default/config.yaml", "slurm/config.yaml"):
        assert (tmp_path / "studies/mine" / profile).read_bytes() == (HOME / profile).read_bytes()
    assert calgrid("check", "config/config.yaml").out.startswith("study 'mine': 9 runs, ")
    succeeds("new", "loss", "my_loss")
    config = yaml.safe_load((tmp_path / "studies/mine/config/config.yaml").read_text())
    config["grids"][0]["methods"] = ["my_loss"]
    (tmp_path / "studies/mine/config/config.yaml").write_text(yaml.safe_dump(config))
    plugins.forget()
    assert calgrid("check", "config/config.yaml").out.startswith("study 'mine': 3 runs, ")


def test_what_is_there_stays_as_it_is(calgrid, fails, tmp_path):
    (tmp_path / "mine").mkdir()
    assert calgrid("init", "mine").code == 0  # an empty folder is taken
    fails("init", "mine", parts=["mine exists already and is not an empty folder"])
    (tmp_path / "file").touch()
    fails("init", "file", parts=["file exists already"])
    shutil.rmtree(tmp_path / "mine")
    said = ["the name of the folder two words", "'two words' is not a valid name"]
    fails("init", "two words", parts=said)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
