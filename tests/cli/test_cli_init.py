"""``calgrid init``: a folder with a study of one's own."""

import shutil

import pytest
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
    succeeds("new", "loss", "my_loss")
    path = tmp_path / "studies/mine/config/config.yaml"
    path.write_text(path.read_text().replace("[ce, mbls,", "[ce, mbls, my_loss,"))
    plugins.forget()
    assert calgrid("check", path).out.startswith("study 'mine': 12 runs, ")


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
