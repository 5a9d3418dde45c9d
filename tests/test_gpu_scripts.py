"""The scripts of benchmarks/gpu name jobs that a plan has, by options that the commands take."""

import argparse
import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calgrid.cli.main import build_parser


@pytest.fixture
def scripts(home, monkeypatch):
    monkeypatch.syspath_prepend(str(home / "benchmarks/gpu"))
    yield [__import__(name) for name in ("kit", "wheels")]
    for name in ("kit", "wheels"):
        del sys.modules[name]


@pytest.fixture
def kit(scripts):
    return scripts[0]


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


def test_a_subset_that_the_pictures_do_not_have_is_refused_at_once(kit, tmp_path):
    pq.write_table(pa.table({"label": [0] * 30}), tmp_path / "train.parquet")
    options = argparse.Namespace(work=tmp_path / "work", pictures=tmp_path)
    with pytest.raises(SystemExit, match="has 30 pictures; give 40"):
        kit.Runs(options, {}, [], subset=20)


def test_wheels_for_a_machine_have_what_calgrid_needs_and_not_what_is_there(scripts):
    names = {line.partition("==")[0].lower() for line in scripts[1].pins(scripts[1].USUAL)}
    assert {"snakemake", "pydantic", "pydantic_core", "pooch", "platformdirs", "jsonschema"} < names
    assert not {"torch", "numpy", "pandas", "triton"} & names
