"""Bad input ends before any job with one clear sentence; what else is refused is tested in
tests/study.
"""

import copy
import subprocess

import pytest
from tests.datasets.pictures import write_parquet
from tests.workflow.dag import CONFIG, HOME, changed

from calgrid.errors import ConfigError
from calgrid.study.study import Study


@pytest.mark.parametrize("name", ["$(touch hacked)", "a'`\";&", "-rf"])
@pytest.mark.parametrize(
    "what", ["method", "study", "protocol", "dataset", "backbone", "calibrator"]
)
def test_names_that_a_shell_would_run_are_refused(what, name, refuses):
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


@pytest.mark.workflow
def test_a_bad_configuration_stops_before_any_job(fresh):
    """Rows are counted too, which takes the labels of the pictures."""
    write_parquet(fresh.root / "data" / "train.parquet", [b""] * 30, [0, 1] * 15)
    mine = {"base": "image_parquet", "like": "cifar10", "test_size": 5}
    fresh.configure(
        {**changed(datasets=["mine"], shifts=[]), "datasets": {"mine": mine}, "data_root": "data"}
    )
    result = fresh.snakemake("--configfile", "tiny.yaml", "--cores", "1")
    output = result.stdout + result.stderr
    assert result.returncode != 0
    assert (
        "datasets.mine: val_size is 5000, but the training files have 25 rows; use a smaller "
        "number." in output
    )
    assert "Traceback" not in output
    assert not (fresh.root / "results").exists()


@pytest.mark.workflow
def test_a_block_that_is_there_twice_is_refused_though_snakemake_reads_it(finished):
    path = finished.configure(CONFIG, "twice.yaml")
    path.write_text(f"{path.read_text()}\nstudy: other\n")
    result = finished.snakemake("--configfile", "twice.yaml", "-n")
    output = result.stdout + result.stderr
    assert result.returncode == 1
    assert "twice.yaml, line" in output
    assert "the key 'study' is already in line" in output
    assert "Traceback" not in output


@pytest.mark.workflow
def test_results_that_cannot_be_written_are_named_before_any_job(finished, tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting a read-only disk needs root")
    try:
        finished.configure({**CONFIG, "results": str(folder / "of_mine")}, "readonly.yaml")
        result = finished.snakemake("--configfile", "readonly.yaml", "--cores", "1")
    finally:
        subprocess.run(["umount", folder], check=True)
    assert result.returncode != 0
    assert f"The folder {folder} is not writable" in result.stderr
    assert "rule prepare_data" not in result.stderr
