"""Every table in LaTeX compiles and fits into the width of a text."""

import shutil
import subprocess

import pytest

from calgrid.papers.tables import write_tables

WORDS = "Δ α² ≤ 5 % & “Müller’s” Łódź, 中文_{x}~^\\"
DOCUMENT = """\\documentclass{article}
%s
\\begin{document}
\\input{%s}
\\end{document}
"""


def packages(path):
    """The line with the packages that a table needs, on its top."""
    first = path.read_text().splitlines()[0]
    assert first.startswith("% \\usepackage{")
    return first.removeprefix("% ")


def compiled(path, folder):
    """Messages of pdfLaTeX about a table; it must compile."""
    (folder / "document.tex").write_text(DOCUMENT % (packages(path), path.stem))
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, f"{path.name}: {done.stdout[-2000:]}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_every_table_compiles_and_is_no_wider_than_the_text(make, tmp_path):
    asked = {"question": WORDS, "method": "ls", "against": "ce"}
    study = make(seeds=(1, 2), comparisons=(asked,), sees_validation=("mmce",))
    manifest = {**study.manifest, "papers": [{"name": "fedlas", "own_protocols": []}]}
    write_tables(study.folder, manifest, tmp_path)
    paths = sorted(tmp_path.glob("*.tex"))
    assert {"tests", "comparisons", "methods", "fedlas_table1"} <= {path.stem for path in paths}
    for path in paths:
        assert "Overfull \\hbox" not in compiled(path, tmp_path), path.name
