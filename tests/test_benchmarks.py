"""Scripts of ``benchmarks`` still run: each at a tiny size, as they use what is not public. Pages
are what scripts make of the kept figures.
"""

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = {
    "calibrators": "--classes 10 --ids ts vs --samples 200",
    "choice": "--draws 2 --rows 60 --classes 3 --calibrators none ts vs",
    "coverage": "--only models --sets 2 0 0 --smooth 1",
    "full_size": "--only costs --sizes 200x5 --ids ts",
    "losses": "--only ce fedlas_ls --sizes 64x10",
    "posthoc": "--sizes 200x5",
}


@pytest.mark.slow
@pytest.mark.parametrize("script", CALLS)
def test_a_benchmark_prints_a_table(script, home, tmp_path):
    command = [sys.executable, home / f"benchmarks/{script}.py", *CALLS[script].split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| ---" in done.stdout


KEPT = sorted(path.stem for path in Path(__file__).parents[1].glob("benchmarks/*.json"))


@pytest.mark.parametrize("name", KEPT)
def test_a_page_is_what_its_script_makes_of_the_kept_figures(name, home, monkeypatch):
    monkeypatch.syspath_prepend(str(home / "benchmarks"))
    figures = json.loads((home / f"benchmarks/{name}.json").read_text())
    page = importlib.import_module(f"benchmarks.{name}").page(figures)
    assert page == (home / f"benchmarks/{name}.md").read_text()


def test_new_figures_are_kept_beside_others(home, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(home / "benchmarks"))
    pages = importlib.import_module("pages")
    kept = {"conditions": {"monday": "alone"}, "losses": {"ce": {"ms": 1.5}, "ls": {"ms": 2.5}}}
    new = {"conditions": {"today": "busy"}, "losses": {"ls": {"ms": 3.5}}}
    (tmp_path / "x.json").write_text(json.dumps(kept))
    monkeypatch.setattr(sys, "argv", ["x.py", "--store"])
    pages.run(argparse.ArgumentParser(), lambda options: new, str, str(tmp_path / "x.py"))
    assert json.loads((tmp_path / "x.json").read_text()) == {
        "conditions": {"monday": "alone", "today": "busy"},
        "losses": {"ce": {"ms": 1.5}, "ls": {"ms": 3.5}},
    }
