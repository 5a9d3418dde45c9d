"""Bad input ends before any job with one clear sentence; all other mistakes are in the tests of configurations."""

import subprocess

import pytest
from tests.datasets.pictures import write_parquet
from tests.workflow.dag import CONFIG, Repository

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("bad"))


def test_a_bad_configuration_stops_before_any_job(repository):
    """Rows are counted too, which takes the labels of the pictures."""
    write_parquet(repository.root / "data" / "train.parquet", [b""] * 30, [0, 1] * 15)
    mine = {"base": "image_parquet", "like": "cifar10", "test": "train.parquet"}
    grids = [{**CONFIG["grids"][0], "datasets": ["mine"], "shifts": []}]
    repository.configure({**CONFIG, "grids": grids, "datasets": {"mine": mine}, "data_root": "data"}, "bad.yaml")
    result = repository.snakemake("--configfile", "bad.yaml", "--cores", "1")
    output = result.stdout + result.stderr
    assert result.returncode != 0
    assert "datasets.mine: val_size is 5000, but the training files hold 30 rows: ask for fewer." in output
    assert "Traceback" not in output
    assert not (repository.root / "results").exists()


def test_a_block_that_is_there_twice_is_refused_though_snakemake_reads_it(repository):
    path = repository.configure(CONFIG, "twice.yaml")
    path.write_text(f"{path.read_text()}\nstudy: other\n")
    result = repository.snakemake("--configfile", "twice.yaml", "-n")
    output = result.stdout + result.stderr
    assert result.returncode == 1
    assert "twice.yaml, line" in output
    assert "the key 'study' is in line" in output
    assert "Traceback" not in output


def test_results_that_cannot_be_written_are_named_before_any_job(repository, tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting a read-only disk needs root")
    try:
        repository.configure({**CONFIG, "results": str(folder / "of_mine")}, "readonly.yaml")
        result = repository.snakemake("--configfile", "readonly.yaml", "--cores", "1")
    finally:
        subprocess.run(["umount", folder], check=True)
    assert result.returncode != 0
    assert f"The folder {folder} cannot be written to" in result.stderr
    assert "rule prepare_data" not in result.stderr
