"""Stages read what their rules declare, and nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.workflow
STAGES = ("prepare_data", "train", "predict", "calibrate")


@pytest.fixture(scope="module")
def commands(finished):
    """For one job of each stage, and a second stage: declared inputs, output, and the command."""
    result = finished.run("tiny.yaml", "-n", "-F", "-p")
    found = {}
    for block in (result.stdout + result.stderr).split("\n\n"):
        rule, shell = (
            re.search(r"^rule (\w+):", block, re.M),
            re.search(r"^Shell command: (.*)", block, re.M),
        )
        if rule and shell and rule[1] in STAGES:
            inputs, outputs = (
                re.search(rf"^ +{kind}: (.*)", block, re.M) for kind in ("input", "output")
            )
            paths = [] if inputs is None else inputs[1].split(", ")
            second = rule[1] == "train" and any(
                path.endswith("model.safetensors") for path in paths
            )
            found[f"{rule[1]}{' 2' if second else ''}"] = paths, outputs[1].split(", "), shell[1]
    return found


@pytest.mark.parametrize("stage", ["prepare_data", "train", "train 2", "predict", "calibrate"])
def test_copies_of_the_declared_inputs_are_enough(finished, commands, stage, tmp_path):
    inputs, outputs, command = commands[stage]
    plan = re.search(r"--plan (\S+)", command)[1]
    for path in [plan, *inputs]:
        for file in (Path(path), *_listed(finished.root / path)):
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(finished.root / file, tmp_path / file)
    before = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
    for folder in re.findall(r"--log (\S+)/", command):
        (tmp_path / folder).mkdir(parents=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "PYTHONPATH": str(finished.root / "src"), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **own}
    subprocess.run(command, shell=True, cwd=tmp_path, env=environment, check=True)
    for output in (Path(each.removesuffix(" (update)")) for each in outputs):
        assert (tmp_path / output).exists()
        assert output not in before
        for file in _listed(tmp_path / output):
            assert (tmp_path / file).read_bytes() == (finished.root / file).read_bytes()


def _listed(record):
    """Files beside a record that it lists, which stand for it: below the working directory, as
    rules name them.
    """
    if record.suffix != ".json":
        return []
    folder = record.parent
    place = folder.parts.index("results")
    return [
        Path(*folder.parts[place:], name)
        for name in json.loads(record.read_text()).get("files", ())
    ]
