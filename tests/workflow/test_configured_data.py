"""A real DAG on a data set of the user's own: a Parquet file of pictures that the test writes."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
from tests.datasets.pictures import encoded, write_parquet
from tests.workflow.dag import AGGREGATION, CONFIG, Repository, branch

pytestmark = pytest.mark.workflow
CHANGED = branch("ce") | AGGREGATION | {"prepare_data mine"}


def write_pictures(root, seed=0):
    """Bright and dark pictures, which a network tells apart at once."""
    rng = np.random.default_rng(seed)
    for role, count in (("train", 100), ("test", 60)):
        labels = np.arange(count) % 2
        pixels = rng.integers(0, 100, (count, 8, 8, 3), dtype=np.uint8) + 150 * labels[:, None, None, None].astype(
            np.uint8
        )
        write_parquet(root / "mine" / f"{role}.parquet", map(encoded, pixels), labels)


def configuration(**changes):
    config = copy.deepcopy(CONFIG)
    own = {
        "base": "image_parquet",
        "train": "mine/train.parquet",
        "test": "mine/test.parquet",
        "val_size": 30,
        **changes,
    }
    config |= {"data_root": "pictures", "datasets": {"mine": own}}
    config["grids"][0] |= {"datasets": ["mine"], "methods": ["ce"], "shifts": []}
    return config


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    made = Repository(tmp_path_factory.mktemp("own"))
    write_pictures(made.root / "pictures")
    made.configure(configuration())
    made.run()
    return made


def test_a_grid_on_pictures_of_ones_own_ends_with_a_report(repository):
    metrics = pd.read_parquet(repository.root / "results/tiny/metrics.parquet")
    assert set(metrics["dataset"].astype(str)) == {"mine"}
    accuracy = metrics.query("split == 'test' and calibrator == 'none' and metric == 'accuracy'")["value"].item()
    assert accuracy > 0.9
    manifest = json.loads((repository.root / "results/data/mine/manifest.json").read_text())
    assert (manifest["id"], manifest["n_classes"], manifest["splits"]["val"]["size"]) == ("mine", 2, 30)
    assert "image_parquet" in (repository.root / "results/tiny/report.html").read_text()
    assert repository.plan() == set()


def test_an_option_runs_the_data_set_and_what_depends_on_it_again(repository):
    repository.configure(configuration(subset=50), "subset.yaml")
    assert repository.plan("subset.yaml") == CHANGED


def test_a_copied_source_plans_nothing_and_a_changed_one_everything(repository):
    path = repository.root / "pictures/mine/train.parquet"
    content = path.read_bytes()
    path.write_bytes(content)
    assert repository.plan() == set()
    write_pictures(repository.root / "pictures", seed=1)
    assert repository.plan() == CHANGED
    write_pictures(repository.root / "pictures")
    assert path.read_bytes() == content
    assert repository.plan() == set()


def test_a_missing_source_stops_before_any_job(repository):
    repository.configure(configuration(train="mine/trian.parquet"), "missing.yaml")
    result = repository.snakemake("--configfile", "missing.yaml", "--cores", "1")
    output = result.stdout + result.stderr
    assert result.returncode != 0
    assert "datasets.mine.train: the file or folder 'pictures/mine/trian.parquet' does not exist" in output
    assert "Traceback" not in output
