"""Damaged files and hostile places: named in one sentence, and redone where that is safe, to the same bytes."""

import os
import subprocess

import numpy as np
import pytest
from tests.workflow.dag import CONFIG

pytestmark = pytest.mark.workflow
RUN = "results/runs/quick/digits/resnet8/ce/seed1"
FILES = ("model.safetensors", "history.parquet", "logits/last/val.parquet", "logits/last/test.parquet")


def one_run(**changes):
    grid = {**CONFIG["grids"][0], "methods": ["ce"], "calibrators": ["none"], "shifts": []}
    return {**CONFIG, "grids": [grid], **changes}


@pytest.fixture(scope="module")
def repository(finished_once, tmp_path_factory):
    repository = finished_once.copy(tmp_path_factory.mktemp("damaged"))
    repository.configure(one_run())
    repository.run("tiny.yaml", "results/tiny/metrics.parquet")
    return repository


def contents(repository):
    names = [*(f"{RUN}/{name}" for name in FILES), "results/tiny/metrics.parquet"]
    return {name: (repository.root / name).read_bytes() for name in names}


@pytest.mark.parametrize("damaged", ["logits/last/test.parquet", "model.safetensors"])
def test_a_truncated_file_is_named_and_made_again_when_it_is_deleted(damaged, repository):
    before = contents(repository)
    path = repository.root / RUN / damaged
    os.truncate(path, path.stat().st_size // 2)
    wanted = ("results/tiny/metrics.parquet", f"{RUN}/{damaged}", f"{RUN}/logits/last/val.parquet")
    result = repository.snakemake("--configfile", "tiny.yaml", "--cores", "1", *wanted)
    output = result.stdout + result.stderr
    assert result.returncode != 0
    assert f"{RUN}/{damaged} is damaged" in output
    assert "delete it and run again" in output
    path.unlink()
    repository.run("tiny.yaml", *wanted)
    assert contents(repository) == before


def test_a_read_only_data_root_is_enough(repository, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a read-only disk needs root")
    try:
        rng = np.random.default_rng(0)
        for name in ("val", "test"):
            np.savez(folder / f"{name}.npz", logits=rng.normal(size=(200, 3)), label=rng.integers(0, 3, 200))
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        files = {"val": "val.npz", "test": "test.npz", "kind": "logits", "calibrators": ["none", "ts"]}
        repository.configure(
            {"study": "readonly", "data_root": str(folder), "external": {"mine": files}}, "readonly.yaml"
        )
        repository.run("readonly.yaml", "results/readonly/metrics.parquet")
        assert sorted(path.name for path in folder.iterdir()) == ["test.npz", "val.npz"]
    finally:
        subprocess.run(["umount", folder], check=True)
