"""Tables, figures and report need the files of the study alone: the runs may be gone."""

import shutil

import pytest

from calgrid.papers.figures import write_figures
from calgrid.papers.report import write_report
from calgrid.papers.smart.diagnostics import FILES
from calgrid.papers.tables import write_tables
from calgrid.storage.schema import STUDY_FILES


@pytest.fixture
def alone(ablation, tmp_path):
    """A copy of the files of a study, while its runs are nowhere."""
    folder = tmp_path / "alone"
    folder.mkdir()
    for name in (*STUDY_FILES, *FILES):
        shutil.copy(ablation.folder / name, folder / name)
    runs = ablation.folder.parent / "runs"
    shutil.move(runs, tmp_path / "hidden")
    yield folder
    shutil.move(tmp_path / "hidden", runs)


def test_the_files_of_the_study_are_enough(ablation, ablation_tables, ablation_figures, alone):
    write_tables(alone, ablation.manifest, alone / "tables")
    write_figures(alone, ablation.manifest, alone / "figures", (".png",))
    write_report(alone, ablation.manifest, alone / "report.html")
    names = {path.name for path in (*ablation_tables.iterdir(), *ablation_figures.iterdir())}
    assert {"methods.csv", "indicator.csv", "saturation_digits_resnet8.png"} < names
    for before in (ablation_tables, ablation_figures):
        for path in before.iterdir():
            assert path.read_bytes() == (alone / before.name / path.name).read_bytes(), path.name
    assert "x86_64" in (alone / "report.html").read_text()
