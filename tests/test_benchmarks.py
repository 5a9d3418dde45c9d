"""Scripts of ``benchmarks`` still run: each at a tiny size, as they use what is not public. Pages
are what scripts make of the kept figures.
"""

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
