"""Names and values of a configuration never reach a shell as code."""

import copy

import numpy as np
import pytest
from tests.workflow.dag import CONFIG, HOME, Repository

from calgrid.configuration.study import Study
from calgrid.errors import ConfigError

pytestmark = pytest.mark.workflow
HOSTILE = ["$(touch hacked)", "`touch hacked`", "'; touch hacked; '", '"; touch hacked; "', "a && touch hacked", "-rf"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("what", ["method", "study", "protocol", "dataset", "backbone", "calibrator"])
def test_names_that_are_no_names_are_refused_before_any_job(what, name, refuses):
    config = copy.deepcopy(CONFIG)
    grid = config["grids"][0]
    if what == "study":
        config["study"] = name
    elif what == "protocol":
        config["protocols"][name] = {"base": "digits"}
        grid["protocol"] = name
    elif what in ("method", "calibrator"):
        config[f"{what}s"] = {name: {"base": "ce" if what == "method" else "ts"}}
        grid[f"{what}s"] = [name]
    else:
        grid[f"{what}s"] = [name]
    with refuses(ConfigError):
        Study(config, HOME)


def test_hostile_folders_and_files_are_only_folders_and_files(tmp_path):
    """What may hold any characters (paths) is quoted: the grid runs in such folders, and nothing else is run."""
    folder = tmp_path / "data; touch hacked #$(touch hacked)"
    folder.mkdir()
    home = tmp_path / "repository"
    home.mkdir()
    repository = Repository(home)
    rng = np.random.default_rng(0)
    for name in ("val $(touch hacked).npz", "test `touch hacked`'.npz"):
        np.savez(folder / name, logits=rng.normal(size=(100, 3)), label=rng.integers(0, 3, 100))
    files = {"val": "val $(touch hacked).npz", "test": "test `touch hacked`'.npz", "kind": "logits"}
    config = {
        "study": "hostile",
        "results": "results '; touch hacked; $(touch hacked)",
        "data_root": str(folder),
        "external": {"mine": {**files, "calibrators": ["none", "ts"]}},
    }
    repository.configure(config, "hostile.yaml")
    metrics = f"{config['results']}/hostile/metrics.parquet"
    repository.run("hostile.yaml", metrics)
    assert (repository.root / metrics).is_file()
    assert not list(tmp_path.rglob("hacked"))
