"""Tables, figures and report need the files of the study alone, and are the same each time."""

import shutil

from tests.report.conftest import CLEAN, Written

from calgrid.papers.report import write_report
from calgrid.papers.smart.diagnostics import FILES
from calgrid.storage.schema import STUDY_FILES


def test_the_files_of_the_study_are_enough(make, tmp_path):
    study = make(methods=("ce", "fedlas_ls"), seeds=(0,), **CLEAN)
    alone, runs = Written(tmp_path / "alone", study.manifest), study.folder.parent / "runs"
    alone.folder.mkdir()
    for name in (*STUDY_FILES, *FILES):
        shutil.copy(study.folder / name, alone.folder / name)
    for written in (study, alone):
        written.tables()
        written.figures("reliability", "saturation", "training")
        write_report(written.folder, written.manifest, written.folder / "report.html")
        if written is study:
            shutil.move(runs, tmp_path / "hidden")
    shutil.move(tmp_path / "hidden", runs)
    made = [path for path in alone.folder.rglob("*") if path.is_file()]
    names = {path.name for path in made}
    assert {"methods.csv", "indicator.csv", "saturation_digits_resnet8.png"} < names
    for path in made:
        before = study.folder / path.relative_to(alone.folder)
        assert path.read_bytes() == before.read_bytes(), path.name
    assert "x86_64" in (alone.folder / "report.html").read_text()
