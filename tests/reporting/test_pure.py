"""Tables, figures and report are made of the files that their rules declare, and of nothing else."""

import re
import shutil

import pytest
from tests.conftest import HOME

from calgrid.cli.main import main
from calgrid.storage.schema import STUDY_FILES

RULES = (HOME / "workflow" / "rules" / "report.smk").read_text()


@pytest.mark.parametrize(
    ("stage", "made"), [("tables", "methods.csv"), ("figures", "training_digits_resnet8.png")]
)
def test_copies_of_the_declared_inputs_are_enough(ablation, stage, made, tmp_path):
    alone = _copy(ablation, tmp_path)
    assert (
        main([stage, "--manifest", str(alone / "manifest.json"), "--out", str(alone / stage)]) == 0
    )
    assert (alone / stage / made).is_file()
    assert {"figures": "saturation_digits_resnet8.png", "tables": "indicator.csv"}[stage] in {
        path.name for path in (alone / stage).iterdir()
    }


def test_the_report_needs_tables_and_figures_too(
    ablation, ablation_tables, ablation_figures, tmp_path
):
    alone = _copy(ablation, tmp_path)
    for folder in (ablation_tables, ablation_figures):
        shutil.copytree(folder, alone / folder.name)
    assert (
        main(
            [
                "report",
                "--manifest",
                str(alone / "manifest.json"),
                "--out",
                str(alone / "report.html"),
            ]
        )
        == 0
    )
    assert "x86_64" in (alone / "report.html").read_text()


def test_the_rules_declare_the_files_of_the_study():
    inputs = re.findall(r"rule (\w+):\n    input:\n(.*?)    output:", RULES, flags=re.DOTALL)
    assert [
        name for name, declared in inputs if "TOTALS" in declared and "manifest.json" in declared
    ] == [
        "tables",
        "figures",
        "report",
    ]


def _copy(study, folder):
    """Copy what the rules declare, with runs named that are nowhere."""
    alone = folder / "alone"
    alone.mkdir()
    for name in (*STUDY_FILES, "manifest.json"):
        shutil.copy(study.folder / name, alone / name)
    shutil.move(study.folder.parent / "runs", folder / "hidden")
    return alone


@pytest.fixture(autouse=True)
def put_back(ablation, tmp_path):
    """Let other tests find the runs again."""
    yield
    if (tmp_path / "hidden").exists():
        shutil.move(tmp_path / "hidden", ablation.folder.parent / "runs")
