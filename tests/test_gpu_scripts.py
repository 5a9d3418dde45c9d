"""The scripts of benchmarks/gpu name jobs that a plan has, by options that the commands take."""

import argparse
import json
import sys

import pytest

from calgrid.cli.main import build_parser


@pytest.fixture
def kit(home, monkeypatch):
    monkeypatch.syspath_prepend(str(home / "benchmarks/gpu"))
    yield __import__("kit")
    del sys.modules["kit"]


def test_commands_are_jobs_of_the_plan(kit, tmp_path):
    options = argparse.Namespace(work=tmp_path, pictures=None)
    grid = {
        "protocol": "digits",
        "backbones": ["resnet8"],
        "methods": ["ce", "maccal"],
        "seeds": [1],
    }
    runs = kit.Runs(options, {}, [grid], copy="_again")
    first, second = (runs.key("digits", "resnet8", method) for method in ("ce", "maccal"))
    commands = [
        runs.train_command(first),
        runs.train_command(second, "cpu"),
        runs.predict_command(second, model=runs.trained(first) / "model.safetensors"),
    ]
    parsed = [build_parser().parse_args(list(map(str, command))) for command in commands]
    jobs = json.loads(runs.plan_file.read_text())["jobs"]
    assert {str(each.out) for each in parsed} <= set(jobs)
    assert [each.command for each in parsed] == ["train", "train", "predict"]
    assert parsed[1].first_stage == runs.trained(first) / "model.safetensors"
    assert all(str(each.data.parent) in jobs for each in parsed)
