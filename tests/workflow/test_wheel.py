"""The wheel, installed in an environment of its own: a study runs from any folder, without a
checkout.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pandas as pd
import pytest
import yaml
from tests.workflow.dag import CONFIG, HOME, MADE_HERE

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src", "workflow", "config", "envs")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built of the sources alone, as a release is."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (HOME / name).is_dir():
            shutil.copytree(HOME / name, folder / name, symlinks=True, ignore=MADE_HERE)
        else:
            shutil.copy(HOME / name, folder)
    command = "pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist ."
    subprocess.run([sys.executable, "-m", *command.split()], cwd=folder, check=True)
    (built,) = folder.glob("dist/*.whl")
    return built


@pytest.fixture(scope="module")
def run(wheel, tmp_path_factory):
    """Run a command of an environment with the wheel, and with the libraries of this one."""
    root = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "env"], check=True)
    python = root / "env/bin/python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
    Path(site, "libraries.pth").write_text(sysconfig.get_path("purelib"))
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(*command, cwd=root, code=0):
        done = subprocess.run(
            [python, "-m", *map(str, command)],
            cwd=cwd,
            env={**outside, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    call("pip", "install", "--quiet", "--no-deps", "--ignore-installed", wheel)
    call.root, call.package = root, Path(site, "calgrid")
    return call


@pytest.mark.workflow
def test_a_study_that_init_wrote_runs_without_a_checkout(run):
    run("calgrid", "init", "tiny")
    study = run.root / "tiny"
    run("calgrid", "new", "loss", "my_loss", cwd=study)
    config = {
        **CONFIG,
        "plugins": ["plugins"],
        "grids": [{**CONFIG["grids"][0], "methods": ["my_loss"], "shifts": []}],
    }
    (study / "config/config.yaml").write_text(yaml.safe_dump(config))
    assert "train 1," in run("calgrid", "check", "config/config.yaml", cwd=study)
    run("snakemake", "--cores", "2", cwd=study)
    metrics = pd.read_parquet(study / "results/tiny/metrics.parquet")
    scores = metrics.query("split == 'test' and metric == 'nll' and value > 0")
    assert set(scores["method"]) == {"my_loss"}
    assert (study / "results/tiny/report.html").is_file()
    assert "Nothing to be done" in run("snakemake", "--cores", "2", "-n", cwd=study)
    said = run("snakemake", "--cores", "2", "-n", "--sdm", "conda", cwd=study, code=1)
    assert "Conda environments do not contain calgrid; call snakemake from a checkout" in said


@pytest.mark.workflow
def test_configurations_and_published_numbers_are_in_the_wheel(run, tmp_path):
    config = run.package / "_home/config"
    for ours, theirs in (
        (HOME / "config", config),
        (HOME / "config/papers/smart", config / "papers/smart"),
    ):
        files = [
            path.relative_to(ours)
            for kind in ("yaml", "csv", "txt")
            for path in ours.rglob(f"*.{kind}")
        ]
        assert len(files) > 3
        assert [name for name in files if not (theirs / name).is_file()] == []
    assert (run.package / "py.typed").is_file()
    study = yaml.safe_load((config / "papers/smart/study.yaml").read_text())
    (tmp_path / "data").mkdir()
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({**study, "data_root": "data"}))
    assert " jobs (" in run("calgrid", "check", "study.yaml", cwd=tmp_path)
