"""Names of methods and calibrators that the configuration gives, as readers see them."""

import pandas as pd
import pytest
from matplotlib.text import Text
from tests.report.conftest import CLEAN, read_markdown

from calgrid.papers.report import write_report
from calgrid.report.figure import FigureData
from calgrid.report.figures import FIGURES, _name
from calgrid.report.study import StudyData

NAMES = {"ls": "Label smoothing", "ts": "Temperature", "ce": "CE"}


@pytest.fixture
def study(make):
    return make(**CLEAN, seeds=(1, 2), configuration={"names": NAMES})


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
    assert "<code>ls</code>" not in page


@pytest.mark.parametrize("id", ["nll_intervals", "reliability"])
def test_no_identifier_is_left_in_a_figure(study, id):
    data, group = study.opened()
    (kind,) = [kind for kind in FIGURES if kind.id == id]
    figure = kind.draw(FigureData(data, group, kind.collect(data, group)))
    _name(figure, data)
    figure.canvas.draw()
    words = " ".join(text.get_text() for text in figure.findobj(Text))
    assert "Label smoothing" in words
    assert data.named(words) == words
