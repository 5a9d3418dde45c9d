"""Names of methods and calibrators that the configuration gives, as readers see them."""

from xml.etree import ElementTree

import pandas as pd
import pytest
from tests.report.conftest import CLEAN, read_markdown

from calgrid.papers.report import write_report
from calgrid.report.study import StudyData

NAMES = {"ls": "Label smoothing", "ts": "Temperature", "ce": "CE"}


@pytest.fixture
def study(make):
    named = make(**CLEAN, seeds=(0,))
    named.manifest["configuration"]["names"] = NAMES
    return named


def test_an_identifier_is_named_as_a_whole_word():
    statistics = {"baseline": "ce", "level": 0.95, "bins": 15}
    data = StudyData("", {"configuration": {"statistics": statistics, "names": NAMES}})
    assert data.named("ls with ts") == "Label smoothing with Temperature"
    assert data.named("`ls`†, ens3(ce,ts).") == "`Label smoothing`†, ens3(CE,Temperature)."
    others = "mixup+ls, ls_005, tst+ce, ls.v2, ts-x, tools"
    assert data.named(others) == others


def test_tables_figures_and_report_have_names_and_files_of_numbers_identifiers(study):
    tables, _ = study.tables(), study.figures("ece_intervals")
    (rows,) = read_markdown(tables / "calibrators.md").values()
    assert {row["Method"] for row in rows} == {"CE", "Label smoothing", "mmce"}
    assert {row["Calibrator"] for row in rows} == {"none", "Temperature"}
    assert "Verdicts against CE" in (tables / "tests.md").read_text()
    frame = pd.read_csv(tables / "calibrators.csv")
    assert set(frame["method"]) == {"ce", "ls", "mmce"}
    write_report(study.folder, study.manifest, study.folder / "report.html")
    page = (study.folder / "report.html").read_text()
    assert "CE, Label smoothing, mmce" in page
    assert "Methods are tested against CE, with" in page
    assert "<code>ls</code>" not in page


def test_no_identifier_is_left_in_a_figure(study):
    data, _ = study.opened()
    for path in study.figures("nll_intervals", "reliability", formats=(".svg",)).glob("*.svg"):
        words = " ".join(ElementTree.parse(path).getroot().itertext())
        assert "Label smoothing" in words
        assert data.named(words) == words
