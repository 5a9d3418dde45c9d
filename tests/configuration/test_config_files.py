"""Files and folders that a configuration names are looked into before anything runs."""

import pytest

from calgrid.configuration.files import check_published
from calgrid.errors import ConfigError

HEAD = "paper,table,dataset,backbone,method,calibrator,metric,shift,severity,value,unit,suspect"
ROW = "mine,1,digits,resnet8,ce,none,ece,,0,3.7,percent,"


@pytest.fixture
def published(tmp_path):
    def write(*lines):
        path = tmp_path / "numbers.csv"
        path.write_bytes("\n".join(lines).encode("latin-1"))
        return path

    return write


def test_published_numbers_are_taken(published, home):
    own = published(HEAD, ROW, "", ROW.replace("3.7", "3.7e1"))
    paths = [own, *(home / "config" / "published").glob("*.csv")]
    assert len(paths) == 4
    for path in paths:
        check_published(path, "published[0]")


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ((), ["is no CSV file of published numbers: it lacks the columns paper, table, dataset"]),
        ((HEAD.replace("unit", "units"), ROW), ["it lacks the column unit (config/published/README.md"]),
        ((f"{HEAD},unit", f"{ROW},"), ["has the column unit twice"]),
        ((HEAD, ROW, f"{ROW},more"), ["line 3, has 13 cells and not 12"]),
        ((HEAD, ROW.replace("3.7", "low")), ["line 2: value must be a number, got 'low'"]),
        ((HEAD, ROW.replace("3.7", "")), ["line 2: value must be a number, got ''"]),
        ((HEAD, ROW.replace(",0,", ",high,")), ["line 2: severity must be a number, got 'high'"]),
        ((HEAD, ROW.replace("percent", "%")), ["line 2: unit must be one of percent, centinats", "got '%'"]),
        ((HEAD, ROW.replace("mine", "\xe9")), ["is no CSV file in UTF-8"]),
    ],
)
def test_what_holds_no_published_numbers_is_refused(published, refuses, lines, parts):
    with refuses(ConfigError, "published[0]: '", *parts):
        check_published(published(*lines), "published[0]")
