"""The scripts of benchmarks/gpu: jobs that a plan has, pieces within their time, a rehearsal."""

import argparse
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calgrid.cli.main import build_parser


@pytest.fixture
def scripts(home, monkeypatch):
    monkeypatch.syspath_prepend(str(home / "benchmarks/gpu"))
    yield [__import__(name) for name in ("kit", "wheels")]
    for name in {"kit", "wheels", "run"} & sys.modules.keys():
        del sys.modules[name]


@pytest.fixture
def kit(scripts):
    return scripts[0]


def test_commands_are_jobs_of_the_plan(kit, tmp_path):
    options = argparse.Namespace(work=tmp_path, pictures=None)
    grid = {"protocol": "digits", "backbones": ["resnet8"], "methods": ["ce", "maccal"]}
    grid["seeds"] = [1]
    runs = kit.Runs(options, {}, [grid], copy="_again")
    first, second = (runs.key("digits", "resnet8", method) for method in ("ce", "maccal"))
    commands = [
        runs.train_command(first),
        runs.train_command(second, "cpu"),
        runs.predict_command(second),
    ]
    parsed = [build_parser().parse_args(list(map(str, command))) for command in commands]
    jobs = json.loads(runs.plan_file.read_text())["jobs"]
    assert {str(each.out) for each in parsed} <= set(jobs)
    assert [each.job for each in parsed] == ["train", "train", "predict"]


def test_a_subset_that_the_pictures_do_not_have_is_refused_at_once(kit, tmp_path):
    pq.write_table(pa.table({"label": [0] * 30}), tmp_path / "train.parquet")
    options = argparse.Namespace(work=tmp_path / "work", pictures=tmp_path)
    with pytest.raises(SystemExit, match="has 30 pictures; give 40"):
        kit.Runs(options, {}, [], subset=20)


def test_wheels_for_a_machine_have_what_calgrid_needs_and_not_what_is_there(scripts):
    names = {line.partition("==")[0].lower() for line in scripts[1].pins(scripts[1].USUAL)}
    assert {"snakemake", "pydantic", "pydantic_core", "pooch", "platformdirs", "jsonschema"} < names
    assert not {"torch", "numpy", "pandas", "triton"} & names


PART = """
import time
from kit import Piece

def waves(options):
    first = [Piece("slow", 15, slow), Piece("wrong", 15, wrong), Piece("new", 15, slow, "no key")]
    return [(2, first), (1, [Piece("late", 9, slow)])]

def slow(options):
    print("begun", flush=True)
    yield {"first": 1.5}
    time.sleep(60)
    yield {"second": 2}

def wrong(options):
    yield {"first": 2}
    raise ValueError("of no use")
"""


@pytest.mark.slow
def test_a_piece_keeps_what_it_found_when_it_is_stopped_or_fails(scripts, tmp_path, monkeypatch):
    (tmp_path / "some_part.py").write_text(PART)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "out"
    options = argparse.Namespace(out=out, minutes=0.3, only="", rehearse=True)
    run = __import__("run")
    assert not run.Part("some_part", options).run()
    found = json.loads((out / "some_part.json").read_text())
    rows = {row.pop("piece"): row for row in found["rows"]}
    assert rows["slow"].pop("seconds") == pytest.approx(15, abs=5)
    assert rows["slow"] == {"first": 1.5, "ok": False, "says": "stopped after 15 s"}
    del rows["wrong"]["seconds"]
    assert rows["wrong"] == {"first": 2, "ok": False, "says": "of no use"}
    assert rows["new"] == {"not_run": "no key"}
    assert rows["late"] == {"not_run": "no time left"}
    log = (out / "some_part.log").read_text()
    assert "begun" in log
    assert "ValueError: of no use" in log


@pytest.mark.slow
def test_parts_can_be_rehearsed(home, tmp_path):
    script = home / "benchmarks/gpu/run.py"
    options = ["--rehearse", "--out", tmp_path / "out", "--work", tmp_path / "work"]
    # of the loops that are timed, the one that trains as calgrid does
    for parts in (["recipe", "grid"], ["speed", "--only", "calgrid"]):
        call = [sys.executable, script, *parts, *options]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    parts = ("speed", "recipe", "grid")
    rows = {part: json.loads((tmp_path / f"out/{part}.json").read_text())["rows"] for part in parts}
    choice = rows["recipe"][-1]
    assert len(choice["val_accuracy"]) == 8
    assert choice["val_accuracy"][choice["chosen"]] == max(choice["val_accuracy"].values())
    assert {row["piece"] for row in rows["grid"]} >= {"ce, seed 1", "maccal, seed 1"}
    assert [row["images_s"] > 0 for row in rows["speed"]] == [True]
